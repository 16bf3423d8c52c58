package overload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Figures are the results of a trial. Most are about the requests sent during the overload; After, Loose, and those of
// processes are not.
type Figures struct {
	Capacity float64 // IDs per second
	Offered  float64 // requests per second

	Asked        int // requests
	InTime       int // got an ID within Patience
	Late         int // got any answer later
	Never        int // got no answer
	NoResponders int // were told at once that nobody serves
	Codes        map[int]int
	P50, P99     time.Duration // until an ID that came in time
	Slowest      time.Duration // until any answer
	Share        float64       // of the capacity that was issued in time

	Well  time.Duration // from the overload's end until nearly all requests get IDs soon
	After float64       // the share of requests below the capacity that got IDs in time
	Loose int           // of them, those that were answered late or never

	SlowConsumers int64  // connections that the server cut off
	ServerMemory  [2]int // bytes: at the start, and at most; of the largest
	WorkerMemory  [2]int
	Lag           time.Duration // the longest that callers and server took for a message of their own
}

// After the overload a slot of time counts as well if at least the share wellFrom of the requests sent in it got IDs
// within the time soon.
const (
	slot     = 100 * time.Millisecond
	soon     = 500 * time.Millisecond
	wellFrom = 0.99
)

// count adds to f the figures of the requests sent in [from, till), the overload, and of those sent from then until
// end.
func (c *callers) count(f *Figures, from, till, end time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Lag, f.Codes = c.lag, make(map[int]int)
	var took []time.Duration
	asked, good := make([]int, 1+(end-till)/slot), make([]int, 1+(end-till)/slot)
	after, afterOK := 0, 0
	for _, r := range c.requests {
		inTime := r.outcome == issued && r.took <= Patience
		late := r.outcome == open || r.took > Patience
		switch {
		case r.sent < from:
		case r.sent >= till:
			i := (r.sent - till) / slot
			after++
			asked[i]++
			if inTime {
				afterOK++
			}
			if late {
				f.Loose++
			}
			if inTime && r.took <= soon {
				good[i]++
			}
		default:
			f.Asked++
			f.Slowest = max(f.Slowest, r.took)
			switch {
			case r.outcome == open:
				f.Never++
			case late:
				f.Late++
			case inTime:
				f.InTime++
				took = append(took, r.took)
			case r.outcome == noResponders:
				f.NoResponders++
			default:
				f.Codes[int(r.outcome)]++
			}
		}
	}
	for i := range asked {
		if float64(good[i]) < wellFrom*float64(asked[i]) {
			f.Well = time.Duration(i+1) * slot
		}
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		f.P50, f.P99 = took[n/2], took[n*99/100]
	}
	f.Offered = float64(f.Asked) / (till - from).Seconds()
	f.Share = float64(f.InTime) / (f.Capacity * (till - from).Seconds())
	f.After = float64(afterOK) / float64(max(after, 1))
}

// Columns are the heads of Cells.
var Columns = []string{
	"capacity/s", "offered", "asked", "IDs within 2 s", "of capacity", "later", "never", "no responders", "codes",
	"p50 ms", "p99 ms", "slowest ms", "well after", "then IDs", "then late", "cut off",
	"server MB", "worker MB", "own lag ms",
}

// Cells are the figures as a row of a table.
func (f Figures) Cells() []string {
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	mb := func(of [2]int) string { return fmt.Sprintf("%d to %d", of[0]>>20, of[1]>>20) }
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(f.Codes)) {
		codes = append(codes, fmt.Sprintf("%d %d", f.Codes[code], code))
	}
	if codes == nil {
		codes = []string{"-"}
	}
	return []string{
		fmt.Sprintf("%.0f", f.Capacity), fmt.Sprintf("%.2f x", f.Offered/f.Capacity), fmt.Sprint(f.Asked),
		fmt.Sprint(f.InTime), fmt.Sprintf("%.0f %%", 100*f.Share), fmt.Sprint(f.Late), fmt.Sprint(f.Never),
		fmt.Sprint(f.NoResponders), strings.Join(codes, ", "), ms(f.P50), ms(f.P99), ms(f.Slowest),
		fmt.Sprintf("%.1f s", f.Well.Seconds()), fmt.Sprintf("%.1f %%", 100*f.After), fmt.Sprint(f.Loose),
		fmt.Sprint(f.SlowConsumers), mb(f.ServerMemory), mb(f.WorkerMemory), ms(f.Lag),
	}
}
