package kvstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// listAll reads all tags, and returns them in the order of names. A damaged entry does not hide the others.
func (s *Store) listAll(ctx context.Context) ([]segment.Tag, error) {
	all, _, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return nil, fmt.Errorf("kvstore: list: %w", err)
	}
	tags := make([]segment.Tag, 0, len(all))
	for name, kve := range all {
		e, err := decode(s.cfg.Bucket, kve)
		if err != nil {
			e = entry{Description: "damaged: replace the entry; requests for the tag log how", Disabled: true}
		}
		tags = append(tags, e.tag(name, kve.Created))
	}
	slices.SortFunc(tags, func(x, y segment.Tag) int { return strings.Compare(x.Name, y.Name) })
	return tags, nil
}
