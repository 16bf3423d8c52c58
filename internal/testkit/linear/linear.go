// Package linear has porcupine judge small histories of grants: a second opinion, by a
// program that others wrote, on what [ledger.Order] says of all requests.
//
// To porcupine a strict tag is a register that holds the highest ID. A request that is
// granted a run raises it, and its whole run is above what it was. Any part of a history
// that has such an order has one, so a part may be judged by itself.
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

// A Verdict is what porcupine says of a history.
type Verdict = porcupine.CheckResult

// Rises and Falls are verdicts; Unknown says that patience was too short for one.
const (
	Rises   = porcupine.Ok
	Falls   = porcupine.Illegal
	Unknown = porcupine.Unknown
)

// A register is what requests have left: how many there were, and the highest ID.
type register struct {
	requests int
	highest  int64
}

// A request has its place among all by their IDs: ranges only rise, so it can be served
// after as many others only. Without that hint porcupine tries every order of those that
// were under way at once.
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
