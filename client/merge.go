package client

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// mostUnderWay is how many batches of a handle are under way at most, so that one
// that hangs does not stall the others.
const mostUnderWay = 4

// largeCrowd is how many calls take longer to wake than a request takes nearby. Two
// batches of more take turns: the calls of one are woken while the other is under way.
const largeCrowd = 256

// A merger lets concurrent calls share requests. Those that arrive while a batch is
// under way gather in the next, which leaves when that is answered, when that takes
// longer than usual, or when it is full. A call joins only a batch that has not left,
// so its ID is from a request that was sent after it began.
type merger struct {
	src       *source
	gathering atomic.Pointer[batch]

	mu       sync.Mutex
	underWay int
	left     time.Time // the last batch
	size     int64     // of that: calls
	timer    *time.Timer
}

func newMerger(s *source) *merger {
	m := &merger{src: s}
	m.gathering.Store(m.newBatch())
	m.timer = time.AfterFunc(time.Hour, m.tick)
	m.timer.Stop()
	return m
}

// join joins a call to a batch that has not left, and returns which number it has there.
func (m *merger) join(ctx context.Context) (*batch, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	for {
		b := m.gathering.Load()
		i := b.joined.Add(1) - 1
		switch {
		case i >= sealed: // the next is there already
			continue
		case i >= b.most:
			if m.depart(b) {
				continue
			}
			return nil, 0, fmt.Errorf("%w: %d on %s", ErrBusy, b.most, m.src.subject)
		case i == 0:
			m.first(b)
		case i == b.turn && i >= largeCrowd:
			m.depart(b)
		}
		return b, i, nil
	}
}

// first sends a batch that has its first call, if none is under way.
func (m *merger) first(b *batch) {
	m.mu.Lock()
	crowd := m.size > 1 && m.underWay == 0
	m.mu.Unlock()
	if crowd {
		runtime.Gosched() // let those who come with it join
	}
	m.depart(b)
}

// depart sends a batch if it may leave, and reports whether it has left.
func (m *merger) depart(b *batch) bool {
	m.mu.Lock()
	if m.gathering.Load() != b {
		m.mu.Unlock()
		return true
	}
	if wait := m.mustWait(b); wait > 0 {
		m.timer.Reset(min(wait, slowAfter)) // those who wait must learn by then that it takes long
		m.mu.Unlock()
		return false
	}
	next := m.newBatch()
	next.turn = (m.size + b.joined.Load()) / 2
	m.gathering.Store(next)
	b.n = min(b.joined.Swap(sealed), b.most)
	m.underWay++
	m.left, m.size = time.Now(), b.n
	m.mu.Unlock()
	if most := m.src.limit.Load(); most < b.n {
		m.split(b, int(b.n), int(most), func(a answer) { m.land(b, a) })
	} else {
		m.launch(b, int(b.n), func(a answer) { m.land(b, a) })
	}
	return true
}

// launch sends a request for n calls of a batch.
func (m *merger) launch(b *batch, n int, done func(answer)) {
	f := &flight{src: m.src, n: n, wanted: b.isWanted, slow: b.turnSlow, done: done}
	f.launch()
}

// mustWait returns how long the gathering batch must wait, at least; 0: it may leave.
// m.mu is held.
func (m *merger) mustWait(b *batch) time.Duration {
	switch wait := m.src.gap() - time.Since(m.left); {
	case m.underWay == 0:
		return 0
	case m.underWay == 1 && b.turn >= largeCrowd && b.joined.Load() > b.turn:
		return 0
	case m.underWay == mostUnderWay:
		return slowAfter
	case b.joined.Load() >= b.most:
		return 0
	default:
		return wait
	}
}

// tick is called when the batch under way takes longer than usual.
func (m *merger) tick() {
	b := m.gathering.Load()
	if b.joined.Load() > 0 && !m.depart(b) {
		b.turnSlow()
	}
}

// land hands the answer to the calls, and sends the next batch.
func (m *merger) land(b *batch, a answer) {
	if a.most > 0 && int64(a.most) < b.n {
		m.split(b, int(b.n), a.most, func(a answer) { m.land(b, a) })
		return
	}
	b.answer(a.runs, a.err)
	if b.n > 1 {
		runtime.Gosched() // let those who call again join
	}
	m.mu.Lock()
	m.underWay--
	m.mu.Unlock()
	if next := m.gathering.Load(); next.joined.Load() > 0 {
		m.depart(next)
	}
}

