package oneregistry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Config is how a watch works. Home, Bus, Refuse, Alarm and Process must be set.
type Config struct {
	Home Home
	Bus  Bus
	// Process and Instance are this worker's; Layout, Epoch and Unit those of its snowflakes.
	Process, Layout string
	Epoch, Unit     int64
	Instance        func() string
	// Pin is the ID of the registry to rest on; "" for any.
	Pin string
	// StateDir is the directory in which yielding is remembered; "" remembers it in the registry alone.
	StateDir string
	// Refuse is called with what must not be served from now on. No ID of a refused mode may leave the process once it
	// has returned.
	Refuse func(Refused)
	// Alarm is called, once per event, with what an operator must look at. The message about one event does not stand
	// for that about another.
	Alarm func(event, message string)
	// Jitter returns a random time below d.
	Jitter func(d time.Duration) time.Duration
	Log    *slog.Logger
}

// Refused says for each mode why it must not be served; nil if it may be.
type Refused struct{ Segments, Snowflakes, Tags error }

// equal reports whether the same is refused in the same words.
func (r Refused) equal(o Refused) bool {
	same := func(a, b error) bool { return a == b || a != nil && b != nil && a.Error() == b.Error() }
	return same(r.Segments, o.Segments) && same(r.Snowflakes, o.Snowflakes) && same(r.Tags, o.Tags)
}

const (
	// announceAfter is how long a worker listens at least before it announces its registry, and announceSpread what it
	// adds at random: the first of a registry to speak spares all others.
	announceAfter  = 5 * time.Second
	announceSpread = 3 * time.Second
	// forgetAfter is how long a registry that is not heard any more counts as connected: one announcement can be lost.
	forgetAfter = 2*(announceAfter+announceSpread) + time.Second
	// settledAfter is how long a worker listens until it has heard every registry.
	settledAfter = announceAfter + announceSpread + 2*time.Second
	// askTimeout bounds the question at the start. Someone may listen to all subjects and never answer.
	askTimeout = 400 * time.Millisecond
	// callTimeout bounds one call to another registry, or to this one.
	callTimeout = 2 * time.Second
	// tickEvery is how often a watch looks at what is due, restEvery how often while it knows of no other registry,
	// retryAfter how long it waits after what failed, and readEvery how often it looks for a registry that it does not
	// know yet.
	tickEvery  = 100 * time.Millisecond
	restEvery  = time.Second
	retryAfter = time.Second
	readEvery  = 500 * time.Millisecond
)

// A Watch watches for a second registry, and does what must be done about one. Its methods are safe for concurrent use.
type Watch struct {
	cfg   Config
	heard chan Notice // announcements not looked at yet

	reading chan struct{} // has room for one: the goroutine that put a value in may read the registry

	mu        sync.Mutex
	began     time.Time
	asked     bool   // who is there
	own       Notice // as read last; ID is "" before
	verdict   Verdict
	live      []int
	counts    bool              // whether live was ever read
	others    map[string]*other // by ID
	renewing  bool              // other workers may have raised tags of which this one knows nothing
	memory    *memory           // on disk; nil if there is nothing to remember
	yielded   time.Time         // when this worker stopped for good; zero if it did not
	passed    bool              // the marks of this worker are merged into the registry that stays
	refused   Refused
	alarmed   map[string]bool // by event
	malformed int

	// Only the goroutine that runs Start, and then Run, uses these.
	next  time.Time // of the next announcement
	read  time.Time // of the next look for a registry that is not known
	retry time.Time // of the next attempt at what failed
	// attempts counts merges that failed because of single tags, and lifted the tags of the last one.
	attempts, lifted int
}

// An other is another registry that was heard.
type other struct {
	notice  Notice
	heard   time.Time
	checked time.Time // of the last check that it is another one, and serves
	hold    error     // why this worker issues no segments meanwhile; nil if it does
	flakes  bool      // nor snowflakes
	// unanswered is how many checks in a row got no answer.
	unanswered int
	// unread is how many checks in a row could not read this worker's own registry.
	unread int
}

// New returns a watch. It refuses everything until [Watch.Start] has asked who is there.
func New(cfg Config) *Watch {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watch{
		cfg: cfg, began: time.Now(), heard: make(chan Notice, 64), reading: make(chan struct{}, 1),
		others: map[string]*other{}, alarmed: map[string]bool{},
	}
	w.own = Notice{Layout: cfg.Layout, Epoch: cfg.Epoch, Unit: cfg.Unit, Process: cfg.Process}
	w.settleLocked()
	return w
}

var errAsking = errors.New("this worker has not asked yet which registries there are")

