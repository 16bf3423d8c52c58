// Package snowflake makes 64-bit IDs out of a time, a worker number and a
// sequence, without asking anyone: a generator issues within a window of time
// that its keeper has won for its worker number, and refuses outside it.
//
// The default layout is Leaf's:
//
//	 63 62                                        22 21       12 11         0
//	┌──┬────────────────────────────────────────────┬───────────┬────────────┐
//	│ 0│ ticks since the epoch                   41 │ machine 10│ sequence 12│
//	└──┴────────────────────────────────────────────┴───────────┴────────────┘
//
// Other layouts may leave high bits zero, and have site and business bits:
//
//	 63    59 58                                20 19    18 17       11 10         7 6          0
//	┌────────┬────────────────────────────────────┬────────┬───────────┬────────────┬────────────┐
//	│ 0      │ ticks since the epoch           39 │ site 2 │ machine 7 │ business 4 │ sequence 7 │
//	└────────┴────────────────────────────────────┴────────┴───────────┴────────────┴────────────┘
//
// Each site numbers its own machines. The worker number, under which IDs are
// issued, is site and machine together: site<<(machine bits) | machine.
package snowflake

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Layout says how the 63 bits of an ID are split and what a tick means. It
// is a plain value: two deployments whose layouts differ in any field must
// not share worker numbers. The zero value is not valid.
type Layout struct {
	// Time, Site, Worker, Business and Sequence are widths in bits, from the
	// high end of the ID down; Worker is that of the machine within its site.
	// Their sum is at most 63, the bits above are zero. Site and Business may
	// be 0, no other; Site and Worker are at most 31 together.
	Time, Site, Worker, Business, Sequence int
	// Epoch is the first millisecond of tick 0, in Unix ms, not negative.
	Epoch int64
	// Unit is the length of a tick in ms, 1 to 60,000.
	Unit int64
}

// LastYears is how many years before its end a layout [Layout.EndsSoon]:
// time enough to plan the next one.
const LastYears = 5

const maxWorkerBits = 31

// maxEpoch is 3000-01-01 UTC: far enough, and no sum of it overflows.
const maxEpoch = 32503680000000

// Validate returns an error that names every fault of the layout, or nil.
func (l Layout) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(min(l.Time, l.Worker, l.Sequence) >= 1 && min(l.Site, l.Business) >= 0, "time, machine and sequence need at least one bit each")
	// A single width beyond 63 could make the sum overflow.
	check(max(l.Time, l.Site, l.Worker, l.Business, l.Sequence) <= 63 && l.Bits() <= 63, "%d bits, want at most 63", l.Bits())
	check(l.Site+l.Worker <= maxWorkerBits, "%d bits for site and machine together, want at most %d", l.Site+l.Worker, maxWorkerBits)
	check(1 <= l.Unit && l.Unit <= 60_000, "a tick of %d ms, want 1 to 60000", l.Unit)
	check(0 <= l.Epoch && l.Epoch <= maxEpoch, "epoch %d, want Unix milliseconds from 0 to %d (year 3000)", l.Epoch, int64(maxEpoch))
	// The ms of the last tick must not overflow: 2^Time * Unit <= 2^62.
	check(l.Unit < 1 || l.Time < 1 || l.Time > 62 || int64(1)<<l.Time <= (1<<62)/l.Unit,
		"%d bits of %d ms outlast 146 million years: take fewer time bits or shorter ticks", l.Time, l.Unit)
	if len(faults) > 0 {
		return fmt.Errorf("snowflake: layout %s: %w", l, errors.Join(faults...))
	}
	return nil
}

// Bits returns how many bits the fields take; the largest ID is 2^Bits - 1.
func (l Layout) Bits() int { return l.Time + l.Site + l.Worker + l.Business + l.Sequence }

func (l Layout) widths() [5]int {
	return [5]int{l.Time, l.Site, l.Worker, l.Business, l.Sequence}
}

// Workers returns how many worker numbers there are, over all sites; they
// start at 0.
func (l Layout) Workers() int { return 1 << (l.Site + l.Worker) }

// Sites returns how many sites there are; they start at 0. It is 1 where the
// layout has no site bits.
func (l Layout) Sites() int { return 1 << l.Site }

// Numbers returns the worker numbers of a site, which must fit the layout:
// first, and the count-1 after it.
func (l Layout) Numbers(site int) (first, count int) { return site << l.Worker, 1 << l.Worker }

// MaxBusiness returns the highest business; 0 where the layout has none.
func (l Layout) MaxBusiness() int64 { return 1<<l.Business - 1 }

// PerTick returns how many IDs one worker yields in one tick.
func (l Layout) PerTick() int64 { return 1 << l.Sequence }

// Yield returns how many IDs one worker yields in d, at least those of one
// tick; what exceeds an int64 counts as the largest one.
func (l Layout) Yield(d time.Duration) int64 {
	ticks := max(1, d.Milliseconds()/l.Unit)
	if ticks > math.MaxInt64>>l.Sequence {
		return math.MaxInt64
	}
	return ticks << l.Sequence
}

// Ends returns the first instant that the time field cannot express.
func (l Layout) Ends() time.Time { return time.UnixMilli(l.FirstMs(l.maxTick() + 1)).UTC() }

// EndsSoon reports whether the time field has less than [LastYears] left at
// the time now, or has ended.
func (l Layout) EndsSoon(now time.Time) bool { return now.AddDate(LastYears, 0, 0).After(l.Ends()) }

// FirstMs returns the first millisecond of a tick, in Unix ms.
func (l Layout) FirstMs(tick int64) int64 { return l.Epoch + tick*l.Unit }

// TickAt returns the tick that the Unix millisecond ms lies in. Before the
// epoch it is negative.
func (l Layout) TickAt(ms int64) int64 {
	since := ms - l.Epoch
	if since < 0 {
		since -= l.Unit - 1
	}
	return since / l.Unit
}

// TickFrom returns the first tick that begins at or after the Unix
// millisecond ms.
func (l Layout) TickFrom(ms int64) int64 { return l.TickAt(ms + l.Unit - 1) }

func (l Layout) maxTick() int64 { return 1<<l.Time - 1 }

// id puts the parts into one ID; each must fit its field.
func (l Layout) id(tick, worker, business, sequence int64) int64 {
	return ((tick<<(l.Site+l.Worker)|worker)<<l.Business|business)<<l.Sequence | sequence
}

// Parts is a decoded ID.
type Parts struct {
	Time     time.Time // first instant of the tick, UTC
	Tick     int64     // ticks since the epoch
	Worker   int       // the worker number: site and machine together
	Site     int       // 0 where the layout has no site bits
	Machine  int       // within its site
	Business int64
	Sequence int64
}

// Decode splits an ID into its parts. It fails for what is no ID of this
// layout: a negative number, or one with bits above the time field.
func (l Layout) Decode(id int64) (Parts, error) {
	tick := id >> (l.Bits() - l.Time)
	if id < 0 || tick > l.maxTick() {
		return Parts{}, fmt.Errorf("snowflake: %d is no ID of layout %s", id, l)
	}
	worker := int(id >> (l.Business + l.Sequence) & (1<<(l.Site+l.Worker) - 1))
	return Parts{
		Time:     time.UnixMilli(l.FirstMs(tick)).UTC(),
		Tick:     tick,
		Worker:   worker,
		Site:     worker >> l.Worker,
		Machine:  worker & (1<<l.Worker - 1),
		Business: id >> l.Sequence & l.MaxBusiness(),
		Sequence: id & (1<<l.Sequence - 1),
	}, nil
}
