package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

type workersCmd struct {
	All bool
}

func (*workersCmd) help() help {
	return help{
		summary: "List the worker numbers, their owners, and the ends of their windows.",
		detail: `States: live, a worker holds the number; drained, it holds the number, and takes
no requests until "natsid drain --undo"; no number, a worker runs without one;
blocked, no worker answers for the number, but its window has not ended; free,
any worker may acquire it. Below the table stands what /readyz says of each
worker that is not ready.

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
	list := &workerList{all: c.All, answers: askWorkers(ctx, nc, s.namespace().SegmentPing())}
	err = list.read(ctx, s, nc)
	if err != nil && len(list.answers) == 0 {
		return err
	}
	if failed := list.print(s.stdout); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("only workers that answer are listed, since the registry cannot be read: %w", err)
	}
	return nil
}

// A workerList is what is known of workers: by their own answers, which need no
// JetStream, and by the registry.
type workerList struct {
	all     bool         // free numbers, too
	answers []micro.Ping // with metadata, by the names of the workers
	records map[int]workerid.Record
	beats   map[int]workerid.Heartbeat
	now     int64 // of the registry: this machine's clock may be wrong
}

// askWorkers returns what workers say of themselves. Their number is not known, so
// it waits until it is quiet. Workers of before say nothing.
func askWorkers(ctx context.Context, nc *nats.Conn, subject string) (answers []micro.Ping) {
	const first, quiet = time.Second, 300 * time.Millisecond
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails only on a connection that is gone
	if nc.PublishRequest(subject, sub.Subject, nil) != nil {
		return nil
	}
	for wait := first; ctx.Err() == nil; wait = quiet {
		msg, err := sub.NextMsg(wait)
		if err != nil {
			break
		}
		var answer micro.Ping
		if json.Unmarshal(msg.Data, &answer) == nil && answer.Metadata[subjects.MetaInstance] != "" {
			answers = append(answers, answer)
		}
	}
	slices.SortFunc(answers, func(a, b micro.Ping) int {
		return cmp.Compare(a.Metadata[subjects.MetaInstance], b.Metadata[subjects.MetaInstance])
	})
	return answers
}

// read reads the registry, as far as it can.
func (l *workerList) read(ctx context.Context, s *session, nc *nats.Conn) error {
	js, err := s.jetStream(nc)
	if err != nil {
		return err
	}
	if err := s.checkBuckets(ctx, js); err != nil {
		return err
	}
	ns := s.namespace()
	registry := kvregistry.New(js, kvregistry.Config{
		History: ns.HistoryBucket(), Workers: ns.WorkerBucket(),
		LeaseTTL: app.Default().LeaseTTL, WorkerSubject: ns.Worker,
	})
	if l.now, err = registry.Time(ctx); err != nil {
		return err
	}
	if l.records, err = registry.Records(ctx); err != nil {
		return err
	}
	l.beats, err = registry.Heartbeats(ctx)
	return err
}

// checkBuckets returns an error if a bucket does not exist. The registry would
// create it, with settings that are not the workers'.
func (s *session) checkBuckets(ctx context.Context, js jetstream.JetStream) error {
	streams := buckets.OnJetStream(js)
	for _, bucket := range []string{s.namespace().HistoryBucket(), s.namespace().WorkerBucket()} {
		_, err := streams.Info(ctx, bucket)
		if errors.Is(err, buckets.ErrNoBucket) {
			return fmt.Errorf("no natsid has run on this NATS in namespace %s; check --nats and --namespace",
				s.namespace())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *workerList) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NUMBER\tINSTANCE\tSTATE\tSINCE\tOFFSET\tREPORTED\tUNTIL")
	holders := l.holders()
	numbers := slices.Concat(slices.Collect(maps.Keys(l.records)), slices.Collect(maps.Keys(holders)))
	slices.Sort(numbers)
	for _, w := range slices.Compact(numbers) {
		l.printNumber(table, w, holders[w])
	}
	for _, a := range l.answers {
		if a.Metadata[subjects.MetaNumber] == "" {
			fmt.Fprintf(table, "-\t%s\t%s\t-\t-\t-\t-\n", a.Metadata[subjects.MetaInstance], stateOf(a, "no number"))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	l.printTrouble(out)
	return nil
}

// stateOf returns the state of a worker that answers: usual, unless it is drained.
func stateOf(a micro.Ping, usual string) string {
	if a.Metadata[subjects.MetaDrained] != "" {
		return "drained"
	}
	return usual
}

// holders returns the workers that say that they hold a number.
func (l *workerList) holders() map[int]micro.Ping {
	holders := map[int]micro.Ping{}
	for _, a := range l.answers {
		if w, err := strconv.Atoi(a.Metadata[subjects.MetaNumber]); err == nil {
			holders[w] = a
		}
	}
	return holders
}

// printNumber prints the row of a number, which holder says that it holds; the zero
// value if nobody says so.
func (l *workerList) printNumber(table io.Writer, w int, holder micro.Ping) {
	r, known := l.records[w]
	beat, beats := l.beats[w]
	state, since, offset, reported, until := "free", "-", "-", moment(r.Reported), moment(r.Until)
	if !known {
		reported, until = "-", "-"
	}
	name := holder.Metadata[subjects.MetaInstance]
	switch {
	case beats:
		state, since = stateOf(holder, "live"), moment(beat.Since)
		offset, reported = signed(beat.Offset()), moment(beat.Time)
	case name != "":
		state = stateOf(holder, "live")
	case r.Until > l.now:
		state = "blocked"
	case !l.all:
		return
	}
	fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
		w, cmp.Or(name, r.Instance), state, since, offset, reported, until)
}

// printTrouble prints what /readyz says of each worker that is not ready.
func (l *workerList) printTrouble(out io.Writer) {
	head := "\n"
	for _, a := range l.answers {
		for _, mode := range []string{"segment", "snowflake"} {
			if says := a.Metadata[mode]; says != "" && says != subjects.Ready {
				fmt.Fprintf(out, "%s%s, %s: %s\n", head, a.Metadata[subjects.MetaInstance], mode, says)
				head = ""
			}
		}
	}
}

// signed returns a clock's offset with its sign.
func signed(d time.Duration) string {
	if d.Abs() < time.Second {
		return fmt.Sprintf("%+dms", d.Milliseconds())
	}
	return fmt.Sprintf("%+.1fs", d.Seconds())
}

func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateTime) }
