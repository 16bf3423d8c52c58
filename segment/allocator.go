package segment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"
)

// Config says what an allocator works with. Only Store must be set.
type Config struct {
	// Store keeps the high-water marks.
	Store Store
	// Deadline bounds how long a parked request waits; 1.5 s if 0.
	Deadline time.Duration
	// LoadTimeout bounds one load; 1 s if 0. Keep it under Deadline, so that a
	// load that hangs is tried again before the requests behind it expire.
	LoadTimeout time.Duration
	// MaxWaiting bounds the parked requests of one tag; 4096 if 0.
	MaxWaiting int
	// AutoStep is the step of tags made on first use; 0 makes none.
	AutoStep int64
	// OnLoad, if set, is told of every load: what it took, how it ended.
	OnLoad func(tag string, took time.Duration, err error)
	// Log receives the loads that failed; nil discards.
	Log *slog.Logger
}

// An Allocator hands out the IDs of all tags from memory. Tags are isolated:
// no tag waits for another's load.
//
// The IDs of one tag rise as long as one caller after the other asks one
// allocator; between allocators that share a store they rise by and large.
// All methods are safe for concurrent use.
type Allocator struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.RWMutex
	tags   map[string]*buffer
	closed bool
	loads  sync.WaitGroup

	troubleMu sync.Mutex
	trouble   error // of the last loads, of whatever tags, if all failed
	failures  int   // how many did in a row
	failed    time.Time
}

// New returns an allocator. It loads nothing until it is asked.
func New(cfg Config) *Allocator {
	if cfg.Deadline == 0 {
		cfg.Deadline = 1500 * time.Millisecond
	}
	if cfg.LoadTimeout == 0 {
		cfg.LoadTimeout = time.Second
	}
	if cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = 4096
	}
	if cfg.OnLoad == nil {
		cfg.OnLoad = func(string, time.Duration, error) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Allocator{cfg: cfg, tags: make(map[string]*buffer)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Next appends n IDs of the tag, n at least 1, to dst without waiting. It
// takes all of them or returns [ErrWait], which says that they are not in
// memory and the request should be parked.
func (a *Allocator) Next(tag string, n int64, dst []Range) ([]Range, error) {
	a.mu.RLock()
	b := a.tags[tag]
	a.mu.RUnlock()
	if b == nil {
		return dst, ErrWait
	}
	return b.next(n, dst)
}

// Park queues a request that [Allocator.Next] answered with [ErrWait]. done is
// called exactly once, within the deadline, on some goroutine, with the IDs or
// with an error: [ErrUnknownTag], [ErrDisabled], [ErrExhausted],
// [ErrNotLoaded] or [ErrClosed]; it must not block. Requests of one tag are
// served in order of arrival. If Park itself returns an error, [ErrTooMany]
// or [ErrClosed], done is never called.
func (a *Allocator) Park(tag string, n int64, done func([]Range, error)) error {
	for {
		b, err := a.buffer(tag)
		if err != nil {
			return err
		}
		if err = b.park(waiter{n, time.Now().Add(a.cfg.Deadline), done}); !errors.Is(err, errGone) {
			return err
		}
	}
}

// Take returns n IDs of the tag, n at least 1, waiting for a load if it must:
// [Allocator.Next] and [Allocator.Park] for callers that may block. It returns
// their errors, or ctx's if that ends first; IDs that come after are a hole.
func (a *Allocator) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	ranges, err := a.Next(tag, n, nil)
	if !errors.Is(err, ErrWait) {
		return ranges, err
	}
	answer := make(chan outcome, 1)
	if err := a.Park(tag, n, func(r []Range, err error) { answer <- outcome{ranges: r, err: err} }); err != nil {
		return nil, err
	}
	select {
	case o := <-answer:
		return o.ranges, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close refuses the requests that wait, ends the loads under way, and waits
// for their goroutines. Ranges not used up are holes.
func (a *Allocator) Close() {
	a.mu.Lock()
	a.closed = true
	tags := a.tags
	a.tags = nil
	a.mu.Unlock()
	a.cancel()
	for _, b := range tags {
		b.close()
	}
	a.loads.Wait()
}

// Stats is what an allocator can tell of all its tags together.
type Stats struct {
	Tags    int // in memory
	Waiting int // parked requests
	// SecondsLeft is how long the tag that runs out first lasts at its present
	// speed if no load succeeds any more; +Inf if none is in use.
	SecondsLeft float64
}

// Stats returns the figures of this moment.
func (a *Allocator) Stats() Stats {
	a.mu.RLock()
	buffers := make([]*buffer, 0, len(a.tags))
	for _, b := range a.tags {
		buffers = append(buffers, b)
	}
	a.mu.RUnlock()
	s := Stats{Tags: len(buffers), SecondsLeft: math.Inf(1)}
	now := time.Now()
	for _, b := range buffers {
		b.mu.Lock()
		s.Waiting += len(b.waiters)
		if speed := b.speed.at(now); speed > 0 {
			s.SecondsLeft = min(s.SecondsLeft, float64(b.left)/speed)
		}
		b.mu.Unlock()
	}
	return s
}

// Trouble returns why ranges cannot be loaded, or nil: the error of the last
// loads, if two in a row failed, of whatever tags, and that not long ago.
// What is in memory is handed out all the same.
func (a *Allocator) Trouble() error {
	const long = 10 * time.Second
	a.troubleMu.Lock()
	defer a.troubleMu.Unlock()
	if a.failures < 2 || time.Since(a.failed) > long {
		return nil
	}
	return a.trouble
}

// note keeps the outcome of a load for Trouble. A store that refuses a tag
// works.
func (a *Allocator) note(err error) {
	a.troubleMu.Lock()
	defer a.troubleMu.Unlock()
	if err == nil || isFinal(err) {
		a.failures = 0
		return
	}
	a.trouble, a.failed = err, time.Now()
	a.failures++
}

// buffer returns the buffer of a tag, making it if need be.
func (a *Allocator) buffer(tag string) (*buffer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	b := a.tags[tag]
	if b == nil {
		b = newBuffer(a, tag)
		a.tags[tag] = b
	}
	return b, nil
}

// forget removes a buffer that is gone, so that the tag begins with a new one.
func (a *Allocator) forget(b *buffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tags[b.tag] == b {
		delete(a.tags, b.tag)
	}
}

// spawn runs f on a goroutine that Close waits for, unless closed.
func (a *Allocator) spawn(f func()) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return false
	}
	a.loads.Go(f)
	return true
}

// sleep waits for d, and reports whether the allocator is still open then.
func (a *Allocator) sleep(d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-a.ctx.Done():
		return false
	}
}

