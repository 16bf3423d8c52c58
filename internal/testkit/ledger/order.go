package ledger

import "sync"

// An Order judges the promise of strict tags, for all requests of one tag: if a request is sent after the answer to
// another has arrived, its IDs are higher. Add finds what is issued twice; an Order finds what is issued too late.
//
// Ranges only rise, so requests can have been served one after the other in the order of their IDs, or in none. That
// order is possible unless a request began after one with a higher ID had ended. It is enough to compare each answer
// with the highest ID of the answers that had arrived when its request began:
//
//	A  |--- 1 ---|
//	B        |------- 2 -------|
//	C                |-- 5 --|
//	D                            |-- 4 --|     began after 5 had arrived: an inversion
//
// So each answer is judged when it arrives, exactly, in constant memory, and no clock is compared: moments are ordered
// by the calls of Begin and End. The zero value is ready. It is safe for concurrent use.
type Order struct {
	mu      sync.Mutex
	highest int64
	report  OrderReport
}

// An OrderReport is the result of an [Order].
type OrderReport struct {
	// Answers counts the runs of IDs that were judged.
	Answers int64
	// Inversions counts those with an ID at or below one that had arrived before their request began.
	Inversions int64
	// Examples are the first inversions, at most ten.
	Examples []Inversion
}

// An Inversion is an answer out of order.
type Inversion struct {
	Run Run   // of the answer
	Had int64 // the highest ID that had arrived when its request began
}

// Begin returns the highest ID that has arrived, 0 before the first. Call it right before
// a request is sent, and keep what it returns until the answer.
func (o *Order) Begin() (had int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.highest
}

// End judges a run of an answer that has arrived: had is what Begin returned for its request. It reports whether the
// run is in order. The request may have been given up: an answer that arrives late is an answer. It refuses with
// [ErrRun] what is no run of positive IDs.
func (o *Order) End(had, first, last int64) (inOrder bool, err error) {
	if err := checkRun(first, last); err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.highest = max(o.highest, last)
	o.report.Answers++
	if first > had {
		return true, nil
	}
	o.report.Inversions++
	if len(o.report.Examples) < examples {
		o.report.Examples = append(o.report.Examples, Inversion{Run{first, last}, had})
	}
	return false, nil
}

// Report returns what was found so far.
func (o *Order) Report() OrderReport {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.report
	r.Examples = append([]Inversion(nil), r.Examples...)
	return r
}
