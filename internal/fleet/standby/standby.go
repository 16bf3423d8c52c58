// Package standby takes a worker that cannot load out of its queue groups while another worker can, so that callers
// reach that one; it is internal to natsid and may change.
//
// A load that fails, or takes unusually long, is a doubt and no more: one locked row can be the cause. A probe decides:
// a write that depends on no tag. While probes fail, or have no answer, the worker asks one worker of the queue group
// of segments, whichever NATS picks. That one answers that it can load once a write was acknowledged that began after
// the question arrived. Anything else, or silence, means that nobody can.
//
// Law: of all workers, one stays. A worker leaves, and stays out, only on an answer to a question that it asked after
// its own last successful write. Suppose that all are out, and that Y made the last write that any of these answers
// rests on. Y answered while it was in, so it left after that write, on an answer to a later question, which rests on
// a later write: a contradiction. No clocks of two machines are compared.
//
// Cost: a worker is out for up to relyFor after the one that answered has left for another reason, or was killed; for
// up to askEvery if no other worker is left in the queue group, which NATS says at once. Where callers have no other
// worker they learn during that time that nobody serves them.
//
// While loads succeed nothing is sent and nothing is written.
package standby

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A State is whether a worker is in the queue group.
type State int

// The states of a worker.
const (
	// Serving: it is in the queue group.
	Serving State = iota
	// Leaving: it has left. Requests that were delivered by then may still wait for a load.
	Leaving
	// Standby: requests that memory cannot serve are refused, since another worker can serve them.
	Standby
)

const (
	// relyFor is how long an answer counts, from the question on.
	relyFor = 2 * time.Second
	// askEvery is how often a worker asks, and askSeldom how often one asks that gets no answer; probeEvery is how
	// often it probes. All are jittered, so that of many workers in doubt few ask at once.
	askEvery, askSeldom = 800 * time.Millisecond, 4 * time.Second
	probeEvery          = time.Second
	askTimeout          = time.Second
	// tries is how many workers are asked in turn. Of those that NATS picks, some may be in doubt themselves.
	tries = 4
	// leaveTime is how long it takes until no more requests arrive: a caller that is refused before could reach the
	// same worker again.
	leaveTime = 150 * time.Millisecond
	// leastPatience is how long a load, or a probe, may take before it is a doubt; more where the store is slow.
	leastPatience = 300 * time.Millisecond
	// probeTimeout bounds a probe. The first check of a registry takes 2 s where no other worker answers.
	probeTimeout = 3 * time.Second
	// shareEvery is how often this worker writes at most to answer questions of all workers.
	shareEvery = 200 * time.Millisecond
	// maxAnswers bounds the questions that wait for a write at once.
	maxAnswers = 64
	maxMessage = 1024
)

var (
	// ErrNoProof is returned by [Config.Probe] if nothing speaks against the store, and nothing could be written to
	// prove it.
	ErrNoProof = errors.New("nothing can be written to the store to prove that loads succeed")

	// ErrNobody is returned by [Config.Ask] if no worker is in the queue group.
	ErrNobody = errors.New("no worker is there to be asked")

	errNoAnswer    = errors.New("a write to the store has no answer yet")
	errNoneCanLoad = errors.New("no worker that was asked can load")
)

// Config configures a [Watch]. All fields must be set but Log.
type Config struct {
	Process string        // a random name of this process
	Name    func() string // of the worker, for people
	Kind    string        // of the store: an answer of a worker on another kind counts as silence
	// Registry returns the registry on which this worker rests, "" if it is not known yet.
	Registry func() string
	// Probe returns nil once the store has acknowledged a write that was sent after the call, or [ErrNoProof].
	Probe func(context.Context) error
	// Serves reports whether the worker is in the queue group of segments.
	Serves func() bool
	// Ask sends a question to one worker of that queue group, whose [Watch.Answer] takes it, and returns the answer. An
	// error means that there is none.
	Ask func(ctx context.Context, question []byte) ([]byte, error)
	// Change is called when the state has changed, with the reason unless it is Serving. It must not block.
	Change func(s State, why error)
	Log    *slog.Logger // nil discards
}

// A message is a question, or the answer to one.
type message struct {
	Version  int    `json:"version"`
	CanLoad  bool   `json:"can_load"` // in an answer
	Registry string `json:"registry,omitempty"`
	Kind     string `json:"store"`
	Process  string `json:"process"`
	Instance string `json:"instance"`
}

const version = 1

