package snowflake

import (
	"fmt"
	"math/bits"
	"time"
)

// Year is the length of a year in [Needs].
const Year = 365.25 * 24 * time.Hour

// Needs are the quantities that a layout must have room for. The zero value is not valid.
type Needs struct {
	Years      int64 // from the epoch on, 1 to 1,000,000
	Sites      int64 // 1 to 10^12
	Machines   int64 // per site, 1 to 10^12
	Businesses int64 // 1 to 10^12
	Peak       int64 // IDs/s of one machine, 1 to 10^12
	Unit       int64 // length of a tick in ms, 1 to 60,000
}

// A FitError is returned when needs are too large for the 63 bits of an ID.
type FitError struct {
	// Largest holds for each need the largest value that fits if the others are kept; 0 if no value does.
	Largest Needs
	// Nearest are needs that fit, lowered as little as possible.
	Nearest Needs

	fault error
}

// Error implements error.
func (e *FitError) Error() string { return e.fault.Error() }

// Plan returns the narrowest layout that has room for the needs and begins at epoch, in Unix ms. The error is a
// [*FitError] if no layout has room, and another error if needs or epoch are out of range.
func Plan(n Needs, epoch int64) (Layout, error) {
	if err := n.check(); err != nil {
		return Layout{}, err
	}
	l := n.layout()
	if err := l.Validate(); err != nil {
		return Layout{}, &FitError{Largest: n.largest(), Nearest: n.nearest(), fault: err}
	}
	l.Epoch = epoch
	return l, l.Validate()
}

// fields returns the needs in the order of an ID's fields.
func (n *Needs) fields() [5]*int64 {
	return [5]*int64{&n.Years, &n.Sites, &n.Machines, &n.Businesses, &n.Peak}
}

var needNames = [5]string{"years", "sites", "machines", "businesses", "peak"}

// mostNeed is the highest value of each need, low enough not to overflow with any unit.
var mostNeed = [5]int64{1e6, 1e12, 1e12, 1e12, 1e12}

func (n Needs) check() error {
	for i, need := range n.fields() {
		if *need < 1 || *need > mostNeed[i] {
			return fmt.Errorf("snowflake: %s %d, want 1 to %d", needNames[i], *need, mostNeed[i])
		}
	}
	if n.Unit < 1 || n.Unit > 60_000 {
		return fmt.Errorf("snowflake: a tick of %d ms, want 1 to 60000", n.Unit)
	}
	return nil
}

// layout returns the narrowest layout for the needs, without an epoch. The layout is invalid if the needs do not fit.
func (n Needs) layout() Layout {
	return Layout{
		Time:     width(ceil(n.Years*Year.Milliseconds(), n.Unit)),
		Site:     width(n.Sites),
		Worker:   max(1, width(n.Machines)),
		Business: width(n.Businesses),
		Sequence: max(1, width(ceil(n.Peak*n.Unit, 1000))),
		Unit:     n.Unit,
	}
}

// width returns how many bits distinguish count values.
func width(count int64) int { return bits.Len64(uint64(count - 1)) }

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// most returns the highest value of need i for which ok accepts the layout if the
// others are kept; 0 if there is none.
func (n Needs) most(i int, ok func(Layout) bool) int64 {
	need, found := n.fields()[i], int64(0) // n is a copy
	for step := int64(1) << 40; step > 0; step /= 2 {
		if *need = found + step; *need <= mostNeed[i] && ok(n.layout()) {
			found = *need
		}
	}
	return found
}

func (n Needs) largest() (large Needs) {
	for i, v := range large.fields() {
		*v = n.most(i, func(l Layout) bool { return l.Validate() == nil })
	}
	large.Unit = n.Unit
	return large
}

// nearest lowers the needs bit by bit until they fit, each time the need that loses the smallest part: at most half
// for its first bit, about half for each further one. Of equals it takes the last, since a peak is easier to spread
// than a site is to close.
func (n Needs) nearest() Needs {
	for l := n.layout(); l.Validate() != nil; l = n.layout() {
		var best *int64
		var lower int64
		for i, need := range n.fields() {
			if l.Site+l.Worker > maxWorkerBits && need != &n.Sites && need != &n.Machines {
				continue // would not help
			}
			v := n.most(i, func(m Layout) bool { return m.widths()[i] < l.widths()[i] })
			if v > 0 && (best == nil || float64(v)/float64(*need) >= float64(lower)/float64(*best)) {
				best, lower = need, v
			}
		}
		*best = lower
	}
	return n
}
