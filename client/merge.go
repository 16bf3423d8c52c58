package client

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// mostUnderWay is how many batches of a handle may be under way at once, so that one that hangs does not stop the
// handle.
const mostUnderWay = 4

// waitingMost is how many calls of a handle may wait at once, as a multiple of the calls in a full request.
const waitingMost = 5

// largeCrowd is the size of a batch whose calls take longer to wake than a request takes on a fast network. Two larger
// batches alternate: the calls of one are woken while the other is under way.
const largeCrowd = 256

// A merger lets concurrent calls share requests, by the law Merging of docs/client-laws.md. A batch that had to wait
// may need several requests.
type merger struct {
	target    *target
	gathering atomic.Pointer[group] // the last group of the batch that calls can join

	mu       sync.Mutex
	underWay []*batch
	left     time.Time     // when the last batch left
	size     int64         // number of IDs requested for it
	woke     time.Duration // how long it took to wake the calls of the last answered batch
	timer    *time.Timer
}

func newMerger(s *target) *merger {
	m := &merger{target: s}
	m.gathering.Store(&m.newBatch(waitingMost * s.most).first)
	m.timer = time.AfterFunc(time.Hour, m.tick)
	m.timer.Stop()
	return m
}

// join joins a call to a group of a batch that has not left, and returns the number of the call in that group.
func (m *merger) join() (*group, int64, error) {
	for {
		g := m.gathering.Load()
		i := g.joined.Add(1) - 1
		switch {
		case i >= sealed: // the batch has left: join the next one
			continue
		case i >= g.size:
			if err := m.full(g); err != nil {
				return nil, 0, err
			}
			continue
		case g.base+i == 0:
			m.first(g.batch)
		}
		return g, i, nil
	}
}

// full is called when the group g has no room: it makes room in the next group of the same batch, or in the next batch.
func (m *merger) full(g *group) error {
	b, n := g.batch, g.base+g.size
	mayLeave := n >= m.target.most || g.base <= b.turn && b.turn < n
	if mayLeave && m.depart(b) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gathering.Load() != g {
		return nil
	}
	room := m.room(b, n)
	if room == 0 {
		return fmt.Errorf("%w: %d on %s", ErrBusy, waitingMost*m.target.most, m.target.subject)
	}
	m.gathering.Store(g.grow(room))
	return nil
}

// room returns how many more calls may wait when n calls have joined the gathering batch. Calls that have given up do
// not count. m.mu is held.
func (m *merger) room(gathering *batch, n int64) int64 {
	room := waitingMost*m.target.most - n + gathering.gaveUp.Load()
	for _, b := range m.underWay {
		room -= b.n - b.gaveUp.Load()
	}
	return max(0, room)
}

// first sends a batch after its first call has joined, if it may leave.
func (m *merger) first(b *batch) {
	m.mu.Lock()
	crowd := m.size > 1 && len(m.underWay) == 0
	m.mu.Unlock()
	if crowd {
		runtime.Gosched() // let concurrent calls join
	}
	m.depart(b)
}

// depart sends a batch if it may leave, and reports whether it has left.
func (m *merger) depart(b *batch) bool {
	m.mu.Lock()
	g := m.gathering.Load()
	if g.batch != b {
		m.mu.Unlock()
		return true
	}
	if wait := m.mustWait(g); wait > 0 {
		if left := b.untilSlow(); left > 0 {
			wait = min(wait, left)
		}
		m.timer.Reset(min(wait, slowAfter))
		m.mu.Unlock()
		return false
	}
	next := m.newBatch(m.room(b, g.base+g.size))
	next.turn = (m.size + g.count()) / 2
	m.gathering.Store(&next.first)
	b.n = g.base + min(g.joined.Swap(sealed), g.size)
	b.asked = max(1, b.n-b.gaveUp.Load())
	m.underWay = append(m.underWay, b)
	m.left, m.size = time.Now(), b.asked
	m.mu.Unlock()
	if most := min(m.target.most, m.target.limit.Load()); most < b.asked {
		m.split(b, int(b.asked), answer{most: int(most)}, func(a answer) { m.land(b, a) })
	} else {
		m.launch(b, int(b.asked), func(a answer) { m.land(b, a) })
	}
	return true
}

