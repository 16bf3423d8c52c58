package cli

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"time"
)

type benchCmd struct {
	Segment   benchSegmentCmd   `cmd:""`
	Snowflake benchSnowflakeCmd `cmd:""`
}

func (*benchCmd) help() help { return help{summary: "Measure how fast IDs come over this NATS."} }

// benchFlags are the flags of both commands.
type benchFlags struct {
	Callers  int           `short:"c" default:"64"`
	Duration time.Duration `short:"d" default:"10s"`
	Batch    int           `default:"1"`
	Merge    bool          `xor:"mode"`
	Prefetch int           `xor:"mode" placeholder:"N"`
	Rate     float64       `placeholder:"R"`
}

const benchDetail = `A caller waits for its answer before it calls again, so --callers is how many calls
are under way. All share one connection, as in one program: start the command
several times for several programs. Each call is a request, unless --merge or
--prefetch call through the Go client.

In turns with natsid, the callers request a bare echo: a subscription of this
command on another connection. It shows what NATS alone takes here.

Latencies are those of calls that got IDs. With --rate a call is timed from when
it fell due, however late a caller was free to make it. Without, a caller whose
call failed waits for 10 ms. Progress is on standard error; Ctrl-C ends the
measurement with the figures so far.
`

var benchValues = map[string]string{
	"callers":  "How many callers, each with one call under way.",
	"duration": "How long natsid is measured. The echo takes as long again.",
	"batch":    "How many IDs a call requests.",
	"merge":    "Call through the Go client: calls for one ID share requests, and faults are retried.",
	"prefetch": "Call through the Go client, which holds N IDs ahead of need.",
	"rate":     "How many calls fall due per second, of all callers together.",
}

type benchSegmentCmd struct {
	Tag tagName `arg:""`
	benchFlags
	MaxIDs int64 `name:"max-ids" default:"10000000"`
}

func (*benchSegmentCmd) help() help {
	values := maps.Clone(benchValues)
	values["tag"] = "The tag. Its IDs are used up, so give one that nobody needs."
	values["max-ids"] = "How many IDs the calls use up at most. The measurement ends before."
	return help{
		summary: "Measure how fast IDs of a tag come.",
		detail: benchDetail + `
Examples:
  natsid bench segment bench
  natsid bench segment bench -c 1 -d 30s
  natsid bench segment bench --rate 5000
  natsid bench segment bench --merge -c 1000 --json`,
		values: values,
	}
}

// Run implements the command.
func (c *benchSegmentCmd) Run(s *session) error {
	tag := string(c.Tag)
	return c.run(s, target{tag: tag, subject: s.namespace().Segment(tag), maxIDs: c.MaxIDs})
}

type benchSnowflakeCmd struct{ benchFlags }

func (*benchSnowflakeCmd) help() help {
	return help{
		summary: "Measure how fast snowflakes come.",
		detail: benchDetail + `
Examples:
  natsid bench snowflake
  natsid bench snowflake --batch 100 -d 30s`,
		values: benchValues,
	}
}

// Run implements the command.
func (c *benchSnowflakeCmd) Run(s *session) error {
	return c.run(s, target{subject: s.namespace().Snowflake(), maxIDs: math.MaxInt64})
}

// A target is the source of the requested IDs.
type target struct {
	tag     string // "": snowflakes
	subject string
	maxIDs  int64
}

func (f *benchFlags) run(s *session, of target) error {
	if err := f.check(of); err != nil {
		return usage(err)
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	b := newBench(*f, of, s, nc)
	defer b.client.Close()
	if err := b.first(s.ctx); err != nil {
		return err
	}
	b.measure(s.ctx)
	b.client.Close() // ends requests under way, so that their IDs count as used up
	return b.print()
}

// check returns the fault of the flags.
func (f *benchFlags) check(of target) error {
	first := int64(f.Batch) + f.ahead()
	switch {
	case f.Callers < 1 || f.Callers > 1_000_000:
		return fmt.Errorf("--callers %d: want 1 to 1000000", f.Callers)
	case f.Duration < time.Millisecond:
		return fmt.Errorf("--duration %v: want at least 1ms", f.Duration)
	case f.Batch < 1:
		return fmt.Errorf("--batch %d: want at least 1", f.Batch)
	case !(f.Rate >= 0 && f.Rate <= 1e9): // such as NaN
		return fmt.Errorf("--rate %v: want more than 0, up to 1e9", f.Rate)
	case f.Prefetch < 0:
		return fmt.Errorf("--prefetch %d: want at least 1", f.Prefetch)
	case f.Prefetch > 0 && f.Batch > 1:
		return errors.New("--batch and --prefetch exclude each other: prefetched IDs are given one by one")
	case of.maxIDs <= first:
		return fmt.Errorf("--max-ids %d: want more than %d, which the first call uses up", of.maxIDs, first)
	}
	return nil
}

// bare reports whether each call is a request, without the client.
func (f *benchFlags) bare() bool { return !f.Merge && f.Prefetch == 0 }

// ahead returns how many IDs the client may hold or request ahead of its calls.
func (f *benchFlags) ahead() int64 { return 2 * int64(f.Prefetch) }
