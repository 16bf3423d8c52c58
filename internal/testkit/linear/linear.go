// Package linear has porcupine judge small histories of grants: a second opinion, by a
// program that others wrote, on what [ledger.Order] says of all requests.
//
// To porcupine a strict tag is a register that holds the highest ID. A request that is
// granted a run raises it, and its whole run is above what it was. Any part of a history
// that has such an order has one, so a part may be judged by itself.
package linear

import (
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

var highest = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, _, output any) (legal bool, next any) {
		g := output.(Grant)
		return g.First > state.(int64) && g.Last >= g.First, g.Last
	},
}

// Judge reports whether some order of a history, in which no request comes before one
// that had ended when it began, grants higher and higher IDs. A history of a hundred grants
// takes a millisecond if there is one, and may take all of patience if there is none.
func Judge(history []Grant, patience time.Duration) Verdict {
	ops := make([]porcupine.Operation, len(history))
	for i, g := range history {
		ops[i] = porcupine.Operation{Call: g.Began, Return: g.Ended, Output: g}
	}
	return porcupine.CheckOperationsTimeout(highest, ops, patience)
}
