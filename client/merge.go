package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/subjects"
)

const (
	// mostUnderWay is how many batches of a handle may be under way at once. It is above 1, so that a batch without an
	// answer does not stop the handle.
	mostUnderWay = 4
	// waitingMost bounds the calls of a handle that may wait at once. It is a number of full requests.
	waitingMost = 5
)

// A merger lets concurrent calls share requests, by the law Merging of docs/client-laws.md.
type merger struct {
	target *target

	mu        sync.Mutex
	gathering *batch      // the batch that calls join
	underWay  int         // batches without an answer
	waiting   int64       // calls that wait, of all batches
	left      time.Time   // when the last batch left
	timer     *time.Timer // lets the gathering batch leave when it may
}

// A batch has the calls that share a request, or several requests if there are too many calls for one. A batch leaves
// when its requests are sent.
//
// Law: a strict ID comes from a request that was sent after its call began. So no call may join a batch that has left:
// [merger.depart] replaces the gathering batch before it sends a request.
type batch struct {
	merger  *merger
	woken   chan struct{} // closed when the batch is answered or slow: then its calls watch their contexts
	wake    sync.Once     // closes woken
	slow    *time.Timer   // fires when the answer takes longer than slowAfter
	done    chan struct{} // closed when the batch is answered
	waiting int64         // calls that wait; guarded by the merger's lock, as are the fields below
	open    int           // requests without an answer
	isDone  bool
	runs    subjects.Runs // runs and err do not change once isDone is true
	err     error         // of calls for which runs has no ID
	taken   atomic.Int64  // calls that have taken an ID, or err
}

func newMerger(t *target) *merger {
	m := &merger{target: t}
	m.gathering = m.newBatch()
	m.timer = time.AfterFunc(time.Hour, m.depart)
	m.timer.Stop()
	return m
}

func (m *merger) newBatch() *batch {
	return &batch{merger: m, woken: make(chan struct{}), done: make(chan struct{})}
}

func (m *merger) next(ctx context.Context) (subjects.ID, error) {
	b, isDue, err := m.join()
	if err != nil {
		return 0, err
	}
	if isDue {
		runtime.Gosched() // let concurrent calls join
		m.depart()
	}
	<-b.woken
	select {
	case <-b.done:
	default:
		bounded, cancel := m.target.client.bounded(ctx)
		defer cancel()
		select {
		case <-b.done:
		case <-bounded.Done():
			if b.leave() {
				return 0, m.target.gaveUp(bounded.Err())
			}
		}
	}
	n := b.taken.Add(1) - 1
	if n >= int64(b.runs.Len()) {
		return 0, b.err
	}
	return idAt(b.runs, n), nil
}

// join adds a call to the gathering batch. If isDue is true, the caller calls depart, which decides whether the batch
// leaves now.
func (m *merger) join() (b *batch, isDue bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting >= waitingMost*m.target.most {
		return nil, false, fmt.Errorf("%w: %d on %s", ErrBusy, m.waiting, m.target.subject)
	}
	b = m.gathering
	m.waiting++
	b.waiting++
	if b.slow == nil {
		b.slow = time.AfterFunc(m.target.slowAfter(), b.turn)
	}
	return b, b.waiting == 1 || b.waiting == m.target.most, nil
}

// turn wakes the calls, since the batch is answered or its answer takes long.
func (b *batch) turn() { b.wake.Do(func() { close(b.woken) }) }

// leave removes a call that gives up. It returns false if the batch has been answered: then the call takes its ID.
func (b *batch) leave() bool {
	b.merger.mu.Lock()
	defer b.merger.mu.Unlock()
	if b.isDone {
		return false
	}
	b.waiting--
	b.merger.waiting--
	return true
}

func (b *batch) isWanted() bool {
	b.merger.mu.Lock()
	defer b.merger.mu.Unlock()
	return b.waiting > 0
}

// depart sends the requests of the gathering batch if the batch may leave now. If only time lacks, depart sets the
// timer.
func (m *merger) depart() {
	m.mu.Lock()
	b := m.gathering
	if b.waiting == 0 || m.underWay == mostUnderWay {
		m.mu.Unlock()
		return
	}
	wait := m.target.gap() - time.Since(m.left)
	if m.underWay > 0 && b.waiting < m.target.most && wait > 0 {
		m.timer.Reset(wait)
		m.mu.Unlock()
		return
	}
	m.gathering = m.newBatch()
	m.underWay++
	m.left = time.Now()
	n := int(b.waiting)
	m.mu.Unlock()
	b.request(n, n)
}

// request requests n IDs. The first request is for at most as many as the parameter first says.
func (b *batch) request(n, first int) {
	t := b.merger.target
	most := int(min(t.most, t.limit.Load()))
	var sizes []int
	for size := min(first, most); n > 0; size = min(n, most) {
		sizes = append(sizes, size)
		n -= size
	}
	b.merger.mu.Lock()
	b.open += len(sizes)
	b.merger.mu.Unlock()
	for _, size := range sizes {
		f := &flight{target: t, n: size, wanted: b.isWanted, done: func(a answer) { b.land(size, a) }}
		f.launch()
	}
}

// land takes the answer to a request for n IDs. If a worker refuses since n exceeds its limit, land requests the IDs
// in smaller parts, and the limit holds for later requests. If n exceeds only what the tag has left, the first part is
// what is left, the others ask once more, and later requests are not limited.
func (b *batch) land(n int, a answer) {
	m := b.merger
	if 0 < a.most && a.most < n {
		if errors.Is(a.err, ErrBadRequest) {
			m.target.limit.Store(int64(a.most)) // if another batch has found a lower limit, that costs one more split
		}
		b.request(n, a.most)
		a = answer{}
	}
	m.mu.Lock()
	b.runs, b.err = append(b.runs, a.runs...), cmp.Or(b.err, a.err)
	b.open--
	if b.open > 0 {
		m.mu.Unlock()
		return
	}
	b.isDone = true
	m.underWay--
	m.waiting -= b.waiting
	m.mu.Unlock()
	b.slow.Stop()
	close(b.done)
	b.turn()
	runtime.Gosched() // let calls from the same goroutines join the next batch
	m.depart()
}
