package segment

import (
	"context"
	"slices"
	"time"
)

// Bounds of a preload.
const (
	preloads    = 4               // loads under way at once
	maxPreload  = 100_000         // tags
	preloadTime = 5 * time.Minute // then the rest is left to their first requests
)

// preload loads a range of each tag that was used of late, as far as its time of
// change tells, the latest first, so that its first request waits for nothing.
// It costs one range a tag, which the first request would have loaded anyway. It
// is like any other load, in the lane of those that nothing is wrong with, but
// takes up few places in it.
func (a *Allocator) preload(ctx context.Context, tags []Tag) {
	since := time.Now()
	recent := slices.DeleteFunc(slices.Clone(tags), func(t Tag) bool {
		return t.Disabled || t.Step < 1 || t.MaxID < 1 || since.Sub(t.Updated) > a.cfg.Preload || !a.cfg.Servable(t.Name)
	})
	if a.cfg.Preload == 0 || len(recent) == 0 {
		return
	}
	slices.SortFunc(recent, func(x, y Tag) int { return y.Updated.Compare(x.Updated) })
	recent = recent[:min(len(recent), maxPreload)]
	ctx, cancel := context.WithTimeout(ctx, preloadTime)
	defer cancel()
	each(preloads, recent, func(t Tag) {
		if ctx.Err() == nil {
			a.preloadOne(t.Name)
		}
	})
	done := 0
	for _, t := range recent {
		if a.tags.get(t.Name) != nil {
			done++
		}
	}
	a.cfg.Log.Info("the tags used of late are in memory", "tags", done, "of", len(recent), "took", time.Since(since).Round(time.Millisecond))
}

// preloadOne loads a first range of a tag, unless somebody has begun to.
func (a *Allocator) preloadOne(tag string) {
	b, err := a.buffer(tag)
	if err != nil {
		return
	}
	b.mu.Lock()
	idle := !b.loading && !b.gone && b.loads == 0
	if idle {
		b.loading = true
	}
	b.mu.Unlock()
	if !idle {
		return
	}
	done := make(chan struct{})
	load := func() {
		defer close(done)
		b.load()
	}
	if a.spawn(load) {
		<-done
	}
}
