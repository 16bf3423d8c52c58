package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errRefused = errors.New("writes are refused")

// A rig is a watch in virtual time, with the store and the other workers.
type rig struct {
	testing.TB
	*Watch
	ctx context.Context

	mu     sync.Mutex
	fails  error // of each write; nil if writes succeed
	hangs  bool  // no write ends
	takes  time.Duration
	others error // of each search
	writes int   // that were tried
	// What Change said last.
	isUnable, isFound bool
}

func play(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &rig{TB: t, ctx: ctx, takes: 5 * time.Millisecond}
		r.Watch = NewWatch(WatchConfig{Probe: r.write, Find: r.find, Change: r.change})
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { r.Run(ctx) })
		f(r)
	})
}

func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// write is one write to the store.
func (r *rig) write(ctx context.Context) error {
	r.mu.Lock()
	r.writes++
	fails, hangs, takes := r.fails, r.hangs, r.takes
	r.mu.Unlock()
	if hangs {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return fails
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rig) tried() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// load is a load, which is a write.
func (r *rig) load() {
	time.Sleep(time.Millisecond) // after the write before
	ended := r.Load()
	ended(r.write(r.ctx), false)
}

func (r *rig) find(context.Context) error {
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others
}

func (r *rig) change(isUnable, isFound bool) {
	r.set(func() { r.isUnable, r.isFound = isUnable, isFound })
}

// want checks what the watch says d later.
func (r *rig) want(d time.Duration, isUnable, isFound bool) {
	r.Helper()
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if (r.Trouble() != nil) != isUnable || r.isUnable != isUnable || r.isFound != isFound || r.IsAnswered() != isFound {
		r.Errorf("trouble %v, answered %v, and it said unable %v, found %v; want %v and %v",
			r.Trouble(), r.IsAnswered(), r.isUnable, r.isFound, isUnable, isFound)
	}
}

func TestALoadThatFailsMakesAWorkerUnableAndOneWriteEndsThat(t *testing.T) {
	play(t, func(r *rig) {
		r.load()
		r.want(0, false, false)
		r.set(func() { r.fails = errRefused })
		r.load()
		r.want(20*time.Millisecond, true, true)
		if !errors.Is(r.Trouble(), errRefused) {
			r.Error(r.Trouble())
		}
		r.set(func() { r.fails = nil })
		r.want(1600*time.Millisecond, false, false) // by a probe
		r.set(func() { r.fails = errRefused })
		r.load()
		r.want(1100*time.Millisecond, true, true)
		r.set(func() { r.fails = nil })
		r.load()
		r.want(0, false, false)
	})
}

// A caller waits for no longer than that.
func TestAStoreThatHangsIsNoticedWithin600Ms(t *testing.T) {
	play(t, func(r *rig) {
		r.set(func() { r.hangs = true })
		go r.load()
		r.want(299*time.Millisecond, false, false)
		r.want(310*time.Millisecond, true, true)
		r.set(func() { r.hangs = false })
		r.want(5*time.Second, false, false)
	})
}

func TestASlowStoreHasThreeTimesAsLong(t *testing.T) {
	play(t, func(r *rig) {
		r.set(func() { r.takes = 500 * time.Millisecond })
		r.load()
		r.want(3*time.Second, false, false) // until the first doubt is over
		r.set(func() { r.takes = 1400 * time.Millisecond })
		r.load()
		r.want(0, false, false)
		if r.tried() != 2 && r.tried() != 3 {
			r.Errorf("%d writes", r.tried())
		}
	})
}

// One locked row is no fault of the store.
func TestALoadThatFailsWhileOtherWritesSucceedCostsOneProbeASecond(t *testing.T) {
	play(t, func(r *rig) {
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			r.Load()(errRefused, false)
			time.Sleep(20 * time.Millisecond)
		}
		if r.want(0, false, false); r.tried() > 11 {
			r.Errorf("%d probes in 10 s", r.tried())
		}
		hung := r.Load()
		time.Sleep(time.Second)
		r.load()
		r.want(time.Minute, false, false)
		hung(errRefused, false)
		if before := r.tried(); r.tried() != before {
			r.Error("a load that began before a success is a doubt")
		}
	})
}

// What another worker loads for this one, or what the store says of a tag, shows nothing.
func TestASilentLoadIsNoDoubtAndEndsNone(t *testing.T) {
	play(t, func(r *rig) {
		r.Load()(errRefused, true)
		if r.want(time.Second, false, false); r.tried() > 0 {
			r.Errorf("%d probes", r.tried())
		}
		r.set(func() { r.fails = errRefused })
		r.load()
		r.Load()(nil, true)
		r.want(time.Second, true, true)
	})
}

func TestAnUnableWorkerLooksForAnotherEachSecond(t *testing.T) {
	play(t, func(r *rig) {
		r.set(func() { r.fails, r.others = errRefused, ErrNobodyLoads })
		r.load()
		r.want(100*time.Millisecond, true, false)
		if !r.IsSettled() {
			r.Error("nobody can load, and that is not known")
		}
		r.set(func() { r.others = nil })
		r.want(1600*time.Millisecond, true, true)
		r.set(func() { r.others = errors.New("no answer") })
		if r.want(1600*time.Millisecond, true, false); r.IsSettled() {
			r.Error("it is unknown whether another worker can load")
		}
		before := r.tried()
		time.Sleep(time.Minute)
		if n := r.tried() - before; n < 40 || n > 80 {
			r.Errorf("%d probes in a minute", n)
		}
	})
}

// The answer to a write can be lost with a connection: the probe would wait for it.
func TestASuspicionEndsAProbeThatHangs(t *testing.T) {
	play(t, func(r *rig) {
		r.set(func() { r.hangs = true })
		r.Suspect()
		r.want(400*time.Millisecond, true, true)
		r.set(func() { r.hangs = false })
		r.Suspect()
		r.want(50*time.Millisecond, false, false)
	})
}

func TestAStopLeavesAnUnableWorkerAsItIs(t *testing.T) {
	play(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.ctx)
		watch := NewWatch(WatchConfig{Probe: r.write, Find: r.find, Change: r.change})
		ended := make(chan struct{})
		go func() { watch.Run(ctx); close(ended) }()
		r.set(func() { r.fails = errRefused })
		watch.Load()(errRefused, false)
		time.Sleep(time.Second / 10)
		cancel()
		<-ended
		if watch.Trouble() == nil || !r.isUnable || !r.isFound {
			r.Error("it says that it can load")
		}
	})
}

func TestNothingIsWrittenWhileLoadsSucceed(t *testing.T) {
	play(t, func(r *rig) {
		for range 100 {
			r.load()
			time.Sleep(time.Second)
		}
		if r.tried() != 100 {
			r.Errorf("%d writes of 100 loads", r.tried())
		}
	})
}
