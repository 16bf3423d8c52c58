package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A source loads ranges of all tags from the store, in [lanes] and with a timeout. It creates tags on first use, and
// counts and logs the outcomes of loads.
type source struct {
	cfg    *Config
	lanes  *lanes
	health health
	holdup holdup
	// elsewhere is true while [Allocator.TurnAway] refuses requests that memory cannot serve.
	elsewhere atomic.Bool

	ctx    context.Context // ends with stop
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	loading sync.WaitGroup
}

// A plan describes a load before it is made, and the state of the tag at that time.
type plan struct {
	tag      string
	n, floor int64
	made     time.Duration // when the plan was made
	fails    int           // loads that failed in a row
	changes  uint32        // number of announced changes of the tag
	discards uint32        // number of times that the IDs in memory were discarded
	unlisted bool          // the last listing lacked the tag
	isStrict bool          // the tag is known to be strict
	of       *buffer
}

// check returns an error if the range of l is empty or begins below the plan's floor (how far the tag was loaded
// before), so that a store that breaks its contract repeats no ID.
func (p plan) check(l Loaded) error {
	//mutant:check
	if l.Start < max(1, p.floor) || l.Len() < 1 || l.Step < 1 {
		return fmt.Errorf("segment: the store returned [%d, %d) of step %d, want up to %d IDs from %d or above",
			l.Start, l.End, l.Step, p.n, p.floor)
	}
	return nil
}

func newSource(cfg *Config) *source {
	s := &source{cfg: cfg, lanes: newLanes()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// start loads ranges for b on a goroutine of its own until no more is due, and reports true; or false if the source was
// stopped.
func (s *source) start(b *buffer) bool {
	isBegun := s.begin()
	if isBegun {
		go s.run(b)
	}
	return isBegun
}

// begin counts a run as under way and returns true, unless the source was stopped. The caller must then call run.
func (s *source) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.loading.Add(1)
	}
	return !s.stopped
}

// stop ends the loads under way; no other begins. The caller waits for their goroutines by s.loading.
func (s *source) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.cancel()
}

// run loads ranges until no more is due, and ends the run that begin counted. After a failure it pauses, and continues
// only if requests wait: otherwise the next request starts another run.
func (s *source) run(b *buffer) {
	defer s.loading.Done()
	for {
		p := b.plan()
		l, err := s.load(p)
		pause := b.takeIn(p, l, err)
		if pause > 0 && jitter.Sleep(s.ctx, pause) != nil || !b.more(err) {
			return
		}
	}
}

// errNobody is the outcome of a load of a strict tag that was skipped because no request waited for it.
var errNobody = errors.New("segment: the requests have expired before their load had a place")

// load loads one range, once it has a place in its lane. It skips a strict tag for which no request waits by then: no
// later request may use IDs of a load that began before it. With many strict tags and a slow store, other requests
// would expire behind loads that only make holes.
func (s *source) load(p plan) (l Loaded, err error) {
	began := time.Now()
	err = s.lanes.of(p).drive(s.ctx, s.cfg.patience(), func(ctx context.Context) (err error) {
		start := time.Now()
		if p.isStrict && !p.of.hasWaiters() {
			return errNobody
		}
		if err = s.holdup.err(); err != nil {
			return err
		}
		if l, err = s.loadOrCreate(ctx, p); err == nil {
			err = p.check(l)
		}
		if errors.Is(err, errNobody) {
			return err
		}
		if err == nil && !l.Passed {
			s.cfg.Granted(p.tag, l)
		}
		took := time.Since(start)
		if err == nil {
			s.lanes.slowest.Note(max(1, took)) // 0 means that none has succeeded
		}
		s.cfg.OnLoad(p.tag, took, err)
		return err
	})
	if errors.Is(err, errNobody) {
		return l, err
	}
	if !l.Passed { // another worker's load shows nothing about this worker's store
		s.health.note(began, err)
	}
	// Anyone may request a tag that does not exist, so that is not logged.
	if err != nil && !errors.Is(err, ErrUnknownTag) && !errors.Is(err, ErrRationed) && s.ctx.Err() == nil {
		s.cfg.Log.Warn("a load failed: the tag has only the IDs in memory until a load succeeds; see the error",
			"tag", p.tag, "ids", p.n, "error", err)
	}
	return l, err
}

