package kvstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// A listing reads the whole bucket, which takes 0.3 s for 100,000 tags. So with more than fewTags tags only the first
// page is read afresh: later pages are of a listing that is at most pageAge old.
const (
	fewTags = 2000
	pageAge = 2 * time.Second
)

// List implements [segment.Store].
func (s *Store) List(ctx context.Context, after string, limit int) ([]segment.Tag, error) {
	listed := s.listed.Load()
	if after == "" || listed == nil {
		all, err := s.listAll(ctx)
		if err != nil {
			return nil, err
		}
		if listed = &all; len(all) > fewTags {
			s.listed.Store(listed)
			time.AfterFunc(pageAge, func() { s.listed.CompareAndSwap(listed, nil) })
		}
	}
	tags := *listed
	from, found := slices.BinarySearchFunc(tags, after,
		func(t segment.Tag, name string) int { return strings.Compare(t.Name, name) })
	if found {
		from++
	}
	return slices.Clone(tags[from:min(from+max(limit, 0), len(tags))]), nil
}

// listAll returns all tags in the order of names. A damaged entry does not hide the others.
func (s *Store) listAll(ctx context.Context) ([]segment.Tag, error) {
	all, _, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	tags := make([]segment.Tag, 0, len(all))
	for name, t := range all {
		if t.isUnmade() {
			continue
		}
		tag := t.asListed(name)
		if t.row != nil && t.raw > 0 {
			tag.MarkAhead = new(t.Mark - t.row.MaxID)
		}
		tags = append(tags, tag)
	}
	slices.SortFunc(tags, func(x, y segment.Tag) int { return strings.Compare(x.Name, y.Name) })
	return tags, nil
}

// asListed returns the tag for a listing. If its entry has a fault, the description says so.
func (t state) asListed(name string) segment.Tag {
	switch {
	case errors.As(t.fault, new(*era.UnknownError)):
		t.Description, t.undecided = t.fault.Error(), true
	case t.isDamaged() && t.row == nil:
		t.Description, t.Disabled = "damaged: replace the entry; requests for the tag log how", true
	}
	return t.tag(name)
}
