// Package snowflake makes 64-bit IDs out of a time, a worker number and a
// sequence, without asking anyone: a generator issues within a window of time
// that its keeper has won for its worker number, and refuses outside it.
//
// The default layout is Leaf's:
//
//	 63 62                                        22 21       12 11         0
//	┌──┬────────────────────────────────────────────┬───────────┬────────────┐
//	│ 0│ ticks since the epoch                   41 │ worker 10 │ sequence 12│
//	└──┴────────────────────────────────────────────┴───────────┴────────────┘
//
// Business bits, where a layout has them, stand between worker and sequence.
package snowflake

import (
	"errors"
	"fmt"
	"time"
)

// LeafEpoch is Leaf's and Twitter's epoch, 2010-11-04 01:42:54.657 UTC, in
// Unix milliseconds.
const LeafEpoch = 1288834974657

// Leaf is the default layout: ticks of 1 ms, 1024 workers, 4096 IDs a tick.
var Leaf = Layout{Time: 41, Worker: 10, Sequence: 12, Epoch: LeafEpoch, Unit: 1}

// A Layout says how the 63 bits of an ID are split and what a tick means. It
// is a plain value: two deployments whose layouts differ in any field must
// not share worker numbers. The zero value is not valid.
type Layout struct {
	// Time, Worker, Business and Sequence are widths in bits, from the high end
	// of the ID down. Their sum is at most 63; only Business may be 0.
	Time, Worker, Business, Sequence int
	// Epoch is the first millisecond of tick 0, in Unix ms, not negative.
	Epoch int64
	// Unit is the length of a tick in ms, 1 to 60,000.
	Unit int64
}

// Validate returns an error that names every fault of the layout, or nil.
func (l Layout) Validate() error {
	var faults []error
	if l.Time < 1 || l.Worker < 1 || l.Business < 0 || l.Sequence < 1 {
		faults = append(faults, errors.New("time, worker and sequence need at least one bit each"))
	}
	if sum := l.Time + l.Worker + l.Business + l.Sequence; sum > 63 {
		faults = append(faults, fmt.Errorf("%d bits, want at most 63", sum))
	}
	if l.Worker > 20 {
		faults = append(faults, fmt.Errorf("%d worker bits, want at most 20", l.Worker))
	}
	if l.Unit < 1 || l.Unit > 60_000 {
		faults = append(faults, fmt.Errorf("a tick of %d ms, want 1 to 60000", l.Unit))
	}
	if l.Epoch < 0 || l.Epoch > maxEpoch {
		faults = append(faults, fmt.Errorf("epoch %d, want Unix milliseconds from 0 to %d (year 3000)", l.Epoch, int64(maxEpoch)))
	}
	// ms of the last tick must not overflow: 2^Time * Unit < 2^62.
	if l.Unit > 0 && 0 < l.Time && l.Time < 63 && int64(1)<<l.Time > (1<<62)/l.Unit {
		faults = append(faults, errors.New("the time field outlasts int64 milliseconds"))
	}
	if len(faults) > 0 {
		return fmt.Errorf("snowflake: layout %s: %w", l, errors.Join(faults...))
	}
	return nil
}

// maxEpoch is 3000-01-01 UTC: far enough, and no sum of it overflows.
const maxEpoch = 32503680000000

// String returns the split as "time+worker+sequence" bits, such as 41+10+12,
// with the business bits before the sequence where there are any.
func (l Layout) String() string {
	if l.Business == 0 {
		return fmt.Sprintf("%d+%d+%d", l.Time, l.Worker, l.Sequence)
	}
	return fmt.Sprintf("%d+%d+%d+%d", l.Time, l.Worker, l.Business, l.Sequence)
}

// Workers returns how many worker numbers there are; they start at 0.
func (l Layout) Workers() int { return 1 << l.Worker }

// MaxBusiness returns the highest business; 0 where the layout has none.
func (l Layout) MaxBusiness() int64 { return 1<<l.Business - 1 }

// PerTick returns how many IDs one worker yields in one tick.
func (l Layout) PerTick() int64 { return 1 << l.Sequence }

// Yield returns how many IDs one worker yields in d, d not negative.
func (l Layout) Yield(d time.Duration) int64 { return d.Milliseconds() / l.Unit * l.PerTick() }

// Ends returns the first instant that the time field cannot express.
func (l Layout) Ends() time.Time { return time.UnixMilli(l.FirstMs(l.maxTick() + 1)).UTC() }

// endsSoon is how long before its end the time field is warned of.
const endsSoon = 5 * 365 * 24 * time.Hour

// EndsSoon reports whether the time field is full within five years of now.
func (l Layout) EndsSoon(now time.Time) bool { return l.Ends().Sub(now) < endsSoon }

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
	return ((tick<<l.Worker|worker)<<l.Business|business)<<l.Sequence | sequence
}

// Parts is a decoded ID.
type Parts struct {
	Time     time.Time // first instant of the tick, UTC
	Tick     int64     // ticks since the epoch
	Worker   int
	Business int64
	Sequence int64
}

// Decode splits an ID into its parts. It fails for what is no ID of this
// layout: a negative number, or one with bits above the time field.
func (l Layout) Decode(id int64) (Parts, error) {
	tick := id >> (l.Worker + l.Business + l.Sequence)
	if id < 0 || tick > l.maxTick() {
		return Parts{}, fmt.Errorf("snowflake: %d is no ID of layout %s", id, l)
	}
	return Parts{
		Time:     time.UnixMilli(l.FirstMs(tick)).UTC(),
		Tick:     tick,
		Worker:   int(id >> (l.Business + l.Sequence) & (1<<l.Worker - 1)),
		Business: id >> l.Sequence & l.MaxBusiness(),
		Sequence: id & (1<<l.Sequence - 1),
	}, nil
}
