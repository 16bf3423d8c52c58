// Package aside takes a worker that cannot load out of the queue group while another one can, so that its callers ask
// that one; it is internal to natsid and may change.
//
// A load that fails, or takes unusually long, is a doubt and no more: one locked row can be the cause. A probe
// decides, a write that depends on no tag. While a probe fails, or has no answer, the worker asks the others. Those
// that serve, and have written successfully since then, report it: the first few do, each after a moment of its own,
// and the rest hear them and are silent. Who reports promises to stay for 5 s. A report says how old its write is: one
// that began before a worker noticed its own trouble shows that worker nothing, as where the store goes away for all.
//
// Law: of all workers that hear one another, one stays. A worker stands aside only for 2 s after a report, whose sender
// stays for 5 s. So where the store is away for all, nobody reports, and all serve what is in memory.
//
// While loads succeed nothing is sent and nothing is written. What a silent listener or a stream does changes
// nothing, since only a report counts.
package aside

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"
)

// A State is whether a worker is in the queue group.
type State int

// The states of a worker.
const (
	// Serving: it is in the queue group.
	Serving State = iota
	// Leaving: it has left. What was delivered by then may still wait for a load.
	Leaving
	// Aside: what memory cannot serve is refused, since another worker can serve it.
	Aside
)

const (
	// relyFor is how long a report counts, and stayFor how long its sender stays: longer, since it is on its way.
	relyFor = 2 * time.Second
	stayFor = 5 * time.Second
	// askEvery is how often a worker that stands aside asks, and askSeldom how often one asks that hears no report.
	askEvery  = time.Second
	askSeldom = 4 * time.Second
	// spread is what is added at random before workers ask, or answer, that are to hear one another.
	spread = 100 * time.Millisecond
	// goneAfter is how long a worker stands aside that relied on one which takes its promise back.
	goneAfter = 500 * time.Millisecond
	// leaveTime is how long it takes until no more requests arrive: a caller that is refused before could meet the
	// same worker again.
	leaveTime = 150 * time.Millisecond
	// leastPatience is how long a load, or a probe, may take before it is a doubt; more where the store is slow.
	leastPatience = 300 * time.Millisecond
	probeTimeout  = 3 * time.Second
	probeEvery    = time.Second
	probeSeldom   = 2 * time.Second
	proofEvery    = 200 * time.Millisecond // at most, whoever asks
	maxMessage    = 1024
)

// Config configures a [Watch]. All fields must be set but Log.
type Config struct {
	Process string        // a random name of this process
	Name    func() string // of the worker, for people
	Kind    string        // of the store: a report of a worker on another kind says nothing
	// Registry returns the registry on which this worker rests, "" if it is not known yet.
	Registry func() string
	// Probe returns nil once the store has acknowledged a write that was sent after the call, or [ErrNoProof].
	Probe func(context.Context) error
	// Serves reports whether the worker is in the queue group, as far as other reasons go.
	Serves func() bool
	// Announce sends a message to all workers, whose [Watch.Hear] takes it.
	Announce func(message []byte) error
	// Change is called when the state has changed, with the reason unless it is Serving. It must not block.
	Change func(s State, why error)
	// Jitter returns a random time below d.
	Jitter func(d time.Duration) time.Duration
	Log    *slog.Logger // nil discards
}

// A Watch watches the loads of one worker, and hears what others report. It is safe for concurrent use.
type Watch struct {
	cfg    Config
	store  store
	heard  chan message
	probed chan error

	mu      sync.Mutex
	trouble error // of the last probe, unless a write has succeeded since

	// Only the goroutine of Run uses these.
	state  State
	since  time.Time // of the state
	probe  probe
	others others
}

// A message is what workers tell one another.
type message struct {
	Version  int    `json:"version"`
	Says     says   `json:"says"`
	Registry string `json:"registry,omitempty"`
	Kind     string `json:"store"`
	Process  string `json:"process"`
	Instance string `json:"instance"`
	// To is the worker that reported last, which answers at once, and the others only if it does not.
	To string `json:"to,omitempty"`
	// Age is how many milliseconds ago the write began that a report rests on, rounded up; 0 if it is no report.
	Age uint32 `json:"age_ms"`
}

// began returns when the write began that a report rests on, or later: what it took on its way is not known.
func (m message) began(now time.Time) time.Time {
	return now.Add(-time.Duration(m.Age) * time.Millisecond)
}

const version = 1

type says string

const (
	asks says = "who can load" // a question
	can  says = "I can load"   // a report and a promise
	goes says = "I leave"      // takes a promise back
)