// A Watch watches the loads of one worker, asks others, and answers them. It is safe for concurrent use.
type Watch struct {
	cfg     Config
	store   outcomes
	answers chan struct{} // one word for each question that waits for a write
	sharing chan struct{} // one word while a write is made for questions

	answering sync.WaitGroup

	mu     sync.Mutex
	state  State
	life   context.Context // of Run
	isLive bool            // Run runs

	// Only the goroutine of Run uses these.
	probe *probe
	until time.Time // the last answer counts until then
	wrote uint64    // how many writes had succeeded before the question to it
	asks  *jitter.Backoff
	ask   time.Time // when the next question is due
}

// New returns a watch. It does nothing before [Watch.Run].
func New(cfg Config) *Watch {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Watch{
		cfg: cfg, store: newOutcomes(), answers: make(chan struct{}, maxAnswers),
		sharing: make(chan struct{}, 1),
		asks:    jitter.NewBackoff(askEvery, askSeldom),
	}
}

// Load is called when a load begins. It returns a function to be called with its outcome; silent says that it shows
// nothing of the store: the store refused the tag, or another worker loaded.
func (w *Watch) Load() (ended func(err error, silent bool)) { return w.store.load() }

// Suspect has the store probed now, by a write that begins after the call: call it when a connection was made again.
func (w *Watch) Suspect() { w.store.suspect() }

// Trouble returns why the store cannot be written, as far as it is known.
func (w *Watch) Trouble() error { return w.store.whyUnable() }

// Run watches until ctx ends. Call it once.
func (w *Watch) Run(ctx context.Context) {
	w.setLive(ctx, true)
	defer w.answering.Wait()
	defer w.setLive(ctx, false)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.store.doubted:
			next := time.Now().Add(probeEvery)
			w.resolve(ctx)
			w.sleep(ctx, time.Until(next)) // doubts that a probe ends at once cost one write a second
		}
	}
}

// resolve ends a doubt: it returns once a write has succeeded, or ctx has ended, which leaves the state as it is.
func (w *Watch) resolve(ctx context.Context) {
	defer func() {
		w.probe.giveUp()
		w.probe, w.until, w.ask = nil, time.Time{}, time.Time{}
		w.asks.Reset()
	}()
	for ctx.Err() == nil && w.store.isDoubted() {
		if !w.fails(ctx, w.store.patience(), w.isSuspected()) {
			break
		}
		if now := time.Now(); !now.Before(w.ask) {
			w.hear(ctx, now)
			w.ask = time.Now().Add(w.asks.NextBackOff())
		}
		w.move(ctx)
		w.rest(ctx)
	}
	if w.State() != Serving && ctx.Err() == nil {
		w.cfg.Log.Info("this worker can load again")
		w.change(Serving, nil)
	}
}

// isSuspected reports whether the store was suspected since the last call. Then a question is due, too.
func (w *Watch) isSuspected() bool {
	select {
	case <-w.store.suspected:
		w.ask = time.Time{}
		w.asks.Reset()
		return true
	default:
		return false
	}
}

// hear asks whether another worker can load.
//
// Where the store comes back for all, the first worker to notice answers all others. So a worker that is in probes once
// more before it leaves, by a write that begins after the answer.
func (w *Watch) hear(ctx context.Context, asked time.Time) {
	wrote := w.store.writes()
	other, err := w.question(ctx)
	if errors.Is(err, ErrNobody) {
		w.until = time.Time{}
	}
	if err != nil || w.State() == Serving && !w.fails(ctx, max(leastPatience, w.store.patience()/2), true) {
		return
	}
	if w.State() == Serving {
		w.cfg.Log.Warn("this worker cannot load, and another one can: it leaves the queue groups of segments and tags "+
			"until its store answers, or no other worker can load; check its connection to the store and its rights",
			"error", w.Trouble(), "other", other)
	}
	w.until, w.wrote = asked.Add(relyFor), wrote
	w.asks = jitter.NewBackoff(askEvery, askEvery)
}

// move changes the state of a worker that cannot load, by the last answer.
//
// Law: the worker leaves, and stays out, only while an answer counts. It leaves only if no write has succeeded since
// before the question, and that is decided before it answers another one: an answer of its own could rest on that
// write.
func (w *Watch) move(ctx context.Context) {
	relies := time.Now().Before(w.until)
	switch {
	case w.State() == Serving && relies:
		if !w.leave() {
			return
		}
		w.cfg.Change(Leaving, w.Trouble())
		w.sleep(ctx, leaveTime)
		w.change(Standby, w.Trouble())
	case w.State() != Serving && !relies:
		w.cfg.Log.Warn("no other worker can load either: this one serves what is in memory", "error", w.Trouble())
		w.change(Serving, nil)
		w.asks = jitter.NewBackoff(askEvery, askSeldom)
	}
}

