// Package steps runs a few threads in every order that their atomic operations can have.
//
// [Uint64] and [Int64] stand in for those of sync/atomic. A test is built with code that imports this package in the
// place of sync/atomic, by an overlay of the go command, so that production code knows nothing of it. [Every] then runs
// the threads once for each order:
//
//	a:  load ----------- compare-and-swap
//	b:        or(closed)                      one of the 3 orders of 2 and 1 operations
//
// Each operation takes effect at once and for all threads, as those of sync/atomic
// do: they are sequentially consistent.
package steps

import (
	"errors"
	"fmt"
	"iter"
)

// pause stops the calling thread until it is its turn again; nil outside of Every.
var pause func()

func step() {
	if pause != nil {
		pause()
	}
}

// most is the highest number of operations in one run. Threads that need more wait for one another.
const most = 1000

// Every calls start and runs the threads it returns to their end, then check: once for each order of the threads'
// atomic operations. It returns how many orders there are, or the first error of check with the order that led to it:
// the number of the thread whose turn it was, for each operation. It must not run twice at the same time.
func Every(start func() (threads []func(), check func() error)) (orders int, err error) {
	for turns := []turn(nil); ; {
		threads, check := start()
		taken, err := run(threads, turns)
		if err == nil {
			err = check()
		}
		if orders++; err != nil {
			return orders, fmt.Errorf("in the order %v: %w", who(taken), err)
		}
		if turns = following(taken); turns == nil {
			return orders, nil
		}
	}
}

// A turn is the choice of a thread among those that have not ended.
type turn struct {
	choice, of int
	thread     int
}

// following returns the turns of the next order after one; nil if it was the last.
func following(taken []turn) []turn {
	for i := len(taken) - 1; i >= 0; i-- {
		if t := taken[i]; t.choice+1 < t.of {
			return append(taken[:i:i], turn{choice: t.choice + 1})
		}
	}
	return nil
}

func who(taken []turn) (threads []int) {
	for _, t := range taken {
		threads = append(threads, t.thread)
	}
	return threads
}

// A thread is one that stands before its next operation.
type thread struct {
	number int
	pause  func()
	resume func() (struct{}, bool)
}

// run runs threads as turns say, and then the first that has not ended. It returns all turns.
func run(bodies []func(), turns []turn) (taken []turn, err error) {
	defer func() { pause = nil }()
	var live []*thread
	for i, body := range bodies {
		t := &thread{number: i}
		t.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
			t.pause = func() { yield(struct{}{}) }
			pause = t.pause
			body()
		})
		if _, ok := t.resume(); ok {
			live = append(live, t)
		}
	}
	for len(live) > 0 {
		if len(taken) == most {
			return taken, errors.New("the threads wait for one another")
		}
		next := turn{of: len(live)}
		if len(taken) < len(turns) {
			next.choice = turns[len(taken)].choice
		}
		t := live[next.choice]
		next.thread = t.number
		taken = append(taken, next)
		pause = t.pause
		if _, ok := t.resume(); !ok {
			live = append(live[:next.choice:next.choice], live[next.choice+1:]...)
		}
	}
	return taken, nil
}

// A Uint64 stands in for [sync/atomic.Uint64]. The zero value is zero.
type Uint64 struct{ v uint64 }

// Load returns the value.
func (a *Uint64) Load() uint64 { step(); return a.v }

// Store sets the value.
func (a *Uint64) Store(v uint64) { step(); a.v = v }

// CompareAndSwap sets the value if it is old, and reports whether it was.
func (a *Uint64) CompareAndSwap(old, v uint64) bool { step(); return swap(&a.v, old, v) }

// Or sets bits and returns the value before.
func (a *Uint64) Or(bits uint64) (old uint64) {
	step()
	old, a.v = a.v, a.v|bits
	return old
}

// An Int64 stands in for [sync/atomic.Int64]. The zero value is zero.
type Int64 struct{ v int64 }

// Load returns the value.
func (a *Int64) Load() int64 { step(); return a.v }

// Store sets the value.
func (a *Int64) Store(v int64) { step(); a.v = v }

// CompareAndSwap sets the value if it is old, and reports whether it was.
func (a *Int64) CompareAndSwap(old, v int64) bool { step(); return swap(&a.v, old, v) }

func swap[T comparable](at *T, old, v T) bool {
	if *at != old {
		return false
	}
	*at = v
	return true
}
