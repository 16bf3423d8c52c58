package snowflake_test

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
	"github.com/natsid/natsid/internal/testkit/steps"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// TestEveryInterleaving runs two goroutines that issue, close and extend through every order of their atomic
// operations, and checks the generator's guarantees after each. It builds this package with package steps in the place
// of sync/atomic and runs itself there.
func TestEveryInterleaving(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the generator anew")
	}
	if !stepped() {
		binary := mutant.Build(t, ".", mutant.Text("generator.go", `"sync/atomic"`,
			`atomic "github.com/natsid/natsid/internal/testkit/steps"`))
		again := exec.CommandContext(t.Context(), binary, "-test.run=^TestEveryInterleaving$", "-test.v")
		out, err := again.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, programs := range interleaved {
		t.Run(name, func(t *testing.T) {
			orders, err := steps.Every(func() ([]func(), func() error) { return newPlay(programs[:]).threads() })
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%d orders", orders)
		})
	}
}

// stepped reports whether the generator is built with package steps.
func stepped() bool {
	orders, _ := steps.Every(func() ([]func(), func() error) {
		g := newPlay(nil).g
		read := func() { g.Until() }
		return []func(){read, read}, func() error { return nil }
	})
	return orders > 1
}

// In all programs ticks have 1 ms and 4 sequences, the window is [10, 14), and an ID may be a tick ahead of the clock.
var interleaved = map[string][2][]call{
	"two issue":                        {{issue(10, 1), issue(11, 2)}, {issue(10, 2), issue(10, 1)}},
	"two issue batches that cross":     {{issue(11, 5)}, {issue(10, 3), issue(12, 5)}},
	"issuing and closing":              {{issue(10, 1), issue(11, 3)}, {issue(10, 2), end()}},
	"closing between two batches":      {{issue(10, 6), issue(12, 2)}, {end(), issue(12, 1)}},
	"two close":                        {{issue(10, 3), end()}, {end(), issue(11, 1)}},
	"issuing at the end and extending": {{issue(13, 3), issue(14, 3)}, {extend(15), issue(14, 1)}},
	"two extend":                       {{extend(15), extend(17)}, {extend(16), issue(15, 2)}},
	"extending and closing":            {{extend(16), issue(14, 2)}, {issue(13, 2), end()}},
	"extending back":                   {{extend(12), issue(12, 2)}, {extend(18), issue(16, 1)}},
}

// A call is one call of a generator's method.
type call func(p *play, thread int) error

// A play is one run of two goroutines with one generator, and their results.
type play struct {
	g        *snowflake.Generator
	programs [][]call
	faults   []error
	issued   map[subjects.ID]bool // positions
	lastTick int64
	latest   int64 // end of the window that any call has asked for
	begun    int64 // the same, by calls that have begun
	free     []int64
	closed   bool
}

func newPlay(programs [][]call) *play {
	l := snowflake.Layout{Time: 40, Worker: 1, Sequence: 2, Unit: 1}
	g, err := snowflake.NewGenerator(l, 1, 10, 14, 0)
	if err != nil {
		panic(err) // cannot happen
	}
	return &play{g: g, programs: programs, issued: make(map[subjects.ID]bool), latest: 14, begun: 14}
}

func (p *play) threads() (threads []func(), check func() error) {
	for i, calls := range p.programs {
		threads = append(threads, func() {
			for _, c := range calls {
				if err := c(p, i); err != nil {
					p.faults = append(p.faults, err)
				}
			}
		})
	}
	return threads, p.check
}

// issue issues n IDs at the time now.
func issue(now int64, n int) call {
	return func(p *play, _ int) error {
		closed, last := p.closed, subjects.ID(-1)
		runs, err := p.g.NextAt(now, n)
		if closed && !errors.Is(err, snowflake.ErrClosed) {
			return fmt.Errorf("after Close, NextAt returns %v", err)
		}
		if err != nil {
			return nil
		}
		count := 0
		for first, end := range runs.All() {
			for id := first; id <= end; id++ {
				if err := p.note(id); err != nil {
					return err
				}
				if id <= last {
					return fmt.Errorf("ID %d after %d", id, last)
				}
				last = id
				count++
			}
		}
		if count != n {
			return fmt.Errorf("%d IDs of %d", count, n)
		}
		return nil
	}
}

// note notes an ID that was issued.
func (p *play) note(id subjects.ID) error {
	parts, err := p.g.Layout().Decode(id)
	if err != nil {
		return err
	}
	if p.issued[id] {
		return fmt.Errorf("ID %d twice", id)
	}
	p.issued[id] = true
	if parts.Tick < 10 || parts.Tick >= p.begun {
		return fmt.Errorf("tick %d outside [10, %d)", parts.Tick, p.begun)
	}
	p.lastTick = max(p.lastTick, parts.Tick)
	return nil
}

// end closes the generator.
func end() call {
	return func(p *play, _ int) error {
		p.free = append(p.free, p.g.Close())
		p.closed = true
		return nil
	}
}

// extend moves the end of the window.
func extend(until int64) call {
	return func(p *play, _ int) error {
		p.begun = max(p.begun, until)
		p.g.Extend(until)
		p.latest = max(p.latest, until)
		if got := p.g.Until(); got < p.latest {
			return fmt.Errorf("the window ends at %d after it was extended to %d", got, p.latest)
		}
		return nil
	}
}

// check checks the invariants at the end.
func (p *play) check() error {
	for _, free := range p.free {
		if free != p.free[0] {
			p.faults = append(p.faults, fmt.Errorf("Close returns %d and %d", p.free[0], free))
		}
		if free <= p.lastTick {
			p.faults = append(p.faults, fmt.Errorf("Close returns %d, but tick %d was issued", free, p.lastTick))
		}
	}
	if got := p.g.Until(); got != p.latest {
		p.faults = append(p.faults, fmt.Errorf("the window ends at %d, want %d", got, p.latest))
	}
	return errors.Join(p.faults...)
}
