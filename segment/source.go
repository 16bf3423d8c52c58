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
	// elsewhere is true while requests that memory cannot serve are refused at once.
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

	// isStrict says that the tag is known to be strict. A load of a strict tag reserves as many IDs as join returns:
	// see [Store.LoadStrict]. A load that finds the tag to be strict calls seal. hasWaiters reports whether a request
	// waits.
	isStrict   bool
	join       func() int64
	seal       func(Loaded)
	hasWaiters func() bool
}

// check returns an error if the store broke its contract: a store's fault must not repeat an ID.
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

// begin counts a run as under way, unless the source was stopped. After true call run.
func (s *source) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.loading.Add(1)
	}
	return !s.stopped
}

// stop ends the loads under way; no other begins. wait waits for them.
func (s *source) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.cancel()
}

func (s *source) wait() { s.loading.Wait() }

// run loads ranges until no more is due, and ends the run that begin counted. After a failure it pauses, and continues
// only if requests wait: otherwise the next request starts it again.
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

// load loads one range, once it has a place in its lane. It skips a strict tag for which no request waits by then: with
// many strict tags and a slow store, other requests would expire behind loads that only make holes. By the third law no
// later request could use that range, so skipping loses nothing, and it reserves nothing.
func (s *source) load(p plan) (l Loaded, err error) {
	began := time.Now()
	err = s.lanes.of(p).drive(s.ctx, s.cfg.patience(), func(ctx context.Context) (err error) {
		start := time.Now()
		if p.isStrict && !p.hasWaiters() {
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

// trouble returns why ranges cannot be loaded, or nil: see [Allocator.Trouble].
func (s *source) trouble() error {
	if why := s.holdup.err(); why != nil {
		return why
	}
	return s.health.trouble()
}

// errNotYet is the outcome of a load of a tag that another worker is just creating: some servers of the store already
// refuse to create it, and others cannot read it yet. The next load will find it.
var errNotYet = errors.New("segment: the tag was created just now, and cannot be read yet")

// creates reports whether a tag is created on first use.
func (s *source) creates(tag string) bool { return s.cfg.AutoStep > 0 && s.cfg.AutoCreate(tag) }

// loadOrCreate loads a range, and creates the tag first if it is unknown and may be created. A known tag that is
// missing has lost its mark, and is not created: its IDs would repeat. Its operator must set where it continues.
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

// loadOnce calls the store. A tag is loaded as a loose one until a load has found it to be strict.
//
// Law: the load that finds this has reserved nothing. The next one sends its compare-and-set after all requests that
// wait then. So the third law holds from the first ID that this worker issues of the tag.
func (s *source) loadOnce(ctx context.Context, p plan) (Loaded, error) {
	if !p.isStrict {
		l, err := s.cfg.Store.Load(ctx, p.tag, p.n, p.floor)
		if !errors.Is(err, ErrStrict) {
			return l, err
		}
		p.seal(l)
		if !p.hasWaiters() {
			return Loaded{}, errNobody
		}
	}
	return s.cfg.Store.LoadStrict(ctx, p.tag, p.join, p.floor)
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