// leave reports whether the state is Leaving now.
func (w *Watch) leave() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.store.writes() != w.wrote {
		return false
	}
	w.state = Leaving
	return true
}

// rest waits until it is time to probe or to ask again, or a write has succeeded.
func (w *Watch) rest(ctx context.Context) {
	next := time.Now().Add(probeEvery*3/4 + jitter.UpTo(probeEvery/2))
	if w.ask.Before(next) {
		next = w.ask
	}
	if w.State() != Serving && w.until.Before(next) {
		next = w.until
	}
	w.sleep(ctx, time.Until(next))
}

// sleep waits, until a write has succeeded, the store is suspected or ctx ends at the latest.
func (w *Watch) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.store.wrote:
	case <-w.store.suspected:
		signal(w.store.suspected) // for isSuspected
	case <-ctx.Done():
	}
}

// State returns the state.
func (w *Watch) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *Watch) change(s State, why error) {
	w.mu.Lock()
	w.state = s
	w.mu.Unlock()
	w.cfg.Change(s, why)
}

// question asks, and returns the name of a worker that can load, or [ErrNobody] if no worker is in the queue group.
func (w *Watch) question(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := json.Marshal(w.message(false))
	for range tries {
		if err != nil || ctx.Err() != nil {
			break
		}
		var answer []byte
		if answer, err = w.cfg.Ask(ctx, body); err != nil {
			break
		}
		if m, valid := w.parse(answer); valid && m.CanLoad && m.Registry != "" {
			return m.Instance, nil
		}
	}
	if err == nil {
		err = errNoneCanLoad
	}
	w.cfg.Log.Debug("no other worker says that it can load", "error", err)
	return "", err
}

func (w *Watch) message(can bool) message {
	return message{version, can, w.cfg.Registry(), w.cfg.Kind, w.cfg.Process, w.cfg.Name()}
}

// parse reads a message, which anyone may have sent. It is valid if it is from another worker of the same registry, as
// far as both know theirs, and the same kind of store.
func (w *Watch) parse(body []byte) (m message, valid bool) {
	if len(body) > maxMessage || json.Unmarshal(body, &m) != nil {
		return m, false
	}
	own := w.cfg.Registry()
	same := own == "" || m.Registry == "" || own == m.Registry
	return m, m.Version == version && m.Kind == w.cfg.Kind && m.Process != w.cfg.Process && same
}

// Answer answers a question: reply is called once, at once with nothing if this worker cannot load. Answer does not
// block.
func (w *Watch) Answer(question []byte, reply func(answer []byte)) {
	arrived := time.Now()
	if _, valid := w.parse(question); !valid || !w.canLoad() {
		reply(nil)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx := w.life
	if !w.isLive || len(w.answers) == maxAnswers {
		reply(nil)
		return
	}
	w.answers <- struct{}{} // there is room: the lock is held
	w.answering.Go(func() {
		defer func() { <-w.answers }()
		var answer []byte
		if w.writes(ctx, arrived) && w.canLoad() {
			answer, _ = json.Marshal(w.message(true)) // a message always can be
		}
		reply(answer)
	})
}

func (w *Watch) setLive(ctx context.Context, isLive bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life, w.isLive = ctx, isLive
}

// canLoad reports whether this worker is in, as far as it knows, and can load. Once it is, [Watch.move] finds the write
// which the answer rests on.
func (w *Watch) canLoad() bool { return w.State() == Serving && w.Trouble() == nil && w.cfg.Serves() }

// writes reports whether a write has succeeded that began at since or later. It makes one if there was none, at most
// one each shareEvery for all questions.
func (w *Watch) writes(ctx context.Context, since time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case w.sharing <- struct{}{}:
		defer func() { <-w.sharing }()
	case <-ctx.Done():
		return false
	}
	if w.store.provedSince(since) {
		return true
	}
	time.Sleep(shareEvery - min(shareEvery, w.store.sinceWrite()))
	began := time.Now()
	err := w.cfg.Probe(ctx)
	switch {
	case err == nil:
		w.store.succeeded(began)
	case !errors.Is(err, ErrNoProof):
		w.store.suspect()
	}
	return err == nil
}
