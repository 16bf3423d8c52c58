package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
)

const (
	// leastPatience is the shortest time after which a load or a probe without an answer raises a doubt. The time is
	// longer if the store is slow.
	leastPatience = 300 * time.Millisecond
	// probeEvery is the interval, roughly, at which a worker that cannot load probes the store, and looks for another
	// worker.
	probeEvery = time.Second
	// probeTimeout bounds a probe. The first check of a registry takes 2 s if no other worker answers.
	probeTimeout = 3 * time.Second
	findTimeout  = time.Second
)

var (
	errNoWrite = errors.New("a write to the store has no answer yet")
	errUnknown = errors.New("no other worker was looked for yet")
)

// WatchConfig configures a [Watch]. All fields must be set but Log.
type WatchConfig struct {
	// Probe returns nil once the store has acknowledged a write that was sent after the call, or if something else than
	// the store caused the doubt.
	Probe func(context.Context) error
	// Find returns nil if another worker takes the requests of this one, [ErrNobodyLoads] if none does, or another
	// error if that is unknown.
	Find func(context.Context) error
	// Change is called when this worker becomes unable to load, after each search for another worker, and when this
	// worker can load again. It must not block.
	Change func(isUnable, isFound bool)
	Log    *slog.Logger // nil discards
}

// A Watch determines whether this worker can load. It is safe for concurrent use.
//
// A load that fails, or takes unusually long, only raises a doubt: one locked row can be the cause. A probe decides: a
// write that depends on no tag. While probes fail, or get no answer, the worker is unable to load: it sends requests
// that memory cannot serve to a worker that can load, and takes none from other workers. The first write that succeeds
// ends this. While loads succeed, the watch sends and writes nothing.
//
// An unable worker stays in the queue groups of callers, so no worker depends on when another one leaves. How requests
// are sent, and why IDs stay unique and ordered, is described in relay.go.
type Watch struct {
	cfg     WatchConfig
	doubted chan struct{}   // a message means: loads are in doubt; has room for one
	poked   chan struct{}   // a message means: a write has succeeded, or a probe must begin now; has room for one
	slowest segment.Slowest // duration of writes that succeeded

	mu      sync.Mutex
	ended   time.Time // when the last successful write ended
	isDoubt bool      // a load failed or hangs, and no write has succeeded since
	trouble error     // why this worker is unable to load; nil without a doubt
	found   error     // the result of the last search for another worker; errUnknown without trouble
}

// NewWatch returns a watch. It does nothing before [Watch.Run].
func NewWatch(cfg WatchConfig) *Watch {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Watch{cfg: cfg, doubted: make(chan struct{}, 1), poked: make(chan struct{}, 1), found: errUnknown}
}

// Load is called when a load begins. It returns a function to call with the load's error when the load ends. silent
// says that the outcome proves nothing about the store: the store refused the tag, or another worker loaded.
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

// Suspect probes the store now, by a write that begins after the call. Call it after a reconnect.
func (w *Watch) Suspect() {
	w.failed(time.Now())
	signal(w.poked)
}

// Trouble returns why this worker is unable to load, nil if it can as far as it knows.
func (w *Watch) Trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}

// IsAnswered reports whether this worker is unable to load, and another worker answers the requests that it relays.
func (w *Watch) IsAnswered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found == nil
}

// IsSettled reports whether it is known whether this worker can load and, if it cannot, whether another one can.
func (w *Watch) IsSettled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.isDoubt || w.found == nil || errors.Is(w.found, ErrNobodyLoads)
}

// Run watches until ctx ends. Call it once.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.doubted:
			next := time.Now().Add(probeEvery)
			w.resolve(ctx)
			_ = jitter.Sleep(ctx, time.Until(next)) // so doubts that a probe ends cost at most one write a second
		}
	}
}

// resolve returns when loads are no longer in doubt, or ctx has ended.
func (w *Watch) resolve(ctx context.Context) {
	isUnable := false
	for w.isDoubted() && ctx.Err() == nil {
		next := time.NewTimer(jitter.Around(probeEvery))
		if isUnable = w.probe(ctx) || isUnable; w.isDoubted() {
			select {
			case <-next.C:
			case <-w.poked:
			case <-ctx.Done():
			}
		}
	}
	if isUnable && ctx.Err() == nil {
		w.cfg.Log.Info("this worker can load again")
		w.cfg.Change(false, false)
	}
}

// probe probes the store once, and reports whether this worker is unable to load. It returns when the probe has ended,
// or its result no longer matters.
func (w *Watch) probe(ctx context.Context) (isUnable bool) {
	select {
	case <-w.poked: // by what happened before this probe
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
			isUnable = w.unable(ctx, errNoWrite)
		case <-w.poked:
			signal(w.poked) // so that resolve begins the next probe without a pause
			return isUnable
		}
	}
}

// unable records why this worker is unable to load, and looks for another worker. It returns false if a write has
// succeeded.
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

// succeeded records that a write succeeded, which began at the given time.
func (w *Watch) succeeded(began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = time.Now()
	w.slowest.Note(w.ended.Sub(began))
	if w.isDoubt {
		w.isDoubt, w.trouble, w.found = false, nil, errUnknown
		signal(w.poked)
	}
}

// failed records that a load failed, or is late. This raises no doubt if a write has succeeded since the load began.
func (w *Watch) failed(began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended.Before(began) {
		return
	}
	w.isDoubt = true
	signal(w.doubted)
}

// patience returns how long a write may take before it raises a doubt.
func (w *Watch) patience() time.Duration { return max(leastPatience, 3*w.slowest.Get()) }

func (w *Watch) isDoubted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isDoubt
}
