// Package relay determines whether this worker can load; it is internal to natsid and may change.
//
// A load that fails, or takes unusually long, is a doubt and no more: one locked row can be the cause. A probe decides:
// a write that depends on no tag. While probes fail, or have no answer, the worker is unable: it sends requests that
// memory cannot serve to a worker that can load, and takes none of others. One write that succeeds ends that.
//
// An unable worker stays in the queue groups of callers, so none relies on what another one does. How requests are
// sent, and why IDs stay unique and ordered, is in package worker.
//
// While loads succeed nothing is sent and nothing is written.
package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/latency"
)

const (
	// leastPatience is how long a load, or a probe, may take before it is a doubt; more where the store is slow.
	leastPatience = 300 * time.Millisecond
	// probeEvery is about how often an unable worker probes, and looks for another worker.
	probeEvery = time.Second
	// probeTimeout bounds a probe. The first check of a registry takes 2 s where no other worker answers.
	probeTimeout = 3 * time.Second
	findTimeout  = time.Second
)

// ErrNobody is returned by [Config.Find] if no worker takes requests of others.
var ErrNobody = errors.New("no other worker can load")

var (
	errNoAnswer = errors.New("a write to the store has no answer yet")
	errUnknown  = errors.New("no other worker was looked for yet")
)

// Config configures a [Watch]. All fields must be set but Log.
type Config struct {
	// Probe returns nil once the store has acknowledged a write that was sent after the call, or if nothing speaks
	// against the store.
	Probe func(context.Context) error
	// Find returns nil if another worker takes requests of this one, [ErrNobody], or another error if that is unknown.
	Find func(context.Context) error
	// Change is called when this worker becomes unable, after each search for another one, and when it can load again.
	// It must not block.
	Change func(isUnable, isFound bool)
	Log    *slog.Logger // nil discards
}

// A Watch watches the loads of one worker. It is safe for concurrent use.
type Watch struct {
	cfg     Config
	doubted chan struct{}   // has room for one word that loads are in doubt
	wrote   chan struct{}   // has room for one word that a write has succeeded
	anew    chan struct{}   // has room for one word that a probe under way may never end
	slowest latency.Slowest // write that succeeded

	mu      sync.Mutex
	ended   time.Time // when the last write ended that succeeded
	isDoubt bool      // a load failed or hangs, and no write has succeeded since
	trouble error     // why this worker is unable; nil without a doubt
	found   error     // the end of the last search for another worker; errUnknown without trouble
}

// New returns a watch. It does nothing before [Watch.Run].
func New(cfg Config) *Watch {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Watch{
		cfg: cfg, doubted: make(chan struct{}, 1), wrote: make(chan struct{}, 1), anew: make(chan struct{}, 1),
		found: errUnknown,
	}
}

// Load is called when a load begins. It returns a function to be called with its outcome; silent says that it shows
// nothing of the store: the store refused the tag, or another worker loaded.
func (w *Watch) Load() (ended func(err error, silent bool)) {
	began := time.Now()
	late := time.AfterFunc(w.patience(), func() { w.failed(began) })
	return func(err error, silent bool) {
		late.Stop()
		switch {
		case silent:
		case err == nil:
			w.succeeded(began)
		default:
			w.failed(began)
		}
	}
}

// Suspect has the store probed now, by a write that begins after the call: call it when a connection was made again.
func (w *Watch) Suspect() {
	w.failed(time.Now())
	signal(w.anew)
}

// Trouble returns why this worker is unable, nil if it can load as far as it knows.
func (w *Watch) Trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}

// IsAnswered reports whether this worker is unable, and another one answers what this one sends it.
func (w *Watch) IsAnswered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found == nil
}

// IsSettled reports whether it is known whether this worker can load and, if it cannot, whether another one can.
func (w *Watch) IsSettled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.isDoubt || w.found == nil || errors.Is(w.found, ErrNobody)
}

// Run watches until ctx ends. Call it once.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.doubted:
			next := time.Now().Add(probeEvery)
			w.resolve(ctx)
			_ = jitter.Sleep(ctx, time.Until(next)) // doubts that a probe ends at once cost one write a second
		}
	}
}

// resolve returns when loads are no longer in doubt, or ctx has ended.
func (w *Watch) resolve(ctx context.Context) {
	isUnable := false
	for w.isDoubted() && ctx.Err() == nil {
		next := time.Now().Add(jitter.Around(probeEvery))
		if isUnable = w.probe(ctx) || isUnable; w.isDoubted() {
			w.rest(ctx, time.Until(next))
		}
	}
	if isUnable && ctx.Err() == nil {
		w.cfg.Log.Info("this worker can load again")
		w.cfg.Change(false, false)
	}
}

// probe probes once, and returns when that has ended, or no longer matters. It reports whether this worker is unable.
func (w *Watch) probe(ctx context.Context) (isUnable bool) {
	select {
	case <-w.anew:
	default:
	}
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	began, ended := time.Now(), make(chan error, 1)
	wait.Go(func() { ended <- w.cfg.Probe(probing) })
	late := time.NewTimer(w.patience())
	defer late.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				return w.unable(ctx, err) || isUnable
			}
			w.succeeded(began)
			return isUnable
		case <-late.C:
			isUnable = w.unable(ctx, errNoAnswer)
		case <-w.wrote:
			return isUnable
		case <-w.anew:
			signal(w.anew) // so that rest ends, too
			return isUnable
		}
	}
}

// unable notes why this worker is unable, and looks for another one. It reports false if a write has succeeded.
func (w *Watch) unable(ctx context.Context, why error) bool {
	w.mu.Lock()
	isDoubt, isNews, before := w.isDoubt, w.trouble == nil, w.found
	if isDoubt {
		w.trouble = why
	}
	w.mu.Unlock()
	if !isDoubt || ctx.Err() != nil {
		return false
	}
	if isNews {
		w.cfg.Change(true, false)
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found := w.cfg.Find(ctx)
	w.mu.Lock()
	if isDoubt = w.isDoubt; isDoubt {
		w.found = found
	}
	w.mu.Unlock()
	if !isDoubt {
		return true
	}
	w.cfg.Change(true, found == nil)
	if found == nil && before != nil {
		w.cfg.Log.Warn("this worker cannot load, and another one answers for it; "+
			"check the connection to the store, and rights", "error", why)
	}
	return true
}

// rest waits until a write has succeeded, the store is suspected or ctx ends, for d at most.
func (w *Watch) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.wrote:
	case <-w.anew:
	case <-ctx.Done():
	}
}

// succeeded notes that a write succeeded.
func (w *Watch) succeeded(began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = time.Now()
	w.slowest.Note(w.ended.Sub(began))
	if w.isDoubt {
		w.isDoubt, w.trouble, w.found = false, nil, errUnknown
		signal(w.wrote)
	}
}

// failed notes that a load failed, or is late. It is no doubt if a write has succeeded since it began.
func (w *Watch) failed(began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended.Before(began) {
		return
	}
	if !w.isDoubt {
		w.isDoubt = true
		select {
		case <-w.wrote: // of the doubt before
		default:
		}
	}
	signal(w.doubted)
}

// patience is how long a write may take.
func (w *Watch) patience() time.Duration { return max(leastPatience, 3*w.slowest.Get()) }

func (w *Watch) isDoubted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isDoubt
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