// patience returns the time limit of a load that begins now.
func (c *Config) patience() time.Duration { return c.Enough(c.LoadTimeout) }

// trouble returns why ranges cannot be loaded, or nil: see [Allocator.Trouble].
func (s *source) trouble() error {
	if why := s.holdup.err(); why != nil {
		return why
	}
	return s.health.trouble()
}

// errNotYet is the outcome of a load of a tag that another worker has just created: some servers of the store already
// refuse to create the tag again, and others cannot read it yet. The next load will find it.
var errNotYet = errors.New("segment: the tag was created just now, and cannot be read yet")

// creates reports whether a tag is created on first use.
func (s *source) creates(tag string) bool { return s.cfg.AutoStep > 0 && s.cfg.AutoCreate(tag) }

// loadOrCreate loads a range, and creates the tag first if the tag is unknown and may be created. A missing tag that
// this process has loaded before (p.floor) was lost by the store, and is not created: its IDs would repeat. An operator
// must set where the tag continues.
func (s *source) loadOrCreate(ctx context.Context, p plan) (Loaded, error) {
	l, err := s.loadOnce(ctx, p)
	if !s.creates(p.tag) || p.floor > 0 || !isMissing(err) {
		return l, err
	}
	if err := s.create(ctx, p.tag); err != nil {
		return Loaded{}, err
	}
	if l, err = s.loadOnce(ctx, p); isMissing(err) {
		err = errNotYet
	}
	return l, err
}

// loadOnce calls the store. It loads a tag as a loose one until a load has found it to be strict.
//
// Law: the load that finds a tag to be strict has reserved nothing. The next load sends its compare-and-set after all
// requests that wait then. So strict order holds from the first ID that this worker issues of the tag.
func (s *source) loadOnce(ctx context.Context, p plan) (Loaded, error) {
	if !p.isStrict {
		l, err := s.cfg.Store.Load(ctx, p.tag, p.n, p.floor)
		if !errors.Is(err, ErrStrict) {
			return l, err
		}
		p.of.seal(l)
		if !p.of.hasWaiters() {
			return Loaded{}, errNobody
		}
	}
	return s.cfg.Store.LoadStrict(ctx, p.tag, p.of.join, p.floor)
}

// IsFinal reports whether a load failed although the store works, for a reason that retrying cannot fix.
func IsFinal(err error) bool {
	return errors.Is(err, ErrUnknownTag) || errors.Is(err, ErrExhausted) || errors.Is(err, ErrBadRow) ||
		errors.Is(err, ErrRationed) || errors.Is(err, ErrClock) || errors.Is(err, ErrUndecided) ||
		errors.Is(err, ErrStrict)
}

// isMissing reports whether a tag was never created, and may be created.
func isMissing(err error) bool {
	_, misnamed := errors.AsType[*NameError](err)
	return errors.Is(err, ErrUnknownTag) && !errors.Is(err, ErrDisabled) && !misnamed
}

// create creates a tag on first use, unless another worker was faster.
func (s *source) create(ctx context.Context, tag string) error {
	if err := s.cfg.Ration(); err != nil {
		return fmt.Errorf("%w: %w", ErrRationed, err)
	}
	_, err := s.cfg.Store.Create(ctx, Tag{Name: tag, Step: s.cfg.AutoStep}, false)
	if errors.Is(err, ErrExists) {
		return nil
	}
	if err != nil {
		return err
	}
	s.cfg.OnCreate(tag)
	return nil
}

// A holdup holds the reason of [Allocator.Hold]; empty while ranges are loaded.
type holdup struct{ why atomic.Pointer[error] }

func (h *holdup) err() error {
	if why := h.why.Load(); why != nil {
		return *why
	}
	return nil
}