// launch sends a request for n calls of a batch.
func (m *merger) launch(b *batch, n int, done func(answer)) {
	f := &flight{
		target: m.target, n: n, wanted: b.isWanted, slow: b.turnSlow, done: done,
	}
	f.launch()
}

// mustWait returns how long the gathering batch must still wait; 0 means that it may leave. Batches leave no faster
// than calls are woken: a request for a strict tag costs the server and the worker as much CPU time as it takes to wake
// a thousand calls. m.mu is held.
func (m *merger) mustWait(g *group) time.Duration {
	b, n := g.batch, g.count()
	gap := max(m.target.gap(), min(m.woke, slowAfter))
	switch wait := gap - time.Since(m.left); {
	case len(m.underWay) == 0:
		return 0
	case len(m.underWay) == 1 && b.turn >= largeCrowd && n > b.turn:
		return 0
	case len(m.underWay) == mostUnderWay:
		return slowAfter
	case n >= m.target.most:
		return 0
	default:
		return wait
	}
}

// tick is called by the timer. It sends the gathering batch if it may leave by now, or turns it slow if it has waited
// too long.
func (m *merger) tick() {
	g := m.gathering.Load()
	if g.count() == 0 || m.depart(g.batch) {
		return
	}
	m.mu.Lock()
	slow := g.batch.untilSlow() <= 0
	m.mu.Unlock()
	if slow {
		g.batch.turnSlow()
	}
}

// land gives the answer of a batch to its calls.
func (m *merger) land(b *batch, a answer) {
	if a.most > 0 && int64(a.most) < b.asked {
		m.split(b, int(b.asked), a, func(a answer) { m.land(b, a) })
		return
	}
	if all := b.answer(a.runs, a.err); all {
		m.landed(b)
	}
}

// landed is called when all calls of batch b are woken. It sends the next batch.
func (m *merger) landed(b *batch) {
	woke := time.Since(b.came)
	if b.n > 1 {
		runtime.Gosched() // let calls from the same goroutines join
	}
	m.mu.Lock()
	m.underWay = slices.DeleteFunc(m.underWay, func(o *batch) bool { return o == b })
	m.woke = woke
	m.mu.Unlock()
	if next := m.gathering.Load(); next.count() > 0 {
		m.depart(next.batch)
	}
}

// split requests the IDs for n calls in parts of at most why.most, and remembers that limit if it is a worker's. A
// worker with a lower limit may cause a further split. If the limit is only what the tag has left, one part gets those
// IDs, the rest asks once more, and later requests are not limited.
func (m *merger) split(b *batch, n int, why answer, done func(answer)) {
	var sizes []int
	for most, left := why.most, n; left > 0; left -= sizes[len(sizes)-1] {
		sizes = append(sizes, min(left, most))
		if errors.Is(why.err, ErrUsedUp) {
			most = left
		}
	}
	if errors.Is(why.err, ErrBadRequest) {
		m.target.limit.Store(int64(why.most)) // if another batch has found a lower limit, that costs one more split
	}
	parts := len(sizes)
	var mu sync.Mutex
	var all answer
	var join func(part int, a answer)
	join = func(part int, a answer) {
		if 0 < a.most && a.most < part {
			m.split(b, part, a, func(a answer) { join(part, a) })
			return
		}
		mu.Lock()
		all.runs, all.err = append(all.runs, a.runs...), cmp.Or(all.err, a.err)
		parts--
		last := parts == 0
		mu.Unlock()
		if last {
			done(all)
		}
	}
	for _, part := range sizes {
		m.launch(b, part, func(a answer) { join(part, a) })
	}
}
