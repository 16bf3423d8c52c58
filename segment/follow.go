package segment

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Follow keeps what the allocator has in memory in line with the store, until
// ctx ends: it polls all tags, at once and then every [Config.Poll], looks again
// at those that [Allocator.Changed] names, and preloads after the first poll. No
// request waits for any of it. Call it once.
//
// A tag that the store shows as deleted, or that was removed, serves nobody any
// more from then on; a new one is served at once, known or not.
func (a *Allocator) Follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	var side sync.WaitGroup
	defer side.Wait()
	side.Go(func() { a.lookAgain(ctx) })
	first := true
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(min(time.Second, a.cfg.Poll)), backoff.WithMaxInterval(a.cfg.Poll), backoff.WithMaxElapsedTime(0))
	for {
		pause := a.cfg.Poll
		seen, err := a.poll(ctx, func(tags []Tag) {
			if first {
				first = false
				side.Go(func() { a.preload(ctx, tags) })
			}
		})
		if err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("the tags could not be polled, or not all marks caught up; trying again", "error", err)
		}
		if seen {
			pauses.Reset()
		} else {
			pause = pauses.NextBackOff()
		}
		select {
		case <-time.After(pause):
		case <-a.polls:
		case <-ctx.Done():
			return
		}
	}
}

// pollTimeout bounds a poll, with what the store does after its listing.
const pollTimeout = time.Minute

// poll asks the store once for all tags, and reports whether it told.
func (a *Allocator) poll(ctx context.Context, then func([]Tag)) (seen bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(pollTimeout, a.cfg.Poll))
	defer cancel()
	began := a.now()
	err = a.cfg.Store.Poll(ctx, func(l Listing) {
		seen = true
		a.follow(l, began)
		then(l.Tags)
	})
	return seen, err
}

// follow takes over a listing that began at that time. What was learnt since of
// a tag, by a load or because somebody told, counts more.
func (a *Allocator) follow(l Listing, began time.Duration) {
	a.names.list(l.Tags, began)
	for _, t := range l.Tags {
		b := a.tags.get(t.Name)
		switch {
		case b == nil:
		case t.Disabled:
			b.stopUnlessFound(ErrDisabled, began)
		default:
			b.see(t, false)
		}
	}
	for b := range a.tags.all {
		if !a.names.listedLast(b.tag) && l.Removed(b.tag) {
			b.stopUnlessFound(ErrUnknownTag, began)
		}
	}
}

// Refresh makes [Allocator.Follow] poll now: call it when messages that named
// changed tags may have been lost. It does not block.
func (a *Allocator) Refresh() {
	select {
	case a.polls <- struct{}{}:
	default:
	}
}

// Changed says that somebody made, changed or deleted a tag: what is remembered
// of it is forgotten, and if it is in memory [Allocator.Follow] looks at it
// again until the store has told how it stands. It does not block.
//
// From then on no ID below the tag's Least is handed out, as [Allocator.See]
// says; until then it may be.
func (a *Allocator) Changed(tag string) {
	if !a.meet(tag) {
		return
	}
	a.newsMu.Lock()
	if a.news == nil {
		a.news = make(map[string]struct{})
	}
	a.news[tag] = struct{}{}
	a.newsMu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// meet forgets that a tag was unknown, and the word of loads under way that it
// is. It reports whether the tag is in memory.
func (a *Allocator) meet(tag string) bool {
	b := a.tags.get(tag)
	if b != nil {
		b.mu.Lock()
		b.changes++
		b.mu.Unlock()
	}
	a.names.meet(tag, a.now())
	return b != nil
}

// See takes over how a tag stands, as the store has just told.
//
// Law: no request to this allocator that begins after See has returned gets an
// ID below t.Least, nor any if the tag is disabled; loads under way included.
// Nothing that is told late makes IDs come back: Least only rises, and what was
// thrown away is not loaded again.
func (a *Allocator) See(t Tag) {
	a.meet(t.Name)
	b := a.tags.get(t.Name)
	switch {
	case b == nil:
	case t.Disabled:
		b.stop(ErrDisabled)
	default:
		b.see(t, true)
	}
}

// looks bounds how many changed tags are looked at at once.
const looks = 4

// lookAgain looks at the tags that Changed named, until ctx ends.
func (a *Allocator) lookAgain(ctx context.Context) {
	retry := time.NewTicker(time.Second)
	defer retry.Stop()
	for {
		var tags []string
		a.newsMu.Lock()
		for tag := range a.news {
			tags = append(tags, tag)
		}
		a.news = nil
		a.newsMu.Unlock()
		each(looks, tags, func(tag string) { a.lookAt(ctx, tag) })
		select {
		case <-a.wake:
		case <-retry.C: // those that could not be looked at
		case <-ctx.Done():
			return
		}
	}
}

func (a *Allocator) lookAt(ctx context.Context, tag string) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.LoadTimeout)
	defer cancel()
	t, err := a.cfg.Store.Look(ctx, tag)
	switch {
	case err == nil:
		a.See(t)
	case errors.Is(err, ErrUnknownTag): // the next poll says whether it was removed
	default:
		a.newsMu.Lock()
		defer a.newsMu.Unlock()
		if a.news == nil {
			a.news = make(map[string]struct{})
		}
		a.news[tag] = struct{}{}
	}
}

// each calls f for all items, with so many calls under way at once.
func each[T any](atOnce int, items []T, f func(T)) {
	var workers sync.WaitGroup
	queue := make(chan T)
	for range min(atOnce, len(items)) {
		workers.Go(func() {
			for item := range queue {
				f(item)
			}
		})
	}
	for _, item := range items {
		queue <- item
	}
	close(queue)
	workers.Wait()
}
