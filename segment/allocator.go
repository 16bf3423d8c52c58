package segment

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Allocator issues the IDs of all tags from memory. Tags are isolated: no tag waits for the load of another.
//
// The IDs of one tag rise: of two requests to one allocator, a request that begins after the other has ended gets
// higher IDs, and parked requests are served in order of arrival. The IDs of a loose tag rise only roughly between
// allocators that share a store, since each allocator has ranges of its own. All methods are safe for concurrent use.
type Allocator struct {
	tags     *tagSet
	source   *source
	follower *follower
	deadline time.Duration
}

// New returns an allocator. It loads nothing before the first request. It panics if cfg has no Deadline.
func New(cfg Config) *Allocator {
	if cfg.Deadline <= 0 {
		panic("segment: Config.Deadline must be set")
	}
	cfg = cfg.withDefaults()
	tags := newTagSet(&cfg, newSource(&cfg))
	return &Allocator{tags: tags, source: tags.source, follower: newFollower(&cfg, tags), deadline: cfg.Deadline}
}

// A clock returns the time since the allocator was created. That time is monotonic, and a third of the size of a
// [time.Time].
type clock struct{ began time.Time }

func (c clock) now() time.Duration { return time.Since(c.began) }

// Next appends n IDs of the tag, n 1..[MaxStep], to dst without waiting. It takes all of them or none, and returns
// [ErrWait] if they are not in memory, as those of a strict tag never are: then the request should be parked. For
// another n it returns [ErrInvalid].
//
// It takes no lock unless its IDs span ranges, except about four times a second per tag to check whether a load is due.
// It allocates nothing if dst has room.
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
	return fmt.Errorf("%w: %d IDs requested, want 1..%d", ErrInvalid, n, int64(MaxStep))
}

// Park queues a request that [Allocator.Next] answered with [ErrWait]. It calls done exactly once, within the deadline,
// on any goroutine, with the IDs or with an error: [ErrUnknownTag], [ErrDisabled], [ErrExhausted], [ErrBadRow],
// [ErrNotLoaded], [ErrRationed], [ErrElsewhere] or [ErrClosed]. done must not block. Requests of one tag are served in
// order of arrival; IDs are taken only when all n are there, so a refused request has used none.
//
// Once two loads of the tag in a row have failed, a request waits three fifths of the deadline only, so that its caller
// has time to ask again.
//
// If Park itself returns an error, done is never called: [ErrTooMany], [ErrElsewhere], [ErrUnknownTag], [ErrDisabled],
// [ErrBadRow], [ErrClosed] or [ErrInvalid].
func (a *Allocator) Park(tag string, n int64, done func([]Range, error)) error {
	if n < 1 || n > MaxStep {
		return invalidCount(n)
	}
	for {
		b, err := a.tags.obtain(tag)
		if err != nil {
			return err
		}
		now := time.Now()
		w := waiter{n: n, expires: now.Add(a.deadline), soon: now.Add(a.deadline * 3 / 5), done: done}
		if err = b.park(w); !errors.Is(err, errGone) {
			return err
		}
	}
}

// IsStrict reports whether a load of this allocator has found the tag to be strict: see [ErrStrict].
func (a *Allocator) IsStrict(tag string) bool {
	b := a.tags.get(tag)
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.supply.isStrict
}

// RulesOf returns the rules of a tag by the last load, poll or announced change; none before the first load. It takes
// no lock and allocates nothing.
func (a *Allocator) RulesOf(tag string) Rules {
	if b := a.tags.get(tag); b != nil {
		return *b.supply.ruled()
	}
	return noRules
}

// Close refuses waiting requests, ends the loads under way, and waits for their goroutines. IDs in memory become holes.
func (a *Allocator) Close() {
	a.source.stop()
	a.tags.close()
	a.source.loading.Wait()
}

// Trouble returns why ranges cannot be loaded, nil if they can: the reason given to [Allocator.Hold], or the error of
// the last load if the last two loads, of any tags, failed within 10 s. IDs in memory are issued regardless.
func (a *Allocator) Trouble() error { return a.source.trouble() }

// Follow keeps the allocator's memory in line with the store until ctx ends or the allocator is closed: it polls all
// tags, at once and then every [Config.Poll], looks up tags named by [Allocator.Changed], and preloads after the first
// poll. No request waits for any of it. Call it once.
//
// From the poll on, a tag that is deleted or removed in the store issues no ID, and a new one is served at once.
func (a *Allocator) Follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.source.ctx, cancel)()
	a.follower.run(ctx)
}

// Refresh makes [Allocator.Follow] poll now, without blocking. Call it when messages about changed tags may have been
// lost.
func (a *Allocator) Refresh() { a.follower.refresh() }

// Changed records that another process created, changed or deleted a tag. A cached not-found result is cleared, and if
// the tag is in memory [Allocator.Follow] looks it up until the store has answered. It does not block.
//
// The guarantee of [Allocator.See] holds from that answer on; until then IDs below the tag's new Least may be issued.
func (a *Allocator) Changed(tag string) { a.follower.changed(tag) }

// See takes over the present state of a tag, as the store has just returned it.
//
// Law: no request to this allocator that begins after See has returned gets an ID below t.Least, nor any ID if the tag
// is disabled; this includes loads under way. Older states that arrive later bring no ID back: Least only rises, and
// discarded IDs are not loaded again.
func (a *Allocator) See(t Tag) { a.follower.see(t) }
