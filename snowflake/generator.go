package snowflake

import (
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/subjects"
)

// DefaultMaxAhead is how far the time of an ID may be ahead of the clock by default: as far as Leaf lets a clock go
// back.
const DefaultMaxAhead = 5 * time.Millisecond

// A Generator issues the IDs of one worker number, for one owner of the number.
//
// Law: a tick t goes into an ID only if
//
//	from <= first ms of t < until
//
// and no (tick, sequence) is issued twice, because all callers take positions from one counter that only grows. The
// caller of NewGenerator and Extend guarantees that the windows [from, until) of one worker number never overlap.
//
// The worker number and the window's begin never change, its end only grows, and Close is final. All methods are
// safe for concurrent use, lock-free, and free of allocation when they succeed.
//
// # Which position is next
//
// A position is tick<<Sequence + sequence, so counting past the end of a tick leads to sequence 0 of the next. With cur
// the next position, T the tick of the clock and s sequence bits, n IDs start at
//
//	late  = (T+1)<<s - n                               the last start that does not reach ahead of the clock
//	start = max(cur, late - 2^s + 1) + random(2^s)     if cur <= late, and no random start was made in T before
//	start = cur                                        otherwise; then cur = start + n
//
// The reasons:
//
//   - Random start: at one ID a tick or fewer, sequences from 0 on would put all IDs into one shard of id mod 2^k. So
//     once per tick of the clock the sequence skips to a random place, without wrapping: IDs still rise. This holds
//     also for a tick that a batch of the previous tick ran into; otherwise some low sequences would be twice as
//     frequent as others at several IDs a tick. Thus id mod 2^k is evenly distributed for 2^k up to 2^Sequence, and
//     slightly less evenly close to the limit.
//   - Full rate: a tick that is entered because the previous one ran out begins at 0, and no random start is made while
//     IDs are ahead of the clock. So no sequence is skipped at the limit. Where MaxAhead is one tick, a tick that a
//     batch ran into gets no random start, since a request would wait for a tick because of it.
//   - Reach back: a batch ends in the clock's tick, and may start in earlier ticks of the window that have passed
//     unused. So it does not run ahead of the clock.
type Generator struct {
	layout Layout
	worker int64
	from   int64                     // Unix ms
	first  int64                     // position to issue first
	ahead  int64                     // ticks that an ID may run ahead of the clock
	until  atomic.Int64              // Unix ms; only grows
	random func(tick, n int64) int64 // start of the sequence in a tick, in [0, n); tests replace it

	// state is the next position to issue, with the closed bit on top. Close and NextAt change the same word, so
	// nothing is issued after Close has read the last position.
	state atomic.Uint64 //mutant:position

	// fresh is the first tick that may still get a random start. Uniqueness does not depend on it: with a random
	// start too many some sequences are skipped, with one too few the last bits of IDs are less even.
	fresh atomic.Int64
}

const closedBit = 1 << 63

// NewGenerator returns a generator for a worker number of the layout, 0 to Workers()-1. It issues ticks whose first
// ms is in the window [from, until), both in Unix ms. The times of its IDs are ahead of the clock by at most
// maxAhead, or one tick if that is more. An invalid layout or number is an error.
func NewGenerator(l Layout, worker int, from, until int64, maxAhead time.Duration) (*Generator, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if worker < 0 || worker >= l.Workers() {
		return nil, fmt.Errorf("snowflake: worker number %d, want 0..%d", worker, l.Workers()-1)
	}
	g := &Generator{layout: l, worker: int64(worker), from: from, ahead: max(1, maxAhead.Milliseconds()/l.Unit)}
	seed := mix(uint64(worker)) + uint64(from)
	g.random = func(tick, n int64) int64 { return int64(mix(seed+uint64(tick)) & uint64(n-1)) }
	g.until.Store(until)
	// A window begins at the epoch at the earliest, and at the end of the time field at the latest.
	first := min(max(l.TickFrom(from), 0), l.maxTick()+1) //mutant:first-tick
	g.first = first << l.Sequence
	g.state.Store(uint64(g.first))
	return g, nil
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood 2014): consecutive inputs give outputs that look random.
// It has no state: goroutines share nothing, and a failure can be replayed with the same sequences.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Layout returns the layout of the IDs.
func (g *Generator) Layout() Layout { return g.layout }

// Worker returns the worker number.
func (g *Generator) Worker() int { return int(g.worker) }

// From returns the beginning of the window, in Unix ms.
func (g *Generator) From() int64 { return g.from }

// Until returns the end of the window, in Unix ms.
func (g *Generator) Until() int64 { return g.until.Load() }

// Extend moves the end of the window to until, in Unix ms. An earlier time than the present end changes nothing.
func (g *Generator) Extend(until int64) {
	for { //mutant:extend
		old := g.until.Load()
		if until <= old || g.until.CompareAndSwap(old, until) {
			return
		}
	}
}

