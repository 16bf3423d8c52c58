package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type drainCmd struct {
	Worker string `arg:""`
	Undo   bool
}

func (*drainCmd) help() help {
	return help{
		summary: "Let one worker take no more requests, as before maintenance.",
		detail: `The worker leaves its queue groups, answers what it has taken, and keeps its
worker number. Callers are served by the other workers. It ends with --undo, and
with the process: a worker that is started again takes requests.

The command returns when the last request is answered. /readyz of the worker is
503 from then on, and "natsid workers" shows it as drained.

Examples:
  natsid drain eu-3
  natsid drain 137                # by its worker number, where names are not unique
  natsid drain eu-3 --undo`,
		values: map[string]string{
			"worker": "Its name or its worker number, as `natsid workers` lists them.",
			"undo":   "Let the worker take requests again.",
		},
	}
}

// drainWithin is how long a worker may take to follow an order: longer than a request waits.
const drainWithin = 10 * time.Second

// Run implements the command.
func (c *drainCmd) Run(s *session) error {
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(s.ctx, drainWithin)
	defer cancel()
	all := askWorkers(ctx, nc, s.namespace().SegmentPing(), quiet)
	these, err := c.find(all)
	if err != nil {
		return fmt.Errorf("%w (namespace %s)", err, s.namespace())
	}
	var state subjects.WorkerDrained
	for _, w := range these {
		if state, err = c.order(ctx, nc, s.namespace().Drain(w.ID)); err != nil {
			return err
		}
	}
	if err := c.report(s, state); err != nil {
		return err
	}
	c.warn(s, all, these)
	return nil
}

// find returns the worker of that name or number. A worker that reconnects to another NATS server answers twice for a
// moment.
func (c *drainCmd) find(all []micro.Ping) (these []micro.Ping, err error) {
	for _, key := range []string{subjects.MetaInstance, subjects.MetaNumber} {
		for _, w := range all {
			if w.Metadata[key] == c.Worker {
				these = append(these, w)
			}
		}
		if len(these) > 0 {
			break
		}
	}
	var numbers []string
	for _, w := range these {
		numbers = append(numbers, cmp.Or(w.Metadata[subjects.MetaNumber], "none"))
	}
	slices.Sort(numbers)
	switch {
	case len(all) == 0:
		return nil, nobodyError{errors.New("no worker answers: check --nats and --namespace")}
	case len(these) == 0:
		return nil, fmt.Errorf("no worker %q answers: `natsid workers` lists those that do", c.Worker)
	case len(slices.Compact(numbers)) > 1 || len(these) > 1 && numbers[0] == "none":
		return nil, fmt.Errorf("%d workers are named %q, with the worker numbers %s: give the number of one",
			len(these), c.Worker, strings.Join(numbers, ", "))
	}
	return these, nil
}

// order repeats the order until the worker has followed it.
func (c *drainCmd) order(ctx context.Context, nc *nats.Conn, subject string) (state subjects.WorkerDrained, err error) {
	body, err := json.Marshal(subjects.WorkerDrain{Undo: c.Undo})
	if err != nil {
		return state, err
	}
	for ; ; time.Sleep(50 * time.Millisecond) {
		once, cancel := context.WithTimeout(ctx, client.DefaultTimeout)
		msg, err := nc.RequestWithContext(once, subject, body)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return state, fmt.Errorf("worker %q takes no orders: it stops, or its user may not subscribe to "+
				"%s; see its log", c.Worker, subject)
		case err != nil:
			return state, c.unfinished(ctx, state, err)
		}
		if e := subjects.ParseError(msg.Header); e != nil {
			return state, e
		}
		if err := json.Unmarshal(msg.Data, &state); err != nil {
			return state, fmt.Errorf("the answer on %s is not that of a worker: %w", subject, err)
		}
		if c.Undo || len(state.Serves) == 0 && state.Open == 0 {
			return state, nil
		}
	}
}

// unfinished returns an error with the worker's progress, if it has the order.
func (c *drainCmd) unfinished(ctx context.Context, s subjects.WorkerDrained, err error) error {
	switch {
	case s.Instance == "" && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("worker %q does not answer; look with `natsid workers` whether it is drained", c.Worker)
	case s.Instance == "" || ctx.Err() == nil:
		return fmt.Errorf("worker %q: %w", c.Worker, err)
	}
	return fmt.Errorf("worker %q has the order, and has not followed it after %v: requests for %s still reach it, "+
		"%s are open; see its log", c.Worker, drainWithin, cmp.Or(strings.Join(s.Serves, ", "), "nothing"),
		numberOf(int(s.Open), "request"))
}

func (c *drainCmd) report(s *session, state subjects.WorkerDrained) error {
	who := state.Instance
	if state.Number != nil {
		who = fmt.Sprintf("%s, worker number %d", who, *state.Number)
	}
	says := "drained; every request that it had taken is answered"
	if c.Undo {
		says = "takes requests again, as far as `natsid workers` shows it ready"
	}
	return s.print(state, func(out io.Writer) { fmt.Fprintf(out, "%s: %s\n", who, says) })
}

// warn prints the modes for which no other worker is ready.
func (c *drainCmd) warn(s *session, all, these []micro.Ping) {
	if c.Undo {
		return
	}
	for _, mode := range []string{"segment", "snowflake"} {
		if !slices.ContainsFunc(all, func(w micro.Ping) bool {
			return w.Metadata[mode] == subjects.Ready && !slices.ContainsFunc(these, func(t micro.Ping) bool {
				return t.ID == w.ID
			})
		}) {
			fmt.Fprintf(s.stderr, "No other worker is ready for %s: callers of it get \"no responders\".\n", mode)
		}
	}
}