// split sends n calls of a batch, more than a worker accepts, in parts, and remembers
// the limit. A worker with a lower one may have a part split again.
func (m *merger) split(b *batch, n, most int, done func(answer)) {
	m.src.limit.Store(min(m.src.limit.Load(), int64(most)))
	parts := (n + most - 1) / most
	var mu sync.Mutex
	var all answer
	var join func(part int, a answer)
	join = func(part int, a answer) {
		if 0 < a.most && a.most < part {
			m.split(b, part, a.most, func(a answer) { join(part, a) })
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
	for ; n > 0; n -= most {
		part := min(n, most)
		m.launch(b, part, func(a answer) { join(part, a) })
	}
}

// sealed is more calls than ever join a batch; one that has left has been joined by more.
const sealed = 1 << 62

// A batch is calls that share a request. The call that joined as number i gets the
// i-th ID of the answer.
type batch struct {
	src    *source
	most   int64        // calls that may join
	turn   int64        // with more, a large one leaves while one is under way
	joined atomic.Int64 // sealed once it has left
	n      int64        // calls that have joined; set when it leaves
	gone   atomic.Int64 // calls that have given up

	woken  chan struct{} // closed when it is answered, or when that takes long
	lasted chan struct{} // closed when it is answered, or when calls without a deadline have waited enough

	mu    sync.Mutex
	state atomic.Int32  // quick, slow or answered
	done  chan struct{} // closed when it is answered; made when it is slow
	late  chan struct{} // closed when calls without a deadline have waited enough; made so, too
	ended bool          // it is
	timer *time.Timer   // closes late
	since time.Time     // it is slow
	runs  Runs
	err   error
}

// How the calls of a batch wait.
const (
	quick    = iota // for the answer alone, which is soon there
	slow            // for the answer or the end of their context
	answered        // no longer
)

func (m *merger) newBatch() *batch {
	return &batch{src: m.src, most: m.src.most, woken: make(chan struct{}), lasted: make(chan struct{})}
}

func (b *batch) isWanted() bool { return b.gone.Load() < b.n }

// turnSlow lets the calls look after their contexts, since the answer takes long.
func (b *batch) turnSlow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() == quick {
		b.done, b.late = make(chan struct{}), make(chan struct{})
		b.since = time.Now()
		b.timer = time.AfterFunc(b.src.client.timeout, b.turnLate)
		b.state.Store(slow) // after what it says is there
		close(b.woken)
	}
}

// turnLate ends the wait of calls without a deadline.
func (b *batch) turnLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() == slow {
		b.ended = true
		close(b.late)
		close(b.lasted)
	}
}

func (b *batch) answer(runs Runs, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs, b.err = runs, err
	if b.state.Swap(answered) == slow {
		b.timer.Stop()
		close(b.done)
	} else {
		close(b.woken)
	}
	if !b.ended {
		close(b.lasted)
	}
}

// wakes returns what a call waits for. A patient one is not woken when the answer takes
// long, since its context cannot end, and to be woken costs as much as the answer itself.
// One that joins when it takes long already has its own time.
func (b *batch) wakes(ctx context.Context) (woken <-chan struct{}, patient bool) {
	if ctx.Done() == nil && b.state.Load() == quick {
		return b.lasted, true
	}
	return b.woken, false
}

// id returns the ID of call number i, which was woken.
func (b *batch) id(ctx context.Context, i int64, patient bool) (ID, error) {
	if b.state.Load() == slow {
		if patient {
			b.gone.Add(1)
			return 0, b.src.gaveUp(context.DeadlineExceeded)
		}
		if err := b.waitSlow(ctx); err != nil {
			return 0, err
		}
	}
	if b.err != nil { // it is set before what was closed
		return 0, b.err
	}
	return b.runs.at(i), nil
}

// waitSlow returns nil when the batch is answered, or why the call gives up.
func (b *batch) waitSlow(ctx context.Context) error {
	late := b.late
	if _, ok := ctx.Deadline(); ok {
		late = nil
	} else if time.Since(b.since) > slowAfter { // it may have joined long after that timer began
		var cancel context.CancelFunc
		ctx, cancel = b.src.client.bounded(ctx)
		defer cancel()
		late = nil
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		b.gone.Add(1)
		return b.src.gaveUp(ctx.Err())
	case <-late:
		b.gone.Add(1)
		return b.src.gaveUp(context.DeadlineExceeded)
	}
}