// Close ends issuing for good. It returns a time above all ticks issued, in Unix ms: the end of the last tick, or
// the begin of the window if that is later or nothing was issued. Closing again returns the same.
func (g *Generator) Close() (free int64) {
	next := int64(g.state.Or(closedBit) &^ closedBit) //mutant:last-tick
	if next == g.first {
		return g.from
	}
	return max(g.from, g.layout.FirstMs((next+g.layout.PerTick()-1)>>g.layout.Sequence))
}

// NextAt issues n IDs, n at least 1, at the time now in Unix ms: all of them or none. They rise, and are greater than
// all that were issued before.
//
// The error is [ErrClosed], [ErrWindow], [ErrEpoch], [ErrTimeEnds] or a [*BehindError]. After a [*BehindError] a caller
// should read the clock again and retry if it has changed: a reading from before the goroutine was descheduled looks
// like a clock that was set back.
func (g *Generator) NextAt(now int64, n int) (Runs, error) {
	for { //mutant:issue
		state := g.state.Load()
		start, fresh, err := g.startAt(now, int64(n), state)
		if err != nil {
			return Runs{}, err
		}
		if g.state.CompareAndSwap(state, uint64(start+int64(n))) {
			if fresh > 0 {
				g.fresh.Store(fresh)
			}
			return Runs{layout: &g.layout, worker: g.worker, start: start, n: int64(n)}, nil
		}
	}
}

// CheckAt returns the error that [Generator.NextAt] would return for one ID at the time now, without issuing it.
func (g *Generator) CheckAt(now int64) error {
	_, _, err := g.startAt(now, 1, g.state.Load())
	return err
}

// startAt returns the position (tick and sequence) at which n IDs start at the time now. If this is a random start,
// fresh is the next tick that may get one; otherwise it is 0.
func (g *Generator) startAt(now, n int64, state uint64) (start, fresh int64, err error) {
	if state&closedBit != 0 {
		return 0, 0, ErrClosed
	}
	l := &g.layout
	tick := l.TickAt(now)
	if tick < 0 {
		return 0, 0, ErrEpoch
	}
	if tick > l.maxTick() { // shifted, it could overflow
		return 0, 0, ErrTimeEnds
	}
	start = int64(state)
	// A random start may make the IDs reach into the next tick. If MaxAhead is one tick, there is no random start in a
	// tick that earlier IDs have reached into.
	if start+n <= (tick+min(g.ahead-1, 1))<<l.Sequence && g.fresh.Load() <= tick {
		per := l.PerTick()
		start = max(start, (tick+1)<<l.Sequence-n-per+1) + g.random(tick, per)
		fresh = tick + 1
	}
	last := (start + n - 1) >> l.Sequence
	if last > l.maxTick() {
		return 0, 0, ErrTimeEnds
	}
	// Check this before the end of the window, which may be moved while the caller waits for the clock.
	if lead := last - tick; lead > g.ahead {
		ms := min((lead-g.ahead)*l.Unit, math.MaxInt64/int64(time.Millisecond))
		// A burst may end up to g.ahead+1 ticks in front of the clock. If the clock is then set back by up to
		// g.ahead ticks, the lead is 2*g.ahead+1. Up to that the caller waits, and SetBack stays false.
		issued := int64(state)>>l.Sequence - tick
		return 0, 0, &BehindError{
			By: time.Duration(ms) * time.Millisecond, SetBack: int64(state) != g.first && issued > 2*g.ahead+1,
		}
	}
	if l.FirstMs(last) >= g.until.Load() { //mutant:until
		return 0, 0, ErrWindow
	}
	return start, fresh, nil
}

// Runs are the IDs of one batch: a small value that can be copied. The zero value is empty. All methods are safe for
// concurrent use.
type Runs struct {
	layout   *Layout // nil if there are no IDs
	worker   int64
	business int64
	start    int64 // position (tick and sequence) of the first ID
	n        int64
}

// Len returns the number of IDs.
func (r Runs) Len() int { return int(r.n) }

// First returns the first ID. There must be one.
func (r Runs) First() subjects.ID {
	l := r.layout
	return l.id(r.start>>l.Sequence, r.worker, r.business, r.start&(l.PerTick()-1))
}

// Of returns the same IDs with a business number, 0 to MaxBusiness(), in their business field. Businesses share one
// sequence, so these IDs are unique too.
func (r Runs) Of(business int64) Runs {
	r.business = business
	return r
}

// All yields the IDs in rising order as runs of consecutive IDs, first and last included. A run lies within one tick.
func (r Runs) All() iter.Seq2[subjects.ID, subjects.ID] {
	return func(yield func(first, last subjects.ID) bool) {
		for at, end := r.start, r.start+r.n; at < end; {
			tick := at >> r.layout.Sequence
			stop := min(end, (tick+1)<<r.layout.Sequence)
			first := r.layout.id(tick, r.worker, r.business, at-tick<<r.layout.Sequence)
			if !yield(first, first+subjects.ID(stop-at-1)) {
				return
			}
			at = stop
		}
	}
}
