package simulation_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/testkit/schedules"
)

// An agenda decides what happens next. Each part of a schedule is an entry: a request, the arrival of a call at
// a store, its reply, a fault. One goroutine runs them, one at a time, and waits before each until all others are
// blocked. The results of other goroutines are notes, which it reads in the order of their keys. So the seed alone
// decides the order of everything.
//
// Only entries and notes draw from rnd and write the story.
type agenda struct {
	rnd     *rand.Rand
	begin   time.Time
	story   *schedules.Story
	entries entries
	count   uint64

	wake  chan struct{} // a note was posted
	mu    sync.Mutex
	notes []note
}

// A note is a result of a worker's goroutine: a call, or an answer.
type note struct {
	key string
	run func()
}

type entry struct {
	at    time.Time
	order uint64
	run   func()
}

func newAgenda(seed uint64, s *schedules.Story) *agenda {
	return &agenda{
		rnd: rand.New(rand.NewPCG(seed, 11)), begin: time.Now(), story: s, wake: make(chan struct{}, 1),
	}
}

// after runs f about d from now. No two entries have the same time.
func (a *agenda) after(d time.Duration, f func()) {
	a.count++
	heap.Push(&a.entries, entry{time.Now().Add(d), a.count, f})
}

// post leaves a note. Any goroutine may call it.
func (a *agenda) post(key string, f func()) {
	a.mu.Lock()
	a.notes = append(a.notes, note{key, f})
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run lets time pass until the end, or until stop reports true.
func (a *agenda) run(end time.Time, stop func() bool) {
	for {
		synctest.Wait()
		if a.read() {
			continue
		}
		now := time.Now()
		if stop() || !now.Before(end) {
			return
		}
		if len(a.entries) > 0 && !a.entries[0].at.After(now) {
			heap.Pop(&a.entries).(entry).run()
			continue
		}
		next := end
		if len(a.entries) > 0 && a.entries[0].at.Before(end) {
			next = a.entries[0].at
		}
		timer := time.NewTimer(next.Sub(now))
		select {
		case <-timer.C:
		case <-a.wake:
			timer.Stop()
		}
	}
}

// read runs the notes, and reports whether there were any.
func (a *agenda) read() bool {
	a.mu.Lock()
	notes := a.notes
	a.notes = nil
	a.mu.Unlock()
	slices.SortStableFunc(notes, func(x, y note) int { return cmp.Compare(x.key, y.key) })
	for _, n := range notes {
		n.run()
	}
	return len(notes) > 0
}

// chance returns a time of up to about d, odd enough that no two things happen at one instant.
func (a *agenda) chance(d time.Duration) time.Duration {
	return time.Duration(1 + a.rnd.Int64N(int64(d)))
}

// one reports true in one of n cases.
func (a *agenda) one(n int) bool { return a.rnd.IntN(n) == 0 }

// pick returns one of the items.
func pick[T any](a *agenda, items ...T) T { return items[a.rnd.IntN(len(items))] }

func (a *agenda) log(format string, args ...any) {
	if a.story.Out != nil {
		fmt.Fprintf(a.story.Out, "%12.6f  %s\n", time.Since(a.begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// entries is a heap by time.
type entries []entry

func (e entries) Len() int { return len(e) }
func (e entries) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].order < e[j].order
}
func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(x any)   { *e = append(*e, x.(entry)) }
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