// lanes bound the number of loads that are under way in the store at once. A tag whose loads hang, for example because
// another session has locked its row, occupies a place for the whole timeout of a load, and then retries. So tags are
// in separate lanes by how their last loads ended: failing tags queue behind one another, never in front of the others.
//
// The first load of a tag that hangs is still in the sound lane, and many tags may begin to hang at once. So a load in
// that lane is ended if another load waits for a place, once it has taken a quarter of its timeout and twice as long as
// recent loads that succeeded. Where the store is slow for all tags, no load is ended so: that would only double the
// store's work.
type lanes struct {
	sound    lane    // of tags whose last load succeeded; and of new tags
	troubled lane    // of tags of which one or two loads in a row failed
	stuck    lane    // of tags of which more loads in a row failed
	unlisted lane    // loads of names that the last listing lacked: most likely no such tags exist
	slowest  Slowest // of recent loads that succeeded, in all lanes
}

// newLanes returns lanes with a few places less in total than mysqlstore has connections to one database: polls and
// requests about tags need some, too.
func newLanes() *lanes {
	l := &lanes{
		sound:    lane{places: make(chan struct{}, 20)},
		troubled: lane{places: make(chan struct{}, 8)},
		stuck:    lane{places: make(chan struct{}, 4)},
		unlisted: lane{places: make(chan struct{}, 4)},
	}
	l.sound.slowest = &l.slowest
	return l
}

func (l *lanes) of(p plan) *lane {
	switch {
	case p.fails == 0 && p.unlisted:
		return &l.unlisted
	case p.fails == 0:
		return &l.sound
	case p.fails <= 2:
		return &l.troubled
	}
	return &l.stuck
}

// A lane admits at most as many loads at once as it has places, in order of arrival.
type lane struct {
	places  chan struct{}
	slowest *Slowest     // see lanes; nil where no load is ended for another one
	waiting atomic.Int64 // loads that wait for a place
}

// drive waits for a place in the lane and calls load, with a context that ends after timeout.
func (l *lane) drive(ctx context.Context, timeout time.Duration, load func(context.Context) error) error {
	l.waiting.Add(1)
	select {
	case l.places <- struct{}{}:
		l.waiting.Add(-1)
		defer func() { <-l.places }()
	case <-ctx.Done():
		l.waiting.Add(-1)
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout) //mutant:load-timeout
	defer cancel()
	if l.slowest != nil {
		defer time.AfterFunc(l.patience(timeout), func() {
			if l.waiting.Load() > 0 {
				cancel()
			}
		}).Stop()
	}
	return load(ctx)
}

// patience returns after what time a load is ended if another one waits: half of its time before any has succeeded.
func (l *lane) patience(timeout time.Duration) time.Duration {
	slowest := l.slowest.Get()
	if slowest == 0 {
		return timeout / 2
	}
	return max(timeout/4, 2*slowest)
}

// A health records how the last loads of any tags ended.
type health struct {
	mu       sync.Mutex
	last     error // of the last load that failed
	failures int   // in a row
	failed   time.Time
	released time.Time // when a hold ended: earlier loads may have failed because of the hold
}

// note records the outcome of a load that began at the given time. A refusal of a tag counts as a success: the store
// works.
func (h *health) note(began time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || IsFinal(err) {
		h.failures = 0
		return
	}
	if began.Before(h.released) {
		return
	}
	h.last, h.failed = err, time.Now()
	h.failures++
}

// release discards the failures so far, and ignores those of loads under way: a hold may have caused them.
func (h *health) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.released = 0, time.Now()
}

// trouble returns the error of the last load if at least two in a row failed, the last one recently.
func (h *health) trouble() error {
	const recent = 10 * time.Second
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures < 2 || time.Since(h.failed) > recent {
		return nil
	}
	return h.last
}

// A Slowest estimates how long an operation takes: it is the slowest of recent samples. A slower sample replaces it,
// and each other sample lowers it by an eighth, though not below that sample. The zero value has no sample yet. It is
// safe for concurrent use.
type Slowest struct{ ns atomic.Int64 }

// Note takes a sample.
func (s *Slowest) Note(took time.Duration) {
	for {
		old := s.ns.Load()
		if s.ns.CompareAndSwap(old, max(int64(took), old-old/8)) {
			return
		}
	}
}

// Get returns the estimate, 0 before the first sample.
func (s *Slowest) Get() time.Duration { return time.Duration(s.ns.Load()) }
