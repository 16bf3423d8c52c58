package kvstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/segment"
)

// A bucket is read as a whole, which takes 0.3 s for 100,000 tags. So if there are more than fewTags, pages after the
// first are cut from a listing that is up to pageAge old.
const (
	fewTags = 2000
	pageAge = 2 * time.Second
)

// List implements [segment.Store].
func (s *Store) List(ctx context.Context, after string, limit int) ([]segment.Tag, error) {
	tags := s.pages.get()
	if after == "" || tags == nil {
		var err error
		if tags, err = s.listAll(ctx); err != nil {
			return nil, err
		}
		if len(tags) > fewTags {
			s.pages.keep(tags)
		}
	}
	from, found := slices.BinarySearchFunc(tags, after,
		func(t segment.Tag, name string) int { return strings.Compare(t.Name, name) })
	if found {
		from++
	}
	return slices.Clone(tags[from:min(from+max(limit, 0), len(tags))]), nil
}

// listAll reads all tags, and returns them in the order of names. A damaged entry does not hide the others.
func (s *Store) listAll(ctx context.Context) ([]segment.Tag, error) {
	all, _, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return nil, fmt.Errorf("kvstore: list: %w", err)
	}
	tags := make([]segment.Tag, 0, len(all))
	for name, kve := range all {
		e, err := decode(s.entries.cfg.Bucket, kve)
		if err != nil {
			e = entry{Description: "damaged: replace the entry; requests for the tag log how", Disabled: true}
		}
		tags = append(tags, e.tag(name, kve.Created))
	}
	slices.SortFunc(tags, func(x, y segment.Tag) int { return strings.Compare(x.Name, y.Name) })
	return tags, nil
}

// pages caches a listing for the pages after the first.
type pages struct {
	mu     sync.Mutex
	latest *[]segment.Tag // nil if none is cached
}

// get returns the cached listing, or nil.
func (p *pages) get() []segment.Tag {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest == nil {
		return nil
	}
	return *p.latest
}

// keep caches a listing for pageAge.
func (p *pages) keep(tags []segment.Tag) {
	latest := &tags
	p.mu.Lock()
	p.latest = latest
	p.mu.Unlock()
	time.AfterFunc(pageAge, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.latest == latest {
			p.latest = nil
		}
	})
}
