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

// mostUnderWay is how many batches of a handle are under way at most, so that a batch that hangs does not stall the
// others.
const mostUnderWay = 4

// waitingMost is how many calls of a handle wait at most, in full requests.
const waitingMost = 5

// largeCrowd is how many calls take longer to wake than a request takes on a fast network. Two larger batches take
// turns: the calls of one are woken while the other is under way.
const largeCrowd = 256

// A merger lets concurrent calls share requests, by the law Merging of docs/client-laws.md. A batch that had to wait
// may need several requests.
type merger struct {
	target    *target
	gathering atomic.Pointer[group] // the last group of the batch that gathers

	mu       sync.Mutex
	underWay []*batch
	left     time.Time     // when the last batch left
	size     int64         // number of IDs requested for it
	woke     time.Duration // how long waking the calls of the last answered batch took
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
		case i >= sealed: // the batch has left, and the next one gathers
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

// full makes room for calls that find none in a group: in the next batch, or in the next group of the same batch.
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

// room returns how many more calls may wait when n calls have joined the batch that gathers. Calls that have given up
// do not count. m.mu is held.
func (m *merger) room(gathering *batch, n int64) int64 {
	room := waitingMost*m.target.most - n + gathering.gaveUp.Load()
	for _, b := range m.underWay {
		room -= b.n - b.gaveUp.Load()
	}
	return max(0, room)
}

// first sends a batch that has its first call, if none is under way.
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

// mustWait returns how long the gathering batch must wait at least; 0 means that it may leave. Batches do not leave
// faster than calls are woken: a request for a strict tag costs the server and the worker the CPU time that wakes a
// thousand calls. m.mu is held.
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

// tick is called when the batch under way takes longer than usual.
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

// land hands the answer to the calls.
func (m *merger) land(b *batch, a answer) {
	if a.most > 0 && int64(a.most) < b.asked {
		m.split(b, int(b.asked), a, func(a answer) { m.land(b, a) })
		return
	}
	if all := b.answer(a.runs, a.err); all {
		m.landed(b)
	}
}

// landed sends the next batch, since all calls of batch b have been woken.
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

// split sends n calls of a batch in parts of at most why.most, and remembers that limit. A worker with a lower limit
// may cause another split of a part. Of a tag that has only so many numbers left one part gets them, and the rest asks
// once more: that limits no later request.
func (m *merger) split(b *batch, n int, why answer, done func(answer)) {
	var sizes []int
	for most, left := why.most, n; left > 0; left -= sizes[len(sizes)-1] {
		sizes = append(sizes, min(left, most))
		if errors.Is(why.err, ErrUsedUp) {
			most = left
		}
	}
	if !errors.Is(why.err, ErrUsedUp) {
		m.target.limit.Store(int64(why.most)) // above that of another batch it costs one more split
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
