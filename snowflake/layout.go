// Package snowflake composes 64-bit IDs of a time, a worker number and a
// sequence, without any call to another machine. It is a library of its own:
//
//   - A [Layout] describes the bits of an ID; [ParseLayout] reads one, and [Layout.Decode] splits an ID.
//   - A [Generator] issues the IDs of one worker number within a window of time. IDs are unique if its caller
//     guarantees that no other generator has the same number and an overlapping window.
//
// Times are Unix milliseconds in int64 unless a name says otherwise.
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

	"github.com/natsid/natsid/subjects"
)

// A Layout is the split of an ID's 63 bits into fields, and the length of a tick. It is a plain value, and comparable.
// Generators whose layouts differ in any field may issue the same ID under one worker number, so they must not share
// numbers. The zero value is not valid; see [Layout.Validate].
//
// All methods but Validate require a valid layout. All are safe for concurrent use.
type Layout struct {
	// Time, Site, Worker, Business and Sequence are widths in bits, from the high end of the ID down; Worker is the
	// width of the machine number within its site. Their sum is at most 63, and the bits above are zero. Only Site and
	// Business may be 0; Site and Worker are at most 31 together.
	Time, Site, Worker, Business, Sequence int
	// Epoch is the first millisecond of tick 0, in Unix ms, from 0 to the year 3000.
	Epoch int64
	// Unit is the length of a tick in ms, 1 to 60,000.
	Unit int64
}

const maxWorkerBits = 31

// maxEpoch is 3000-01-01 UTC: sums with it do not overflow.
const maxEpoch = 32503680000000

// Validate returns an error that names every fault of the layout, or nil.
func (l Layout) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(min(l.Time, l.Worker, l.Sequence) >= 1 && min(l.Site, l.Business) >= 0,
		"time, machine and sequence need at least one bit each")
	// A single width beyond 63 could make the sum overflow.
	check(max(l.Time, l.Site, l.Worker, l.Business, l.Sequence) <= 63 && l.Bits() <= 63,
		"%d bits, want at most 63", l.Bits())
	check(l.Site+l.Worker <= maxWorkerBits,
		"%d bits for site and machine together, want at most %d", l.Site+l.Worker, maxWorkerBits)
	check(1 <= l.Unit && l.Unit <= 60_000, "a tick of %d ms, want 1 to 60000", l.Unit)
	check(0 <= l.Epoch && l.Epoch <= maxEpoch,
		"epoch %d, want Unix milliseconds from 0 to %d (year 3000)", l.Epoch, int64(maxEpoch))
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

// Workers returns how many worker numbers there are in all sites together; they start at 0.
func (l Layout) Workers() int { return 1 << (l.Site + l.Worker) }

// Sites returns how many sites there are; they start at 0. A layout without site bits has 1.
func (l Layout) Sites() int { return 1 << l.Site }

// Numbers returns the worker numbers of a site, 0 to Sites()-1. They are count numbers from first on.
func (l Layout) Numbers(site int) (first, count int) { return site << l.Worker, 1 << l.Worker }

// MaxBusiness returns the highest business number; 0 in a layout without business bits.
func (l Layout) MaxBusiness() int64 { return 1<<l.Business - 1 }

// PerTick returns how many IDs one worker can issue in one tick.
func (l Layout) PerTick() int64 { return 1 << l.Sequence }

// Yield returns how many IDs one worker can issue in d: those of one tick at least, [math.MaxInt64] at most.
func (l Layout) Yield(d time.Duration) int64 {
	ticks := max(1, d.Milliseconds()/l.Unit)
	if ticks > math.MaxInt64>>l.Sequence {
		return math.MaxInt64
	}
	return ticks << l.Sequence
}

// Ends returns the first instant that the time field cannot express, in UTC.
func (l Layout) Ends() time.Time { return time.UnixMilli(l.FirstMs(l.maxTick() + 1)).UTC() }

// EndsSoon reports whether the time field is full within five years of now: enough to plan the next layout.
func (l Layout) EndsSoon(now time.Time) bool { return now.AddDate(5, 0, 0).After(l.Ends()) }

// FirstMs returns the first millisecond of a tick, in Unix ms.
func (l Layout) FirstMs(tick int64) int64 { return l.Epoch + tick*l.Unit }

// TickAt returns the tick that contains the Unix millisecond ms; it is negative before the epoch.
func (l Layout) TickAt(ms int64) int64 {
	since := ms - l.Epoch
	if since < 0 {
		since -= l.Unit - 1
	}
	return since / l.Unit
}

// TickFrom returns the first tick that begins at or after the Unix millisecond ms.
func (l Layout) TickFrom(ms int64) int64 { return l.TickAt(ms + l.Unit - 1) }

func (l Layout) maxTick() int64 { return 1<<l.Time - 1 }

// id composes an ID of parts that fit their fields.
func (l Layout) id(tick, worker, business, sequence int64) subjects.ID {
	return subjects.ID(((tick<<(l.Site+l.Worker)|worker)<<l.Business|business)<<l.Sequence | sequence)
}

// Parts are the fields of an ID, as [Layout.Decode] returns them.
type Parts struct {
	Time     time.Time // first instant of the tick, UTC
	Tick     int64     // ticks since the epoch
	Worker   int       // worker number: site and machine together
	Site     int       // 0 in a layout without site bits
	Machine  int       // within its site
	Business int64     // 0 in a layout without business bits
	Sequence int64     // within the tick, from 0
}

// Decode splits an ID into its parts. It returns an error for a number that is not an ID of this layout: a negative
// one, or one with bits above the time field.
func (l Layout) Decode(id subjects.ID) (Parts, error) {
	tick := int64(id >> (l.Bits() - l.Time))
	if id < 0 || tick > l.maxTick() {
		return Parts{}, fmt.Errorf("snowflake: %d is not an ID of layout %s", id, l)
	}
	worker := int(id >> (l.Business + l.Sequence) & (1<<(l.Site+l.Worker) - 1))
	return Parts{
		Time:     time.UnixMilli(l.FirstMs(tick)).UTC(),
		Tick:     tick,
		Worker:   worker,
		Site:     worker >> l.Worker,
		Machine:  worker & (1<<l.Worker - 1),
		Business: int64(id>>l.Sequence) & l.MaxBusiness(),
		Sequence: int64(id & (1<<l.Sequence - 1)),
	}, nil
}