// Run watches until ctx ends. Call it once, after [Watch.Start].
func (w *Watch) Run(ctx context.Context) {
	timer, ticked := time.NewTimer(0), time.Now()
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case n := <-w.heard:
			w.take(ctx, n)
			continue // what was heard may put the announcement off
		default:
		}
		ticks := ticked.Add(w.pause())
		timer.Reset(min(time.Until(w.next), time.Until(ticks)))
		select {
		case n := <-w.heard:
			w.take(ctx, n)
			continue
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if !time.Now().Before(w.next) {
			w.speak(ctx)
		}
		if !time.Now().Before(ticks) {
			ticked = time.Now()
			w.tick(ctx)
		}
	}
}

// pause returns how long to wait between two ticks.
func (w *Watch) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own.ID != "" && len(w.others) == 0 && !w.renewing && w.verdict.Yields == "" {
		return restEvery
	}
	return tickEvery
}

// speak announces the registry, and then reads it again. Its workers are counted before the first time: how many there
// are decides which of two registries stops where their workers cannot call one another.
func (w *Watch) speak(ctx context.Context) {
	w.postpone()
	own, _ := w.mine()
	switch {
	case own.ID == "":
	case w.hasCounted():
		w.announce()
		w.reread(ctx, counted)
	default:
		w.reread(ctx, counted)
		w.announce()
	}
}

// Hear takes in an announcement, which anyone may have sent. It does not block.
func (w *Watch) Hear(data []byte) {
	n, err := parseNotice(data)
	if err != nil {
		w.mu.Lock()
		w.malformed++
		first := w.malformed == 1
		w.mu.Unlock()
		if first {
			w.cfg.Log.Warn("an announcement of a registry cannot be read, and is ignored, as all others like it; "+
				"allow only workers to publish on its subject", "error", err)
		}
		return
	}
	if n.Process == w.cfg.Process {
		return
	}
	select {
	case w.heard <- n:
	default: // it comes again
	}
}

// take looks at an announcement.
func (w *Watch) take(ctx context.Context, n Notice) {
	own, verdict := w.mine()
	switch {
	case own.ID == "": // asked for as soon as this worker knows its own
	case own.Differs(n):
		w.meet(ctx, n)
	default:
		w.postpone()
		if n.Yields != verdict.Yields || n.Merged != verdict.Merged {
			w.reread(ctx, counted)
		}
	}
}

// mine returns what this worker knows of its own registry.
func (w *Watch) mine() (Notice, Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own, w.verdict
}

// postpone puts the next announcement off.
func (w *Watch) postpone() {
	w.next = time.Now().Add(announceAfter + w.cfg.Jitter(announceSpread))
}

// tick does what is due.
func (w *Watch) tick(ctx context.Context) {
	now := time.Now()
	own, _ := w.mine()
	if own.ID == "" {
		if now.After(w.read) {
			w.arrive(ctx)
			// Where hundreds start at once, a busy JetStream is asked less often.
			w.read = time.Now().Add(max(readEvery, 4*time.Since(now)))
		}
		if time.Since(w.began) > settledAfter {
			w.allow() // without worker numbers, but perhaps with a table
		}
		return
	}
	w.forget(now)
	if now.After(w.retry) && w.pending(ctx) {
		w.retry = now.Add(retryAfter)
	}
}

// arrive reads the registry of a worker that could not do so when it started, and asks which others there are.
func (w *Watch) arrive(ctx context.Context) {
	w.reread(ctx, !counted)
	if own, _ := w.mine(); own.ID == "" {
		return
	}
	if err := w.askAll(ctx); err != nil {
		w.cfg.Log.Error("another worker makes snowflakes of other fields", "error", err)
	}
	w.join()
	w.allow()
	w.next = time.Now().Add(w.cfg.Jitter(retryAfter)) // the first of a fleet to speak spares all others
}

// allow ends the refusal with which a watch begins.
func (w *Watch) allow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = true
	w.settleLocked()
}

// misplacedLocked reports whether this worker rests on another registry than --registry names. It serves nothing, and
// speaks for no registry, whose other workers may serve.
func (w *Watch) misplacedLocked() bool {
	return w.cfg.Pin != "" && w.own.ID != "" && !w.own.Pinned
}

func (w *Watch) misplaced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.misplacedLocked()
}

// announce sends what this worker knows of its registry.
func (w *Watch) announce() {
	if w.misplaced() {
		return
	}
	own, _ := w.mine()
	if err := w.cfg.Bus.Announce(encode(own)); err != nil {
		w.cfg.Log.Debug("the registry was not announced", "error", err)
	}
}

func (w *Watch) join() {
	own, _ := w.mine()
	if own.ID == "" || w.misplaced() {
		return
	}
	if err := w.cfg.Bus.Join(own.ID); err != nil {
		w.cfg.Log.Error("cannot listen for questions about the registry, so a second one may not be noticed; "+
			"allow this worker to subscribe to the subjects of registries", "error", err)
	}
}

// counted has a registry read with its live workers. They are a list: a worker that starts, and meets no other
// registry, does without.
const counted = true

