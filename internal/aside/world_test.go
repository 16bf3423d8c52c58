package aside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A world is workers that hear one another, in virtual time.
type world struct {
	t       *testing.T
	ctx     context.Context
	workers []*fake
	running sync.WaitGroup

	mu     sync.Mutex
	said   map[says]int
	silent bool          // no message arrives
	late   time.Duration // every message is; 1 ms if 0
}

// A fake is one worker of a world.
type fake struct {
	*Watch
	name string
	stop context.CancelFunc

	mu     sync.Mutex
	fails  error // of each write; nil if writes succeed
	hangs  bool  // no write ends
	takes  time.Duration
	out    bool // of the queue group, for another reason
	state  State
	leaves int // how often it left
	wrote  int
	probed int
}

var errRefused = errors.New("writes are refused")

func play(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{t: t, ctx: ctx, said: map[says]int{}}
		defer w.running.Wait()
		defer cancel()
		f(w)
	})
}

// add adds n workers of a registry and a kind of store.
func (w *world) add(n int, registry, kind string) (added []*fake) {
	for range n {
		f := &fake{name: fmt.Sprint("w", len(w.workers)+1), takes: 5 * time.Millisecond}
		f.Watch = New(Config{
			Process: f.name, Name: func() string { return f.name }, Kind: kind,
			Registry: func() string { return registry }, Probe: f.probeOf, Serves: f.serves, Change: f.change,
			Announce: func(m []byte) error { w.publish(m); return nil },
			Jitter:   func(d time.Duration) time.Duration { return rand.N(d) },
		})
		w.workers, added = append(w.workers, f), append(added, f)
		ctx, stop := context.WithCancel(w.ctx)
		f.stop = stop
		w.running.Go(func() { f.Run(ctx) })
	}
	return added
}

// publish delivers a message a little later.
func (w *world) publish(body []byte) {
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.said[m.Says]++
	silent, late := w.silent, max(w.late, time.Millisecond)
	w.mu.Unlock()
	if silent {
		return
	}
	w.running.Go(func() {
		time.Sleep(late)
		for _, f := range w.workers {
			f.Hear(body)
		}
	})
}

func (w *world) count(what says) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said[what]
}

func (f *fake) write(ctx context.Context) error {
	f.mu.Lock()
	hangs, fails, takes := f.hangs, f.fails, f.takes
	f.wrote++
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(takes)
	return fails
}

func (f *fake) probeOf(ctx context.Context) error {
	f.set(func(f *fake) { f.probed++ })
	return f.write(ctx)
}

func (f *fake) probes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probed
}

func (f *fake) serves() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.out
}

func (f *fake) change(s State, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (why == nil) != (s == Serving) {
		panic(fmt.Sprint(s, why))
	}
	if f.state = s; s == Leaving {
		f.leaves++
	}
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) is() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *fake) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leaves
}

func (f *fake) writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrote
}

// load loads once, and reports how it ended.
func (f *fake) load() error {
	ended := f.Load()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := f.write(ctx)
	ended(err, false)
	return err
}

func refuse(f *fake)  { f.fails = errRefused }
func hang(f *fake)    { f.hangs = true }
func restore(f *fake) { f.fails, f.hangs = nil, false }

// in returns how many workers are in the queue group.
func (w *world) in() (n int) {
	for _, f := range w.workers {
		if f.is() == Serving && f.serves() {
			n++
		}
	}
	return n
}

// loads lets a worker load every so often, until it is stopped.
func (w *world) loads(f *fake, every time.Duration) {
	w.running.Go(func() {
		for w.ctx.Err() == nil {
			_ = f.load()
			time.Sleep(every)
		}
	})
}
