package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/subjects"
)

// sealed replaces the count of a group when its batch leaves. A later call gets a count of at least sealed, and joins
// another batch.
const sealed = 1 << 62

// groupSize is how many calls of a batch are woken at once: fewer than the run queue of a processor holds. So a call
// runs while the answer is still in the cache, and the goroutines that read and write the network never wait for all
// calls of a batch.
const groupSize = 128

// passOn returns the number of the call that wakes the next group: a late one, but early enough that the processor does
// not run out of work.
func (g *group) passOn() int64 { return g.size * 3 / 4 }

// A batch has the calls that share a request, in groups. By the third law a strict ID comes from a load that is sent
// after its call began. For that no call may join a batch that has left: only the last group of a batch has room, and
// [merger.depart] seals that group before the request is sent.
type batch struct {
	m      *merger
	turn   int64        // a batch with more calls leaves although another is under way
	n      int64        // calls that have joined; set when it leaves
	asked  int64        // IDs requested: fewer than n if calls had given up; set when it leaves
	taken  atomic.Int64 // IDs that calls have taken, if fewer than n were requested
	gaveUp atomic.Int64 // calls that have given up
	held   time.Time    // since when the batch is held back; guarded by the merger's lock
	came   time.Time    // when the answer came

	mu      sync.Mutex
	state   atomic.Int32 // quick, slow or answered
	passing bool         // each group wakes the next; set when the batch is answered
	slowness
	runs subjects.Runs
	err  error

	first group
}

// A slowness is the state of a batch whose answer takes long: its calls now watch their contexts.
type slowness struct {
	done  chan struct{} // closed when the batch is answered
	late  chan struct{} // closed when calls whose context has no deadline time out
	ended bool          // late is closed
	timer *time.Timer   // closes late
	since time.Time     // when the batch turned slow
}

// A group has calls of a batch that are woken together. All groups but the last are full; the first may have size 0.
// The i-th call to join gets the i-th ID of the group, which follow those of the groups before, unless calls had given
// up when the batch left.
type group struct {
	batch  *batch
	joined atomic.Int64  // at least sealed once the batch has left
	size   int64         // calls that may join; later ones must find another group
	base   int64         // calls in the groups before
	woken  chan struct{} // closed when the batch is answered or turns slow
	lasted chan struct{} // closed when the batch is answered, or calls without a deadline time out
	next   *group
}

// How the calls of a batch wait.
const (
	quick    = iota // calls wait for the answer alone, which is expected soon
	slow            // calls wait for the answer or the end of their context
	answered        // calls wait no longer
)

// newBatch returns a batch whose first group is for up to room calls, which may be 0.
func (m *merger) newBatch(room int64) *batch {
	b := &batch{m: m}
	size := min(m.target.most, groupSize, room)
	b.first = group{batch: b, size: size, woken: make(chan struct{}), lasted: make(chan struct{})}
	return b
}

// grow returns the group that follows the full group g: for groupSize calls, for room, or for as many as the request
// still holds.
func (g *group) grow(room int64) *group {
	b := g.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	base := g.base + g.size
	next := &group{batch: b, base: base, size: min(room, groupSize), woken: b.first.woken}
	if left := b.m.target.most - base; left > 0 {
		next.size = min(next.size, left)
	}
	if b.state.Load() == quick { // a slow batch has no chain of groups: its calls are awake
		next.woken, next.lasted = make(chan struct{}), make(chan struct{})
		g.next = next
	}
	return next
}

// count returns how many calls have joined the batch, in this group and those before it.
func (g *group) count() int64 { return g.base + min(g.joined.Load(), g.size) }

func (b *batch) isWanted() bool { return b.gaveUp.Load() < b.n }

// untilSlow returns how long a batch that must not leave yet may still wait before its calls watch their contexts: see
// turnSlow. The merger's lock is held.
func (b *batch) untilSlow() time.Duration {
	if b.held.IsZero() {
		b.held = time.Now()
	}
	return slowAfter - time.Since(b.held)
}

// turnSlow makes the calls watch their contexts, since the answer takes long.
func (b *batch) turnSlow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() == quick {
		b.done, b.late = make(chan struct{}), make(chan struct{})
		b.since = time.Now()
		b.timer = time.AfterFunc(b.m.target.client.cfg.Timeout, b.turnLate)
		b.state.Store(slow) // after the fields that it publishes are set
		for g := &b.first; g != nil; g = g.next {
			close(g.woken)
		}
	}
}

// turnLate times out the calls whose context has no deadline.
func (b *batch) turnLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() == slow {
		b.ended = true
		close(b.late)
		b.wakePatient()
	}
}

// wakePatient wakes calls that the slow answer has not woken. b.mu is held.
func (b *batch) wakePatient() {
	for g := &b.first; g != nil && g.lasted != nil; g = g.next {
		close(g.lasted)
	}
}

// answer gives the answer to the calls, and reports whether all are woken. If not, each group wakes the next one, and
// the last group calls merger.landed.
func (b *batch) answer(runs subjects.Runs, err error) (all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs, b.err, b.came = runs, err, time.Now()
	b.passing = b.state.Load() == quick
	b.state.Store(answered) // after the fields that it publishes are set
	switch {
	case b.passing:
		g := &b.first
		if g.size == 0 {
			g = g.next
		}
		g.wake()
		return g.next == nil
	case !b.ended:
		b.wakePatient()
	}
	b.timer.Stop()
	close(b.done)
	return true
}

func (g *group) wake() {
	close(g.woken)
	close(g.lasted)
}

// pass wakes the next group.
func (g *group) pass() {
	g.next.wake()
	if g.next.next == nil {
		go g.batch.m.landed(g.batch) // it may have to wait for the connection
	}
}

// wakes returns the channel that a call waits on. A patient call, whose context cannot end, is not woken when the batch
// turns slow: waking costs as much as the answer itself. A call that joins a slow batch has its own time limit.
func (g *group) wakes(ctx context.Context) (woken <-chan struct{}, patient bool) {
	if ctx.Done() == nil && g.batch.state.Load() == quick {
		return g.lasted, true
	}
	return g.woken, false
}

// id returns the ID of call number i of the group, which was woken.
func (g *group) id(ctx context.Context, i int64, patient bool) (subjects.ID, error) {
	b := g.batch
	if b.state.Load() == slow {
		if patient {
			b.gaveUp.Add(1)
			return 0, b.m.target.gaveUp(context.DeadlineExceeded)
		}
		if err := b.waitSlow(ctx); err != nil {
			return 0, err
		}
	}
	if i == g.passOn() && b.passing && g.next != nil {
		g.pass()
	}
	n := g.base + i
	if b.asked < b.n {
		n = b.taken.Add(1) - 1
	}
	if b.err != nil && n >= int64(b.runs.Len()) { // set before the channel was closed; the first calls may have got IDs
		return 0, b.err
	}
	return idAt(b.runs, n), nil
}

// waitSlow returns nil when the batch is answered, or the reason why the call gives up.
func (b *batch) waitSlow(ctx context.Context) error {
	late := b.late
	if _, ok := ctx.Deadline(); ok {
		late = nil
	} else if time.Since(b.since) > slowAfter { // else the call joined after the timer of the batch began
		var cancel context.CancelFunc
		ctx, cancel = b.m.target.client.bounded(ctx)
		defer cancel()
		late = nil
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		b.gaveUp.Add(1)
		return b.m.target.gaveUp(ctx.Err())
	case <-late:
		b.gaveUp.Add(1)
		return b.m.target.gaveUp(context.DeadlineExceeded)
	}
}
