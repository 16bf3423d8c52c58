package kvstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/segment"
)

// A listing is all tags of one moment, in the order of names.
type listing struct{ tags []segment.Tag }

// A bucket is read as a whole, which takes 0.3 s for 100,000 tags. So if there
// are more than fewTags, pages after the first are cut from a listing that is
// up to pageAge old.
const (
	fewTags = 2000
	pageAge = 2 * time.Second
)

// List implements [segment.Store].
func (s *Store) List(ctx context.Context, after string, limit int) ([]segment.Tag, error) {
	s.mu.Lock()
	l := s.listed
	s.mu.Unlock()
	if after == "" || l == nil {
		var err error
		if l, err = s.listAll(ctx); err != nil {
			return nil, err
		}
	}
	from, found := slices.BinarySearchFunc(l.tags, after, func(t segment.Tag, name string) int { return strings.Compare(t.Name, name) })
	if found {
		from++
	}
	return slices.Clone(l.tags[from:min(from+max(limit, 0), len(l.tags))]), nil
}

// listAll reads all tags, and keeps them for a while if they are many.
func (s *Store) listAll(ctx context.Context) (*listing, error) {
	all, err := s.kv.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("kvstore: list: %w", err)
	}
	l := &listing{tags: make([]segment.Tag, 0, len(all))}
	for name, kve := range all {
		e, err := decode(kve)
		if err != nil { // one damaged entry must not hide the others
			e = entry{Description: "damaged: mend the entry by hand", Disabled: true}
		}
		l.tags = append(l.tags, e.tag(name, kve.Created()))
	}
	slices.SortFunc(l.tags, func(x, y segment.Tag) int { return strings.Compare(x.Name, y.Name) })
	if len(l.tags) > fewTags {
		s.keep(l)
	}
	return l, nil
}

func (s *Store) keep(l *listing) {
	s.mu.Lock()
	s.listed = l
	s.mu.Unlock()
	time.AfterFunc(pageAge, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listed == l {
			s.listed = nil
		}
	})
}
