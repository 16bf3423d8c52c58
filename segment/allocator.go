package segment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	// MaxStep is the most that the step of a tag grows to while its ranges last
	// less than StepTime; 1,000,000 if 0. See [StepRule].
	MaxStep int64
	// StepTime is how long a range should last at least; 15 min if 0. Ranges
	// that last less double the step, those that last twice as long halve it.
	StepTime time.Duration
	// MaxWaiting bounds the parked requests of one tag; 4096 if 0.
	MaxWaiting int
	// AutoStep is the step of tags made on first use; 0 makes none.
	AutoStep int64
	// AutoMake, if set, says which tags are made on first use; nil makes all.
	AutoMake func(tag string) bool
	// OnMake, if set, is told of each tag that was. It must not block.
	OnMake func(tag string)
	// Poll is how often [Allocator.Follow] looks at all tags; 1 min if 0.
	Poll time.Duration
	// Preload is how long ago at most a tag was changed or loaded last that
	// Follow loads a first range of; 0 loads none.
	Preload time.Duration
	// Servable, if set, says which tags can be asked for at all; nil: all.
	Servable func(tag string) bool
	// OnLoad, if set, is told of every load: what it took, how it ended.
	OnLoad func(tag string, took time.Duration, err error)
	// Log receives the loads that failed; nil discards.
	Log *slog.Logger
}

// An Allocator hands out the IDs of all tags from memory. Tags are isolated:
// no tag waits for another's load.
//
// The IDs of one tag rise: a request to one allocator that begins after
// another has ended gets higher IDs, and parked requests get theirs in order of
// arrival. Between allocators that share a store they rise by and large. All
// methods are safe for concurrent use.
type Allocator struct {
	cfg    Config
	rule   StepRule
	lanes  *lanes
	began  time.Time       // the zero of now
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tags   *index // changed under mu
	names  *names
	polls  chan struct{} // a poll is wanted now

	wake   chan struct{} // there is news
	newsMu sync.Mutex
	news   map[string]struct{} // tags to look at again

	mu     sync.Mutex
	closed bool
	loads  sync.WaitGroup

	troubleMu sync.Mutex
	trouble   error // of the last loads, of whatever tags, if all failed
	failures  int   // how many did in a row
	failed    time.Time

	failureLog failureLog
}

// New returns an allocator. It loads nothing until it is asked.
func New(cfg Config) *Allocator {
	if cfg.Deadline == 0 {
		cfg.Deadline = 1500 * time.Millisecond
	}
	if cfg.LoadTimeout == 0 {
		cfg.LoadTimeout = time.Second
	}
	if cfg.MaxStep == 0 {
		cfg.MaxStep = DefaultMaxStep
	}
	if cfg.StepTime == 0 {
		cfg.StepTime = DefaultStepTime
	}
	if cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = 4096
	}
	if cfg.Poll == 0 {
		cfg.Poll = time.Minute
	}
	any := func(string) bool { return true }
	if cfg.AutoMake == nil {
		cfg.AutoMake = any
	}
	if cfg.Servable == nil {
		cfg.Servable = any
	}
	if cfg.OnMake == nil {
		cfg.OnMake = func(string) {}
	}
	if cfg.OnLoad == nil {
		cfg.OnLoad = func(string, time.Duration, error) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Allocator{
		cfg: cfg, rule: StepRule{Max: cfg.MaxStep, Time: cfg.StepTime}, lanes: newLanes(),
		began: time.Now(), tags: newIndex(), names: newNames(), polls: make(chan struct{}, 1), wake: make(chan struct{}, 1),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// now returns the time since the allocator began, for buffers to reckon with:
// it is monotonic, and a third of a [time.Time].
func (a *Allocator) now() time.Duration { return time.Since(a.began) }

// Next appends n IDs of the tag, n 1..[MaxStep], to dst without waiting. It
// takes all of them or returns [ErrWait], which says that they are not in
// memory and the request should be parked; or [ErrInvalid] for another n.
// Unless its IDs span ranges it takes no lock, but for some four looks a second
// after whether a load is due; and it allocates nothing if dst has room.
func (a *Allocator) Next(tag string, n int64, dst []Range) ([]Range, error) {
	if n < 1 || n > MaxStep {
		return dst, invalidCount(n)
	}
	b := a.tags.get(tag)
	if b == nil {
		return dst, ErrWait
	}
	return b.next(n, dst)
}

func invalidCount(n int64) error {
	return fmt.Errorf("%w: %d IDs asked, want 1..%d", ErrInvalid, n, int64(MaxStep))
}

// Park queues a request that [Allocator.Next] answered with [ErrWait]. done is
// called exactly once, within the deadline, on some goroutine, with the IDs or
// with an error: [ErrUnknownTag], [ErrDisabled], [ErrExhausted],
// [ErrNotLoaded] or [ErrClosed]; it must not block. Requests of one tag are
// served in order of arrival. If Park itself returns an error, [ErrTooMany],
// [ErrUnknownTag], [ErrDisabled], [ErrClosed] or [ErrInvalid], done is never
// called.
func (a *Allocator) Park(tag string, n int64, done func([]Range, error)) error {
	if n < 1 || n > MaxStep {
		return invalidCount(n)
	}
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

// Take returns n IDs of the tag, n 1..[MaxStep], waiting for a load if it must:
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
	a.mu.Unlock()
	a.cancel()
	for b := range a.tags.all { // none comes any more
		b.close()
	}
	a.loads.Wait()
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

// buffer returns the buffer of a tag, making it if need be; or why the tag
// cannot be had: it is known to be unknown, or too many such are asked for.
func (a *Allocator) buffer(tag string) (*buffer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	b := a.tags.get(tag)
	if b != nil {
		return b, nil
	}
	stranger, err := a.names.admit(tag, a.now(), 2*a.cfg.Poll, a.makes(tag))
	if err != nil {
		return nil, err
	}
	b = newBuffer(a, strings.Clone(tag)) // the caller's may be part of a message
	b.stranger, b.floor = stranger, a.names.floor(tag)
	a.tags.put(b)
	return b, nil
}

// forget removes a buffer that is gone, so that the tag begins with a new one.
// It needs the buffer's lock.
func (a *Allocator) forget(b *buffer) {
	a.names.bury(b.tag, b.floor)
	if b.stranger {
		b.stranger = false
		a.names.release()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tags.remove(b)
}

// spawn runs f on a goroutine that Close waits for, unless closed.
func (a *Allocator) spawn(f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
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
