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
	preloadTime = 5 * time.Minute // after it the remaining tags are left to their first requests
)

// preload loads one range of every recently used tag at the start, the latest first, so that the tag's first request
// does not wait. That costs one range per tag, which the first request would have loaded anyway. These loads go through
// the lane of sound tags like any others, but take few of its places.
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
