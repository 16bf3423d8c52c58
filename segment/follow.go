package segment

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A follower applies changes in the store to the tags in memory. It polls all tags, and looks up single tags whose
// change was announced. A late or lost announcement delays a change until the next load or poll of the tag, and has no
// other effect.
type follower struct {
	cfg  *Config
	tags *tagSet

	pollNow chan struct{} // a message means: poll now; has room for one
	news    news
}

func newFollower(cfg *Config, tags *tagSet) *follower {
	return &follower{
		cfg: cfg, tags: tags, pollNow: make(chan struct{}, 1), news: news{wake: make(chan struct{}, 1)},
	}
}

// run polls until ctx ends and preloads after the first poll. At the same time it looks up changed tags.
func (f *follower) run(ctx context.Context) {
	var side sync.WaitGroup
	defer side.Wait()
	side.Go(func() { f.lookUpNews(ctx) })
	side.Go(func() { f.keepCalendar(ctx) })
	first := true
	retries := jitter.NewBackoff(min(time.Second, f.cfg.Poll), f.cfg.Poll)
	for {
		seen, err := f.poll(ctx, func(tags []Tag) {
			if first {
				first = false
				side.Go(func() { f.preload(ctx, tags) })
			}
		})
		if err != nil && ctx.Err() == nil {
			f.cfg.Log.Warn("a poll of the tags failed, or could not raise all marks to max_id; it is retried",
				"error", err)
		}
		pause := f.cfg.Poll
		if seen {
			retries.Reset()
		} else {
			pause = retries.NextBackOff()
		}
		select {
		case <-time.After(pause):
		case <-f.pollNow:
		case <-ctx.Done():
			return
		}
	}
}

// pollTimeout bounds a poll, including the store's own work after its listing.
const pollTimeout = time.Minute

// poll reads all tags once, and reports whether the store listed them.
func (f *follower) poll(ctx context.Context, then func([]Tag)) (seen bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(pollTimeout, f.cfg.Poll))
	defer cancel()
	began := f.tags.clock.now()
	err = f.cfg.Store.Poll(ctx, func(l Listing) {
		seen = true
		f.apply(l, began)
		then(l.Tags)
	})
	return seen, err
}

// apply takes over a listing that began at the given time. It ignores the listing of a tag that was loaded or changed
// since.
func (f *follower) apply(l Listing, began time.Duration) {
	f.tags.names.list(l.Tags, began)
	for _, t := range l.Tags {
		b := f.tags.get(t.Name)
		switch {
		case b == nil:
		case t.Disabled:
			b.stop(ErrDisabled, began) //mutant:listed-deleted
		default:
			b.see(t, began) //mutant:listed-least
		}
		if t.Disabled {
			f.tags.names.deleted(t.Name)
		}
	}
	for b := range f.tags.all {
		if !f.tags.names.inListing(b.tag) && l.Removed(b.tag) {
			b.stop(ErrUnknownTag, began)
		}
	}
	f.tags.dropIdle()
}

// refresh makes run poll now. It does not block.
func (f *follower) refresh() {
	select {
	case f.pollNow <- struct{}{}:
	default:
	}
}

// changed clears the cached result of a tag, and has the tag looked up if it is in memory. It does not block.
func (f *follower) changed(tag string) {
	if f.invalidate(tag) != nil {
		f.news.add(tag)
	}
}

// see takes over the state of a tag that the store has just returned: its step, rules, least ID, and whether it is
// deleted.
func (f *follower) see(t Tag) {
	f.invalidate(t.Name)
	if t.Disabled {
		defer f.tags.names.deleted(t.Name)
	}
	for seen := false; !seen; {
		// Read the buffer after the cached refusal is cleared: a request may create the buffer between the two.
		b := f.tags.getOrKeep(t.Name, t.Least)
		seen = true
		switch {
		case b == nil:
		case t.Disabled:
			b.stop(ErrDisabled, certain) //mutant:news-deleted
		default:
			seen = b.see(t, certain) //mutant:news-least
		}
	}
}

// invalidate clears the cached not-found result of a tag. A load under way that finds no such tag is repeated.
// invalidate returns the tag's buffer, nil if the tag is not in memory.
func (f *follower) invalidate(tag string) *buffer {
	b := f.tags.get(tag)
	if b != nil {
		b.changed()
	}
	f.tags.names.found(tag, f.tags.clock.now())
	return b
}

// lookUps bounds how many changed tags are looked up at once.
const lookUps = 4

// lookUpNews looks up the changed tags that are in news, until ctx ends.
func (f *follower) lookUpNews(ctx context.Context) {
	for {
		each(lookUps, f.news.take(), func(tag string) { f.lookUp(ctx, tag) })
		select {
		case <-f.news.wake:
		case <-time.After(time.Second): // for tags whose lookup failed
		case <-ctx.Done():
			return
		}
	}
}

func (f *follower) lookUp(ctx context.Context, tag string) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.patience())
	defer cancel()
	t, err := f.cfg.Store.Look(ctx, tag)
	switch {
	case err == nil:
		f.see(t)
	case errors.Is(err, ErrUnknownTag): // the next poll decides whether the tag was removed
	default:
		f.news.put(tag)
	}
}

// news is the set of changed tags that are to be looked up.
type news struct {
	wake chan struct{} // a message means: a tag was added; has room for one

	mu   sync.Mutex
	tags map[string]struct{}
}

// add adds a tag and wakes lookUpNews.
func (n *news) add(tag string) {
	n.put(tag)
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// put adds a tag, which lookUpNews looks up within a second.
func (n *news) put(tag string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tags == nil {
		n.tags = make(map[string]struct{})
	}
	n.tags[tag] = struct{}{}
}

// take removes and returns all tags.
func (n *news) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	tags := slices.Collect(maps.Keys(n.tags))
	n.tags = nil
	return tags
}

// each calls f for all items, with at most atOnce calls under way.
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

// Bounds of a preload.
const (
	preloads    = 4               // loads under way at once
	maxPreload  = 100_000         // tags
	preloadTime = 5 * time.Minute // after that, first requests load the remaining tags
)

// preload loads one range of every recently used tag at the start, the latest first, so that the tag's first request
// does not wait. That first request would have loaded the range anyway. Preloads queue with the loads of requests, but
// take few of their places: see [lanes].
func (f *follower) preload(ctx context.Context, tags []Tag) {
	began := time.Now()
	recent := f.recent(tags, began)
	if len(recent) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, preloadTime)
	defer cancel()
	each(preloads, recent, func(t Tag) {
		if ctx.Err() != nil {
			return
		}
		if b, err := f.tags.obtain(t.Name); err == nil {
			b.preload()
		}
	})
	f.cfg.Log.Info("preloaded recently used tags", "tags", len(recent),
		"took", time.Since(began).Round(time.Millisecond))
}

// recent returns the tags to preload, the latest first.
func (f *follower) recent(tags []Tag, now time.Time) []Tag {
	if f.cfg.Preload == 0 {
		return nil
	}
	recent := slices.DeleteFunc(slices.Clone(tags), func(t Tag) bool {
		return t.Disabled || t.Rules.Strict || t.Step < 1 || t.MaxID < 1 || now.Sub(t.Updated) > f.cfg.Preload ||
			!f.cfg.Servable(t.Name)
	})
	slices.SortFunc(recent, func(x, y Tag) int { return y.Updated.Compare(x.Updated) })
	return recent[:min(len(recent), maxPreload)]
}
