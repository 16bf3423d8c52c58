package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

type workersCmd struct {
	All   bool
	Watch bool
}

func (*workersCmd) help() help {
	return help{
		summary: "List the worker numbers, their owners, and the ends of their windows.",
		detail: `States: live, a worker holds the number; no number, a worker runs without one;
blocked, no worker answers for the number, but its window has not ended; free,
any worker may acquire it. Below the table stands what /readyz says of each
worker that is not ready, and which worker does not answer.

A worker that was killed leaves its number blocked until UNTIL, at most a horizon
away (5 min by default), and resumes it if it is started with the same data. A
number that is blocked for longer was last written by a worker whose clock ran
ahead; REPORTED is what that clock said. Nothing needs to be done about it, since
all others acquire other numbers. OFFSET is a worker's clock minus JetStream's.

Examples:
  natsid workers
  natsid workers --watch`,
		values: map[string]string{
			"all":   "Also list the numbers that are free again.",
			"watch": "List them again each second, until it is interrupted.",
		},
	}
}

// workersWithin is how long the list may take: several round trips, where JetStream is a second away.
const workersWithin = 15 * time.Second

// Run implements the command.
func (c *workersCmd) Run(s *session) error {
	nc, err := s.connect(nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	rows, err := c.look(s, nc)
	switch {
	case rows == nil:
		return err
	case c.Watch:
		return c.watch(s, nc, rows, err)
	}
	return errors.Join(c.show(s, rows), err)
}

// watch shows rows, and refreshes them about every second until the command is interrupted. It shows an error below
// the last table.
func (c *workersCmd) watch(s *session, nc *nats.Conn, rows []workerRow, err error) error {
	for next := time.Tick(time.Second); s.ctx.Err() == nil; rows, err = c.look(s, nc) {
		if rows != nil {
			if err := c.show(s, rows); err != nil {
				return err
			}
		}
		if err != nil {
			fmt.Fprintf(s.stderr, "natsid: %v\n", err)
		}
		select {
		case <-next:
		case <-s.ctx.Done():
		}
	}
	return s.missing()
}

// show prints rows; with --watch below the time, and on a terminal in place of the last table.
func (c *workersCmd) show(s *session, rows []workerRow) error {
	return s.print(rows, func(out io.Writer) {
		if c.Watch {
			if f, ok := s.stdout.(*os.File); ok && isTerminal(f) {
				fmt.Fprint(out, "\x1b[H\x1b[2J") // cursor to the top, clear the screen
			}
			fmt.Fprintf(out, "%s UTC\n", instant(time.Now()))
		}
		printWorkers(out, rows)
	})
}

// look returns the workers, and why some may be missing; nil if none is known.
func (c *workersCmd) look(s *session, nc *nats.Conn) ([]workerRow, error) {
	ctx, cancel := context.WithTimeout(s.ctx, workersWithin)
	defer cancel()
	list := &workerList{all: c.All, answers: askWorkers(ctx, nc, s.namespace().SegmentPing(), quiet)}
	err := list.read(ctx, s, nc)
	if err != nil && len(list.answers) == 0 {
		return nil, err
	}
	rows := list.rows()
	if slices.ContainsFunc(rows, func(r workerRow) bool { return r.Silent }) { // or slow
		list.answers = askWorkers(ctx, nc, s.namespace().SegmentPing(), time.Second)
		rows = list.rows()
	}
	if err != nil {
		err = fmt.Errorf("only workers that answer are listed, since the registry cannot be read: %w", err)
	}
	return rows, err
}

// A workerList is the workers by their own answers, which need no JetStream, and by the registry.
type workerList struct {
	all     bool         // free numbers, too
	answers []micro.Ping // with metadata, by the names of the workers
	records map[int]workerid.Record
	beats   map[int]workerid.Heartbeat
	now     int64 // of the registry: this machine's clock may be wrong
}

// quiet is how long after the last answer askWorkers waits for another.
const quiet = 300 * time.Millisecond

// askWorkers returns the workers' answers about themselves. Their number is unknown, so it waits until none has
// arrived for quiet.
func askWorkers(ctx context.Context, nc *nats.Conn, subject string, quiet time.Duration) (answers []micro.Ping) {
	first := time.Second
	if way, err := nc.RTT(); err == nil { // NATS may be far away
		first, quiet = first+way, quiet+way
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.AfterFunc(first, cancel)
	defer end.Stop()
	// Without a connection or a worker there are no answers.
	_ = gather.All(ctx, nc, subject, nil, func(m *nats.Msg) (enough bool) {
		end.Reset(quiet)
		var answer micro.Ping
		if json.Unmarshal(m.Data, &answer) == nil && answer.Metadata[subjects.MetaInstance] != "" {
			answers = append(answers, answer)
		}
		return false
	})
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
	ns := s.namespace()
	if err := checkBuckets(ctx, js, ns); err != nil {
		return err
	}
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

// checkBuckets returns an error if a bucket does not exist. The registry would create the bucket, with settings that
// are not the workers'.
func checkBuckets(ctx context.Context, js jetstream.JetStream, ns subjects.Namespace) error {
	streams := buckets.OnJetStream(js)
	for _, bucket := range []string{ns.HistoryBucket(), ns.WorkerBucket()} {
		_, err := streams.Info(ctx, bucket)
		if errors.Is(err, buckets.ErrNoBucket) {
			return nobodyError{fmt.Errorf(
				"no natsid has run on this NATS in namespace %s; check --nats and --namespace", ns)}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer: its stream has no leader, or JetStream is too far away: %w", err)
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", bucket, err)
		}
	}
	return nil
}

// A workerRow is a worker number, or a worker without one.
type workerRow struct {
	Number   *int      `json:"number"` // null if the worker has none
	Instance string    `json:"instance"`
	State    string    `json:"state"`               // live, no number, blocked or free
	Since    time.Time `json:"since,omitzero"`      // when it acquired the number
	OffsetMs *int64    `json:"offset_ms,omitempty"` // its clock minus that of JetStream
	Reported time.Time `json:"reported,omitzero"`   // the time of its last report, by its clock
	Until    time.Time `json:"until,omitzero"`      // the end of the window
	Silent   bool      `json:"silent,omitempty"`    // it has a heartbeat, and did not answer
	// State of each mode as on /readyz, of workers that answer.
	Segment   string `json:"segment,omitempty"`
	Snowflake string `json:"snowflake,omitempty"`
}

// rows returns the worker numbers in order, and then the workers without one.
func (l *workerList) rows() []workerRow {
	rows := []workerRow{}
	holders := l.holders()
	numbers := slices.Concat(slices.Collect(maps.Keys(l.records)), slices.Collect(maps.Keys(holders)))
	slices.Sort(numbers)
	for _, w := range slices.Compact(numbers) {
		if row := l.row(w, holders[w]); row.State != "free" || l.all {
			rows = append(rows, row)
		}
	}
	for _, a := range l.answers {
		if a.Metadata[subjects.MetaNumber] == "" {
			rows = append(rows, workerRow{State: "no number"}.says(a))
		}
	}
	return rows
}

// holders returns the workers that answer that they hold a number.
func (l *workerList) holders() map[int]*micro.Ping {
	holders := map[int]*micro.Ping{}
	for _, a := range l.answers {
		if w, err := strconv.Atoi(a.Metadata[subjects.MetaNumber]); err == nil {
			holders[w] = &a
		}
	}
	return holders
}

// row returns the row of a number, and its holder's answer; nil if no worker answers that it holds the number.
func (l *workerList) row(w int, holder *micro.Ping) workerRow {
	r, known := l.records[w]
	row := workerRow{Number: &w, Instance: r.Instance, State: "free"}
	if known {
		row.Reported, row.Until = fleetview.Moment(r.Reported), fleetview.Moment(r.Until)
	}
	beat, beats := l.beats[w]
	switch {
	case beats:
		offset := beat.Offset().Milliseconds()
		row.State, row.OffsetMs, row.Silent = "live", &offset, holder == nil
		row.Since, row.Reported = fleetview.Moment(beat.Since), fleetview.Moment(beat.Time)
	case holder != nil:
		row.State = "live"
	case r.Until > l.now:
		row.State = "blocked"
	}
	if holder != nil {
		row = row.says(*holder)
	}
	return row
}

// says adds a worker's own answer to a row.
func (row workerRow) says(a micro.Ping) workerRow {
	row.Instance = a.Metadata[subjects.MetaInstance]
	row.Segment, row.Snowflake = a.Metadata["segment"], a.Metadata["snowflake"]
	return row
}

func printWorkers(out io.Writer, rows []workerRow) {
	fmt.Fprintln(out, "NUMBER\tINSTANCE\tSTATE\tSINCE\tOFFSET\tREPORTED\tUNTIL")
	for _, r := range rows {
		number, offset := "-", "-"
		if r.Number != nil {
			number = strconv.Itoa(*r.Number)
		}
		if r.OffsetMs != nil {
			offset = signed(time.Duration(*r.OffsetMs) * time.Millisecond)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			number, r.Instance, r.State, instant(r.Since), offset, instant(r.Reported), instant(r.Until))
	}
	printTrouble(out, rows)
}

// printTrouble prints the state on /readyz of each worker that is not ready, and the workers that did not answer.
func printTrouble(out io.Writer, rows []workerRow) {
	head := "\n"
	for _, r := range rows {
		if r.Silent {
			fmt.Fprintf(out, "%s%s: no answer, though it has a heartbeat: it was killed, hangs, is cut off, "+
				"or may not reply; see its /readyz and log\n", head, r.Instance)
			head = ""
		}
		for _, mode := range []struct{ name, says string }{{"segment", r.Segment}, {"snowflake", r.Snowflake}} {
			if mode.says != "" && mode.says != subjects.Ready {
				fmt.Fprintf(out, "%s%s, %s: %s\n", head, r.Instance, mode.name, mode.says)
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