func (w *Watch) hasCounted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// reread reads the registry afresh, with its live workers if they are to be counted, and reports whether that
// succeeded. What follows from it is done: a verdict that another worker wrote is obeyed.
func (w *Watch) reread(ctx context.Context, count bool) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select { // what was read earlier must not take the place of what was read later
	case w.reading <- struct{}{}:
		defer func() { <-w.reading }()
	case <-ctx.Done():
		return false
	}
	f, err := w.cfg.Home.Read(ctx, count)
	if known, _ := w.mine(); err == nil && f.Segments == "" && f.Numbers == "" && known.ID != "" {
		err = errors.New("it was wiped") // to others, this worker still rests on the one that it remembers
	}
	if err != nil {
		w.cfg.Log.Debug("the registry was not read", "error", err)
		w.mu.Lock()
		w.own.Fresh = false
		w.mu.Unlock()
		return false
	}
	before, _ := w.mine()
	w.adopt(ctx, f, count)
	own, verdict := w.mine()
	if before.ID != "" && own.ID != before.ID {
		w.cfg.Log.Info("this worker rests on another registry now", "registry", own.ID, "before", before.ID)
		w.join()
	}
	if verdict.Yields != "" {
		w.alarm(verdict.Yields, "registry %v has yielded to %s, which serves the same subjects: this worker "+
			"serves nothing; connect it to the NATS that has the other one, or see `natsid registry`",
			own, verdict.Yields)
	}
	return true
}

// adopt takes over what was read.
func (w *Watch) adopt(ctx context.Context, f Facts, count bool) {
	f = w.remember(ctx, f)
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &w.own
	if f.Verdict.Yields != "" && w.verdict.Yields != f.Verdict.Yields {
		// One that begins its life after the merge has loaded nothing that could be missing.
		w.yielded, w.passed = time.Now(), n.ID == "" && f.Verdict.Merged
		for _, o := range w.others {
			o.hold = nil // nothing is served anyway
		}
	}
	n.Segments, n.Numbers, n.ID = f.Segments, f.Numbers, cmp.Or(f.Segments, f.Numbers)
	if n.Made = f.Made; count {
		n.Workers, w.live, w.counts = len(f.Live), f.Live, true
	}
	n.Pinned, n.Fresh = n.Is(w.cfg.Pin), true
	n.Settled = time.Since(w.began) > settledAfter
	n.Instance = w.cfg.Instance()
	if w.verdict.Yields != "" && f.Verdict.Yields == "" {
		w.renewing = true // the registry may have served and been merged meanwhile
	}
	w.verdict, n.Yields, n.Merged = f.Verdict, f.Verdict.Yields, f.Verdict.Merged
	if w.misplacedLocked() && n.Yields == "" {
		n.Yields = w.cfg.Pin // to those that it asks: it does not serve
	}
	w.settleLocked()
}

// settleLocked works out what must be refused, and refuses it.
func (w *Watch) settleLocked() {
	var r Refused
	switch own := w.own; {
	case !w.asked:
		r = Refused{errAsking, errAsking, errAsking}
	case w.verdict.Yields != "":
		why := fmt.Errorf("registry %s has yielded to %s, which serves the same subjects: "+
			"see `natsid registry`", own.ID, w.verdict.Yields)
		r = Refused{why, why, why}
	case w.misplacedLocked():
		why := fmt.Errorf("this worker rests on registry %s, but --registry is %s: "+
			"connect it to the NATS that has that one, or change --registry", own.ID, w.cfg.Pin)
		r = Refused{why, why, why}
	case own.ID == "" && w.memory != nil:
		why := fmt.Errorf("the registry of this worker had yielded to %s, and cannot be read now", w.memory.Yields)
		r = Refused{why, why, why}
	case w.renewing:
		r.Segments = errors.New("the tags are being read again after marks of another registry were merged: retry")
	}
	for _, o := range w.others {
		if o.hold != nil && r.Segments == nil {
			r.Segments = o.hold
		}
		if o.hold != nil && o.flakes && r.Snowflakes == nil {
			r.Snowflakes = o.hold
		}
	}
	if !w.refused.equal(r) {
		w.refused = r
		w.cfg.Refuse(r)
	}
}

// forget drops registries that are not heard any more. A link that was lost ends what was waited for: the other one is
// not behind the same subjects then.
func (w *Watch) forget(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.others {
		if now.Sub(o.heard) > forgetAfter {
			w.dropLocked(o)
			w.cfg.Log.Warn("another registry is not heard any more", "registry", o.notice.ID)
		}
	}
	w.settleLocked()
}

// dropLocked forgets a registry. What was raised while something was held because of it is read first.
func (w *Watch) dropLocked(o *other) {
	delete(w.others, o.notice.ID)
	w.renewing = w.renewing || o.hold != nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: strings, numbers and times
	}
	return b
}
