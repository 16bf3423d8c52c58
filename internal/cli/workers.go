package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/workerid"
)

type workersCmd struct {
	All bool
}

func (*workersCmd) help() help {
	return help{
		summary: "List the worker numbers, their owners, and the ends of their windows.",
		detail: `States: live, a worker sends heartbeats under the number; blocked, none does,
but the window has not ended; free, any worker may acquire it.

A worker that was killed leaves its number blocked until UNTIL, at most a horizon
away (5 min by default), and resumes it if it is started with the same data. A
number that is blocked for longer was last written by a worker whose clock ran
ahead; REPORTED is what that clock said. Nothing needs to be done about it, since
all others acquire other numbers. OFFSET is a worker's clock minus JetStream's.

Example:
  natsid workers`,
		values: map[string]string{"all": "Also list the numbers that are free again."},
	}
}

// Run implements the command.
func (c *workersCmd) Run(s *session) error {
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	js, err := s.jetStream(nc)
	if err != nil {
		return err
	}
	if err := s.checkBuckets(ctx, js); err != nil {
		return err
	}
	return c.list(ctx, s, js)
}

func (c *workersCmd) list(ctx context.Context, s *session, js jetstream.JetStream) error {
	ns := s.namespace()
	registry := kvregistry.New(js, kvregistry.Config{
		History: ns.HistoryBucket(), Workers: ns.WorkerBucket(),
		LeaseTTL: app.Default().LeaseTTL, WorkerSubject: ns.Worker,
	})
	records, err := registry.Records(ctx)
	if err != nil {
		return err
	}
	beats, err := registry.Heartbeats(ctx)
	if err != nil {
		return err
	}
	now, err := registry.Time(ctx) // this machine's clock may be wrong
	if err != nil {
		return err
	}
	return c.print(s.stdout, records, beats, now)
}

// checkBuckets returns an error if a bucket does not exist. The registry would
// create it, with settings that are not the workers'.
func (s *session) checkBuckets(ctx context.Context, js jetstream.JetStream) error {
	for _, bucket := range []string{s.namespace().HistoryBucket(), s.namespace().WorkerBucket()} {
		_, err := js.KeyValue(ctx, bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("no natsid has run on this NATS in namespace %s; check --nats and --namespace",
				s.namespace())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *workersCmd) print(
	out io.Writer, records map[int]workerid.Record, beats map[int]workerid.Heartbeat, now int64,
) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NUMBER\tINSTANCE\tSTATE\tSINCE\tOFFSET\tREPORTED\tUNTIL")
	for _, w := range slices.Sorted(maps.Keys(records)) {
		r := records[w]
		beat, live := beats[w]
		state, since, offset, reported := "free", "-", "-", r.Reported
		switch {
		case live:
			state, since, offset, reported = "live", moment(beat.Since), signed(beat.Offset()), beat.Time
		case r.Until > now:
			state = "blocked"
		case !c.All:
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			w, r.Instance, state, since, offset, moment(reported), moment(r.Until))
	}
	return table.Flush()
}

// signed returns a clock's offset with its sign.
func signed(d time.Duration) string {
	if d.Abs() < time.Second {
		return fmt.Sprintf("%+dms", d.Milliseconds())
	}
	return fmt.Sprintf("%+.1fs", d.Seconds())
}

func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateTime) }
