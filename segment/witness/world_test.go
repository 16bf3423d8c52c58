package witness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is workers on one bucket, in virtual time.
type world struct {
	t       *testing.T
	js      *streams
	workers []*worker
	deaf    bool // no worker hears another

	forgetful bool // a worker that starts does not remember all its floors

	reconnects atomic.Uint64

	registry  string    // of the bucket
	confirmed time.Time // that it takes the place of another
	embedded  bool      // the bucket is in the data directory

	mu     sync.Mutex
	ids    []segment.Range // issued, of the tag order
	alarms []string
}

// A worker is a process: the real allocator, store, bucket and witness.
type worker struct {
	w       *world
	name    string
	ids     *segment.Allocator
	store   *kvstore.Store
	witness *Witness
	refused error // guarded by w.mu
	begun   atomic.Bool
	stop    func()
	done    sync.WaitGroup
}

// play runs f in virtual time with a bucket that has the tag order of step 10.
func play(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, js: new(streams), registry: "r"}
		s := kvstore.New(w.js, kvstore.Config{Bucket: "b"})
		if _, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1}, true); err != nil {
			t.Fatal(err)
		}
		defer w.check()
		defer func() {
			for _, one := range w.all() {
				one.end(true)
			}
		}()
		f(w)
	})
}

// start starts a worker on a data directory, "" for none.
func (w *world) start(name, dir string) *worker {
	w.t.Helper()
	one, err := w.tryStart(name, dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return one
}

func (w *world) tryStart(name, dir string) (*worker, error) {
	one := &worker{w: w, name: name}
	one.store = kvstore.New(w.js, kvstore.Config{Bucket: "b", WentBack: func(why string) { one.witness.WentBack(why) }})
	var err error
	one.witness, err = Open(Config{
		Bucket: one.store.Own(), Store: one.store, Dir: dir, Name: func() string { return name },
		Poll:     time.Minute,
		Registry: w.identity,
		Embedded: w.embedded,
		Announce: func(m []byte) error { w.tell(m); return nil },
		Ask:      w.ask, Reconnects: w.reconnects.Load,
		Refuse: func(why error) { w.mu.Lock(); one.refused = why; w.mu.Unlock() },
		Allow:  func() { w.mu.Lock(); one.refused = nil; w.mu.Unlock() },
		Begun:  func(error) { one.begun.Store(true) },
		Alarm:  w.alarm, JournalAlarm: w.alarm, NewerAlarm: w.alarm,
	})
	if err != nil {
		return nil, err
	}
	one.ids = segment.New(segment.Config{
		Store: one.witness.Gate(one.store), Deadline: 1500 * time.Millisecond, MaxStep: 10,
	})
	one.witness.Use(memory{one.ids, w.forgetful})
	ctx, stop := context.WithCancel(context.Background())
	one.stop = stop
	one.done.Go(func() { one.witness.Run(ctx) })
	one.done.Go(func() { one.ids.Follow(ctx) })
	w.mu.Lock()
	w.workers = append(w.workers, one)
	w.mu.Unlock()
	return one, nil
}

type memory struct {
	*segment.Allocator
	forgot bool
}

// Forgot implements [Memory].
func (m memory) Forgot() bool { return m.forgot }

// end ends a worker: cleanly, or as kill -9 does.
func (one *worker) end(cleanly bool) {
	one.stop()
	one.ids.Close()
	one.done.Wait()
	if cleanly {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = one.witness.Stop(ctx)
	}
	one.w.mu.Lock()
	defer one.w.mu.Unlock()
	one.w.workers = slices.DeleteFunc(one.w.workers, func(o *worker) bool { return o == one })
}

// identify gives the bucket an identity.
func (w *world) identify(registry string, confirmed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.registry, w.confirmed = registry, time.Time{}
	if confirmed {
		w.confirmed = time.Now()
	}
}

func (w *world) identity(context.Context, bool) (string, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.registry, w.confirmed, nil
}

func (w *world) all() []*worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.workers)
}

// tell delivers a message to all workers, a moment later.
func (w *world) tell(m []byte) {
	if w.deaf {
		return
	}
	for _, one := range w.all() {
		time.AfterFunc(time.Millisecond, func() { one.witness.Hear(m) })
	}
}

// ask asks all workers, each of which answers a moment later.
func (w *world) ask(ctx context.Context, m []byte, hear func([]byte) bool) {
	if w.deaf {
		<-ctx.Done()
		return
	}
	for _, one := range w.all() {
		time.Sleep(time.Millisecond)
		if hear(one.witness.Hear(m)) {
			return
		}
	}
	<-ctx.Done()
}

func (w *world) alarm(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Log(message)
	w.alarms = append(w.alarms, message)
}

// alarmed returns how many alarms were raised.
func (w *world) alarmed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.alarms)
}

// take requests IDs from a worker as a caller does: none from one that refuses.
func (one *worker) take(n int64) error {
	if err := one.why(); err != nil {
		return err
	}
	ranges, err := one.ids.Take(context.Background(), "order", n)
	if err != nil {
		return err
	}
	if err := one.why(); err != nil {
		return err // they are not sent
	}
	one.w.mu.Lock()
	defer one.w.mu.Unlock()
	one.w.ids = append(one.w.ids, ranges...)
	return nil
}

func (one *worker) why() error {
	one.w.mu.Lock()
	defer one.w.mu.Unlock()
	return one.refused
}

func (one *worker) mustTake(n int64) {
	one.w.t.Helper()
	if err := one.take(n); err != nil {
		one.w.t.Fatalf("%s: %v", one.name, err)
	}
}

// check fails if an ID was issued twice.
func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := slices.Clone(w.ids)
	slices.SortFunc(ids, func(a, b segment.Range) int { return int(a.Start - b.Start) })
	for i := 1; i < len(ids); i++ {
		if ids[i].Start < ids[i-1].End {
			w.t.Errorf("issued twice: %v and %v", ids[i-1], ids[i])
		}
	}
}

// served waits until all workers serve, and fails if that takes longer than within.
func (w *world) served(within time.Duration) {
	w.t.Helper()
	for late := time.Now().Add(within); ; {
		var faults error
		for _, one := range w.all() {
			if err := one.take(1); err != nil {
				faults = errors.Join(faults, fmt.Errorf("%s: %w", one.name, err))
			}
		}
		if faults == nil {
			return
		}
		if time.Now().After(late) {
			w.t.Fatalf("not served after %v: %v", within, faults)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// repaired waits until the set-back was noticed and all workers serve.
func (w *world) repaired(within time.Duration) {
	w.t.Helper()
	for late := time.Now().Add(within); w.alarmed() == 0; time.Sleep(100 * time.Millisecond) {
		for _, one := range w.all() {
			_ = one.take(10)
		}
		if time.Now().After(late) {
			w.t.Fatalf("no alarm after %v", within)
		}
	}
	time.Sleep(time.Second)
	w.served(within)
}

// load makes workers load at a pace of one range for each a second.
func (w *world) load(seconds int, workers ...*worker) {
	w.t.Helper()
	for range seconds {
		for _, one := range workers {
			one.mustTake(10)
		}
		time.Sleep(time.Second)
	}
}
