package standby

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A world is workers in one queue group, in virtual time.
type world struct {
	t       *testing.T
	ctx     context.Context
	workers []*fake
	running sync.WaitGroup

	mu     sync.Mutex
	asked  int
	silent bool          // no message arrives
	late   time.Duration // each message is up to this late; 1 ms if 0
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
	out    bool                                  // of the queue group, for another reason
	asks   func(context.Context) ([]byte, error) // the answer to each question; nil for those of the world
	state  State
	leaves int // how often it left
	writes int // that were tried
}

var errRefused = errors.New("writes are refused")

func play(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{t: t, ctx: ctx}
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
			Registry: func() string { return registry }, Probe: f.write, Serves: f.serves, Change: f.change,
			Ask: func(ctx context.Context, question []byte) ([]byte, error) {
				f.mu.Lock()
				asks := f.asks
				f.mu.Unlock()
				if asks != nil {
					return asks(ctx)
				}
				return w.ask(ctx, question)
			},
		})
		w.workers, added = append(w.workers, f), append(added, f)
		ctx, stop := context.WithCancel(w.ctx)
		f.stop = stop
		w.running.Go(func() { f.Run(ctx) })
	}
	return added
}

// ask delivers a question to one worker of the queue group, as NATS does, and its answer.
func (w *world) ask(ctx context.Context, question []byte) ([]byte, error) {
	w.mu.Lock()
	w.asked++
	silent, late := w.silent, max(w.late, time.Millisecond)
	var in []*fake
	for _, f := range w.workers {
		if f.isIn() {
			in = append(in, f)
		}
	}
	w.mu.Unlock()
	time.Sleep(rand.N(late))
	if len(in) == 0 {
		return nil, ErrNobody
	}
	answers := make(chan []byte, 1)
	if !silent {
		in[rand.IntN(len(in))].Answer(question, func(a []byte) { answers <- a })
	}
	select {
	case a := <-answers:
		time.Sleep(rand.N(late))
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write is one write to the store.
func (f *fake) write(ctx context.Context) error {
	f.mu.Lock()
	f.writes++
	fails, hangs, takes := f.fails, f.hangs, f.takes
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(takes):
		return fails
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load is a load, which is a write.
func (f *fake) load(ctx context.Context) {
	ended := f.Load()
	ended(f.write(ctx), false)
}

func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) serves() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.out && f.state == Serving
}

func (f *fake) isIn() bool { return f.serves() }

func (f *fake) change(s State, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == Serving && s == Leaving {
		f.leaves++
	}
	f.state = s
}

// refuse refuses the writes of workers, and lets each notice it by a load.
func (w *world) refuse(fakes ...*fake) {
	for _, f := range fakes {
		f.set(func(f *fake) { f.fails = errRefused })
		w.running.Go(func() { f.load(w.ctx) })
	}
}

func heal(fakes ...*fake) {
	for _, f := range fakes {
		f.set(func(f *fake) { f.fails, f.hangs = nil, false })
	}
}

// in returns how many workers are in the queue group.
func (w *world) in() (n int) {
	for _, f := range w.workers {
		if f.isIn() {
			n++
		}
	}
	return n
}

// always checks each 10 ms for d that ok holds.
func (w *world) always(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !ok() {
			w.t.Fatalf("%v before the end: not %s", time.Until(end), what)
		}
	}
}

// within waits until ok holds, for d at most.
func (w *world) within(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within %v: %s", d, what)
		}
	}
}
