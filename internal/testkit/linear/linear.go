// Package linear has porcupine, a checker of linearizability that others wrote, judge small histories of grants. That
// is a second opinion on what [ledger.Order] says of all requests.
//
// To porcupine a strict tag is a register that holds the highest ID so far. A granted run must lie above that ID, and
// then raises the register to its last ID. If such an order exists for a history, it exists for each part of the
// history, so a part may be judged by itself.
package linear

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Grant is a request that was answered with the IDs from First to Last, both included.
type Grant struct {
	First, Last int64
	// Began and Ended are moments of one clock: a little before the request was sent, and
	// a little after its answer arrived. Only their order counts.
	Began, Ended int64
}

// A Verdict is porcupine's verdict on a history: [Rises], [Falls] or [Unknown].
type Verdict = porcupine.CheckResult

// Rises says that the IDs rise in some order of the requests, Falls that they rise in none, and Unknown that patience
// was too short for a verdict.
const (
	Rises   = porcupine.Ok
	Falls   = porcupine.Illegal
	Unknown = porcupine.Unknown
)

// A register is the state of a strict tag after some requests: how many there were, and the highest ID granted.
type register struct {
	requests int
	highest  int64
}

// The model gives each request its place, counted by the IDs: ranges only rise, so no other order of the requests is
// possible. Without the places porcupine would try every order of requests that were under way at once.
var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, output any) (legal bool, next any) {
		r, place, g := state.(register), input.(int), output.(Grant)
		return place == r.requests && g.First > r.highest && g.Last >= g.First, register{r.requests + 1, g.Last}
	},
}

// Judge reports whether some order of a history, in which no request comes before one
// that had ended when it began, grants higher and higher IDs. It takes patience at most.
func Judge(history []Grant, patience time.Duration) Verdict {
	ops := make([]porcupine.Operation, len(history))
	for i, g := range history {
		ops[i] = porcupine.Operation{Call: g.Began, Return: g.Ended, Output: g}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int {
		return cmp.Compare(a.Output.(Grant).First, b.Output.(Grant).First)
	})
	for place := range ops {
		ops[place].Input = place
	}
	return porcupine.CheckOperationsTimeout(model, ops, patience)
}
