//go:build linux

package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/testkit/linear"
)

// An order judges the answers of the strict tag: all of them by the ledger, and parts of their history by porcupine.
// The zero value is ready. It is safe for concurrent use.
type order struct {
	all ledger.Order

	mu     sync.Mutex
	grants []linear.Grant
	faults []string
}

// A begun is the state when a request for the strict tag was sent.
type begun struct {
	had int64 // the highest ID that had arrived
	at  time.Duration
}

// begin is called right before a request is sent.
func (o *order) begin(now time.Duration) begun { return begun{o.all.Begin(), now} }

// end judges IDs that have arrived, from first to last.
func (o *order) end(began begun, now time.Duration, first, last int64) error {
	inOrder, err := o.all.End(began.had, first, last)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.grants = append(o.grants, linear.Grant{First: first, Last: last, Began: int64(began.at), Ended: int64(now)})
	const examples = 10
	if !inOrder && len(o.faults) < examples {
		o.faults = append(o.faults, fmt.Sprintf("%d-%d came at %.3f s to a request sent at %.3f s, when %d was there",
			first, last, now.Seconds(), began.at.Seconds(), began.had))
	}
	return nil
}

// inOrder makes the judges check an answer of the strict tag. Two registries that meet have an order only once one
// serves alone.
func (l *load) inOrder(began begun, first, last int64) {
	now := l.now()
	if int64(began.at) < l.settled.Load() {
		return
	}
	if err := l.rising.end(began, now, first, last); err != nil {
		l.invalidate(err)
	}
}

// A verdict is the result of the judges of the strict tag.
type verdict struct {
	answers, inversions  int64
	histories, undecided int
	faults               []string
}

func (v verdict) String() string {
	return fmt.Sprintf("%d answers, %d inversions; porcupine: %d histories, %d undecided",
		v.answers, v.inversions, v.histories, v.undecided)
}

func (v *verdict) add(w verdict) {
	v.answers, v.inversions = v.answers+w.answers, v.inversions+w.inversions
	v.histories, v.undecided = v.histories+w.histories, v.undecided+w.undecided
}

// Bounds of a history for porcupine: the number of consecutive answers, and the time to judge them.
const (
	historyMost     = 100
	historyPatience = time.Second
)

// verdict is called after all answers have arrived.
func (o *order) verdict() verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all.Report()
	v := verdict{answers: all.Answers, inversions: all.Inversions, faults: o.faults}
	for rest := o.grants; len(rest) > 0; v.histories++ {
		n := min(len(rest), historyMost)
		switch linear.Judge(rest[:n], historyPatience) {
		case linear.Falls:
			v.faults = append(v.faults, fmt.Sprintf("porcupine finds no order of %v", rest[:n]))
		case linear.Unknown:
			v.undecided++
		}
		rest = rest[n:]
	}
	return v
}