// New returns a watch. It does nothing before [Watch.Run].
func New(cfg Config) *Watch {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Watch{
		cfg: cfg, store: store{wake: make(chan struct{}, 1)},
		heard: make(chan message, 64), probed: make(chan error, 1),
	}
}

// Load is called when a load begins. It returns a function to be called with its outcome; silent says that it shows
// nothing of the store: that refused the tag, or another worker loaded.
func (w *Watch) Load() (ended func(err error, silent bool)) { return w.store.load() }

// Suspect has the store probed.
func (w *Watch) Suspect() { w.store.suspect() }

// Trouble returns why the store cannot be written, as far as it is known.
func (w *Watch) Trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}

// Hear takes a message, which anyone may have sent. It does not block.
func (w *Watch) Hear(body []byte) {
	var m message
	if len(body) > maxMessage || json.Unmarshal(body, &m) != nil {
		return
	}
	if m.Version != version || m.Kind != w.cfg.Kind || m.Process == w.cfg.Process || !w.concerns(m) {
		return
	}
	select {
	case w.heard <- m:
	default: // it comes again
	}
}

// concerns reports whether a message is from a worker of the same registry. One that does not know its registry yet
// may ask, and may hear; whoever reports has written, and so knows it.
func (w *Watch) concerns(m message) bool {
	own := w.cfg.Registry()
	if m.Says != asks && m.Registry == "" {
		return false
	}
	return own == "" || m.Registry == "" || m.Registry == own
}

// tick is how often a watch looks at what is due while anything may be, at least. At rest it sleeps.
const tick = 20 * time.Millisecond

// Run watches until ctx ends. Call it once.
func (w *Watch) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	defer w.takeBack()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-w.heard:
			w.take(m, time.Now())
		case err := <-w.probed:
			w.takeProbe(err, time.Now())
		case <-w.store.wake:
		case <-timer.C:
		}
		now := time.Now()
		if w.probeIsDue(now) {
			probing, cancel := context.WithTimeout(ctx, probeTimeout)
			w.probe.began, w.probe.giveUp = now, cancel
			probes.Go(func() { defer cancel(); w.probed <- w.cfg.Probe(probing) }) // there is room for one
		}
		w.report(now)
		w.ask(now)
		w.move(now)
		if w.isAwake(now) {
			timer.Reset(w.untilNext(now))
		}
	}
}

// isAwake reports whether anything may be due soon.
func (w *Watch) isAwake(now time.Time) bool {
	return w.state != Serving || w.wonders(now) || !w.probe.began.IsZero() || w.store.isDoubted() ||
		!w.others.owes.IsZero() || now.Before(w.others.stays)
}

// untilNext returns how long a watch sleeps. What is spread over time is done on time.
func (w *Watch) untilNext(now time.Time) time.Duration {
	d := tick
	for _, t := range []time.Time{w.others.ask, w.others.owes} {
		if t.After(now) {
			d = min(d, t.Sub(now))
		}
	}
	return d
}

// move changes the state if it is time.
//
// Law: a worker leaves, and stays away, only while a report counts, and not before its own promise ends.
//
// Before it leaves, it probes once more, after the write that was reported, and gives up one from before that hangs.
// Where the store comes back for all, the first worker to notice reports it: all others would leave the whole load to
// that one.
func (w *Watch) move(now time.Time) {
	unable, relies := w.unable(now), now.Before(w.others.until)
	switch {
	case w.state == Serving && unable != nil && relies && !now.Before(w.others.stays):
		if !w.isWorse(now) {
			w.probe.next = now
			if w.hangs(now, w.store.patience()) {
				w.probe.giveUp()
			}
			return
		}
		w.cfg.Log.Warn("this worker cannot load, and another one can: it leaves the queue groups of segments and tags "+
			"until its store answers, or no other worker can load; check its connection to the store and its rights",
			"error", unable, "other", w.others.name)
		w.change(Leaving, unable)
	case w.state != Serving && unable == nil:
		w.cfg.Log.Info("this worker can load again")
		w.change(Serving, nil)
	case w.state != Serving && !relies:
		w.cfg.Log.Warn("no other worker can load either: this one serves what is in memory", "error", unable)
		w.change(Serving, nil)
	case w.state == Leaving && now.Sub(w.since) >= leaveTime:
		w.change(Aside, unable)
	}
}

func (w *Watch) change(s State, why error) {
	w.state, w.since = s, time.Now()
	w.cfg.Change(s, why)
}