// errNotYet is the outcome of a load if the tag is being made by somebody else
// at this moment: a store of several servers may refuse to make it twice before
// it shows it. Another load will find it.
var errNotYet = errors.New("segment: the tag was made just now, and cannot be read yet")

// isMissing reports whether a tag has never been made, and may be.
func isMissing(err error) bool {
	_, misnamed := errors.AsType[*NameError](err)
	return errors.Is(err, ErrUnknownTag) && !errors.Is(err, ErrDisabled) && !misnamed
}

// loadRange loads one range of a tag of at least n IDs, making the tag first
// if it is unknown and that is wanted.
func (a *Allocator) loadRange(tag string, n, floor int64) (Range, error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.cfg.LoadTimeout)
	defer cancel()
	start := time.Now()
	r, err := a.cfg.Store.Load(ctx, tag, n, floor)
	// A tag that was there and is not any more has lost its mark. Made anew it
	// would repeat what other allocators have loaded: its operator must say
	// where it goes on.
	if a.cfg.AutoStep > 0 && floor == 0 && isMissing(err) {
		_, err = a.cfg.Store.Create(ctx, Tag{Name: tag, Step: a.cfg.AutoStep, MaxID: 1}, false)
		if err == nil || errors.Is(err, ErrExists) {
			r, err = a.cfg.Store.Load(ctx, tag, n, floor)
			if isMissing(err) {
				err = errNotYet
			}
		}
	}
	if err == nil && (r.Start < floor || r.Len() < max(n, 1)) {
		// A store that breaks its contract must not make us repeat an ID.
		err = fmt.Errorf("segment: the store gave [%d, %d) where %d IDs from %d were asked", r.Start, r.End, n, floor)
	}
	a.cfg.OnLoad(tag, time.Since(start), err)
	a.note(err)
	// Anybody may ask for a tag that is not there: that is not worth a line.
	if err != nil && !errors.Is(err, ErrUnknownTag) && a.ctx.Err() == nil {
		a.cfg.Log.Warn("a load failed", "tag", tag, "ids", n, "error", err)
	}
	return r, err
}
