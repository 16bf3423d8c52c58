package cli

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/subjects"
)

type benchCmd struct {
	Segment   benchSegmentCmd   `cmd:""`
	Snowflake benchSnowflakeCmd `cmd:""`
}

func (*benchCmd) help() help { return help{summary: "Measure how fast IDs come over this NATS."} }

type benchFlags struct {
	Callers  int           `short:"c" default:"64"`
	Duration time.Duration `short:"d" default:"10s"`
	Merge    bool
}

const benchDetail = `Each call requests one ID, and its caller waits for the ID before it calls again.
In turns with natsid, the callers send bare requests, which this command answers
itself over the same connection: they show how long NATS alone takes.

Latencies are those of calls that succeeded. Ctrl-C ends the measurement with the
figures so far.
`

type benchSegmentCmd struct {
	Tag tagName `arg:""`
	benchFlags
}

func (*benchSegmentCmd) help() help {
	return help{
		summary: "Measure how fast IDs of a tag come.",
		detail: benchDetail + `
Examples:
  natsid bench segment bench
  natsid bench segment bench --merge -c 1000 --json`,
		values: map[string]string{"tag": "The tag. Its IDs are used up, so give one that nobody needs."},
	}
}

func (c *benchSegmentCmd) Run(s *session) error { return c.run(s, string(c.Tag)) }

type benchSnowflakeCmd struct{ benchFlags }

func (*benchSnowflakeCmd) help() help {
	return help{
		summary: "Measure how fast snowflakes come.",
		detail: benchDetail + `
Example:
  natsid bench snowflake -c 1 -d 30s`,
	}
}

func (c *benchSnowflakeCmd) Run(s *session) error { return c.run(s, "") }

const (
	bareTimeout = 2 * time.Second // bounds a request without the client; a worker refuses a request earlier
	benchTurns  = 10              // natsid and bare requests take turns, so that both see the same load of the machine
)

// run measures requests for IDs of a tag, or for snowflakes if tag is "".
func (f *benchFlags) run(s *session, tag string) error {
	if f.Callers < 1 || f.Callers > 1_000_000 || f.Duration < time.Millisecond {
		return usage(errors.New("want 1 to 1000000 --callers, for a --duration of at least 1ms"))
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	handle, err := s.handle(nc, client.Config{}, tag, 0)
	if err != nil {
		return err
	}
	subject := s.namespace().Segment(tag)
	if tag == "" {
		subject = s.namespace().Snowflake()
	}
	next := func(ctx context.Context) error { _, err := handle.Next(ctx); return err }
	ctx, cancel := context.WithTimeout(s.ctx, client.DefaultTimeout)
	defer cancel()
	if err := next(ctx); err != nil { // through the client, whose errors name the remedy
		return err
	}
	own := nc.NewInbox()
	if _, err := nc.Subscribe(own, func(m *nats.Msg) { _ = m.Respond([]byte("1000001")) }); err != nil {
		return err
	}
	bare, ids := &measured{call: bareCall(nc, own)}, &measured{call: bareCall(nc, subject)}
	if f.Merge {
		ids.call = next
	}
	for range benchTurns {
		ids.run(s.ctx, f.Callers, f.Duration/benchTurns)
		bare.run(s.ctx, f.Callers, f.Duration/benchTurns)
	}
	if missing := s.missing(); missing != nil {
		return missing
	}
	last := ids.failed.Load()
	if last != nil && ids.calls.Load() == 0 {
		return fmt.Errorf("no call got an ID: %w", *last)
	}
	report := benchJSON{ids.figures(), bare.figures()}
	return s.print(report, func(out *sheet) {
		out.head("REQUEST\tIDS/S\tP50\tP99\tP99.9\tERRORS")
		for i, f := range []benchFigures{report.benchFigures, report.Bare} {
			of := []string{"natsid", "bare"}[i]
			out.row(of, fleetview.PerSecond(f.PerSecond), short(f.P50), short(f.P99), short(f.P999), f.Errors)
		}
		if last != nil {
			out.line("the last error: %s", (*last).Error())
		}
	})
}

// bareCall returns a function that requests one ID over nc, without package client.
func bareCall(nc *nats.Conn, subject string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, bareTimeout)
		defer cancel()
		reply, err := nc.RequestWithContext(ctx, subject, nil)
		if err != nil {
			return err
		}
		if refused := subjects.ParseError(reply.Header); refused != nil {
			return refused
		}
		if runs, err := subjects.ParseRuns(reply.Data); err != nil || len(runs) != 1 || runs[0].Len() != 1 {
			return fmt.Errorf("%w: %.20q is not one ID", client.ErrNotNatsid, reply.Data)
		}
		return nil
	}
}

// A measured holds the results of all calls of one kind: requests to natsid, or bare requests.
type measured struct {
	call    func(context.Context) error
	took    time.Duration
	calls   atomic.Int64          // number of calls that succeeded
	latency [59 << 5]atomic.Int64 // how many of them took how long: one count for each bucket of bucketOf
	errors  atomic.Int64
	failed  atomic.Pointer[error] // the last error
}

// run lets callers make calls for the duration length, or until ctx ends, and waits for the calls under way.
func (m *measured) run(ctx context.Context, callers int, length time.Duration) {
	began := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(began) < length {
				from := time.Now()
				if err := m.call(ctx); err == nil {
					m.calls.Add(1)
					m.latency[bucketOf(time.Since(from))].Add(1)
				} else if ctx.Err() == nil {
					m.errors.Add(1)
					m.failed.Store(&err)
					time.Sleep(10 * time.Millisecond) // refusals come at once: do not flood the workers
				}
			}
		})
	}
	all.Wait()
	m.took += time.Since(began)
}

// bucketOf returns the index in [measured.latency] under which a duration is counted. Each power of two of
// nanoseconds has 32 such buckets, so a percentile is wrong by at most 1.6 %.
func bucketOf(d time.Duration) int {
	v := uint64(max(0, d))
	shift := max(0, bits.Len64(v)-6)
	return shift<<5 + int(v>>shift)
}

// quantile returns the time within which a fraction of the calls ended: half of them for 0.5. 0 means no calls.
func (m *measured) quantile(part float64) time.Duration {
	rank := int64(part * float64(m.calls.Load()))
	for b := range m.latency {
		if rank -= m.latency[b].Load(); rank < 0 {
			shift := max(0, b>>5-1)
			return time.Duration(uint64(b-shift<<5)<<shift + (1<<shift)/2)
		}
	}
	return 0
}

// benchJSON has the figures of natsid and, in Bare, those of requests that this command answers itself.
type benchJSON struct {
	benchFigures
	Bare benchFigures `json:"bare"`
}

type benchFigures struct {
	PerSecond float64 `json:"per_second"` // calls that succeeded
	P50       float64 `json:"p50"`        // in seconds, like P99 and P999
	P99       float64 `json:"p99"`
	P999      float64 `json:"p99_9"`
	Calls     int64   `json:"calls"`
	Errors    int64   `json:"errors"`
}

func (m *measured) figures() benchFigures {
	n := m.calls.Load()
	return benchFigures{
		float64(n) / m.took.Seconds(), m.quantile(0.5).Seconds(), m.quantile(0.99).Seconds(),
		m.quantile(0.999).Seconds(), n, m.errors.Load(),
	}
}

// short returns a number of seconds as a duration with three digits, in ASCII.
func short(seconds float64) string {
	d, unit := time.Duration(seconds*float64(time.Second)), time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return strings.Replace(d.Round(unit).String(), "µ", "u", 1)
}
