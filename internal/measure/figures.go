package measure

import "time"

// Figures are the measurements of one Run, or of several.
type Figures struct {
	Calls   int64         // calls that succeeded
	Made    int64         // calls that were made
	NotMade int64         // calls that fell due at the rate while no caller was free
	Took    time.Duration // from the first call to the end of the last
	Errors  map[string]*Failure

	latency histogram
}

// A Failure is the errors of one name.
type Failure struct {
	Count int64
	First error
}

// PerSecond returns how many calls succeeded per second.
func (f *Figures) PerSecond() float64 {
	if f.Took <= 0 {
		return 0
	}
	return float64(f.Calls) / f.Took.Seconds()
}

// Failed returns how many calls failed.
func (f *Figures) Failed() (n int64) {
	for _, e := range f.Errors {
		n += e.Count
	}
	return n
}

// Latency returns the longest duration among the fastest part of the successful calls, within 2 %: Latency(0.5) is
// the median, and Latency(1) the longest. It is 0 if no call was timed.
func (f *Figures) Latency(part float64) time.Duration { return f.latency.quantile(part) }

// Add adds the figures of another Run.
func (f *Figures) Add(g *Figures) {
	f.Calls += g.Calls
	f.Made += g.Made
	f.NotMade += g.NotMade
	f.Took += g.Took
	f.latency.add(&g.latency)
	f.addErrors(g.Errors)
}

func (f *Figures) addErrors(errors map[string]*Failure) {
	if f.Errors == nil {
		f.Errors = make(map[string]*Failure)
	}
	for name, e := range errors {
		if f.Errors[name] == nil {
			f.Errors[name] = &Failure{First: e.First}
		}
		f.Errors[name].Count += e.Count
	}
}
