package kvstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// Poll implements [segment.Store]. With a table it raises the mark of each tag to the max_id of its row, so that marks
// also cover IDs that Leaf nodes took, and raises rows that are below their marks.
//
// An entry that was removed leaves a delete marker. A tag with neither was lost with its bucket, and its ranges remain
// valid, as do those of a tag whose entry is damaged. With a table, a tag without a row counts as removed: even if the
// table lost the row, the mark keeps the tag's IDs from being loaded again.
func (s *Store) Poll(ctx context.Context, see func(segment.Listing)) error {
	began := s.setbacks.now()
	all, removed, err := s.all(ctx)
	if err != nil {
		return err
	}
	tags, names := make([]segment.Tag, 0, len(all)), slices.Sorted(maps.Keys(all))
	for _, name := range names {
		t := all[name]
		if t.Disabled {
			s.kept.drop(name)
		}
		if !t.isUnmade() && (!t.isDamaged() || t.row != nil) {
			tags = append(tags, t.tag(name))
		}
	}
	s.setbacks.keepOnly(tags, began)
	see(segment.Listing{Tags: tags, Removed: func(tag string) bool { return s.cfg.Table != nil || removed[tag] }})
	if s.cfg.Table == nil {
		return nil
	}
	return each(ctx, s.atOnce, names, func(ctx context.Context, tag string) error {
		s.setbacks.check(tag, all[tag], began)
		return s.catchUp(ctx, tag, all[tag])
	})
}

// catchUp raises the mark of a tag to its row, or the row to the mark, whichever is lower.
func (s *Store) catchUp(ctx context.Context, tag string, t state) error {
	if t.row.MaxID < t.Mark && !t.undecided && (t.row.MaxID > 0 || !t.isMissing()) { // else the row cannot be served
		// The table lost commits, or a load failed after it had raised the mark. Lift the row for Leaf nodes, which do
		// not know marks. A load under way finds its row moved, and starts over.
		if _, err := s.cfg.Table.Advance(ctx, tag, t.Mark-1, t.Mark); err != nil {
			return err
		}
	}
	if t.row.MaxID <= t.Seen || t.row.MaxID < 1 || t.isUnmade() || t.isDamaged() {
		return nil
	}
	_, err := s.replace(ctx, tag, t, t.now()) //mutant:caught-up
	if isOvertaken(err) || errors.Is(err, buckets.ErrInvalidKey) {
		return nil // another worker was faster, or no tag can have that name
	}
	return err
}

// all returns all tags; with a table, those that have a row. Marks are read before rows: otherwise a row that is raised
// in between would look as if it had gone back. removed has the keys with a delete marker.
func (s *Store) all(ctx context.Context) (all map[string]state, removed map[string]bool, err error) {
	marks, none, removed, err := s.marks(ctx)
	if err != nil || s.cfg.Table == nil {
		return marks, removed, err
	}
	rows, err := s.cfg.Table.AllRows(ctx)
	if err != nil {
		return nil, nil, err
	}
	all = make(map[string]state, len(rows))
	for i, row := range rows {
		t, ok := marks[row.Name]
		if !ok {
			t = none
		}
		t.beside(&rows[i], s.limit())
		all[row.Name] = t
	}
	return all, removed, nil
}

// marks returns all entries by tag. none is the state of a tag without an entry; removed are the keys with a marker.
func (s *Store) marks(ctx context.Context) (all map[string]state, none state, removed map[string]bool, err error) {
	entries, err := s.kv.Latest(ctx, "")
	if err != nil {
		return nil, none, nil, fmt.Errorf("kvstore: list: %w", err)
	}
	id, err := s.eras(ctx)
	if err != nil {
		return nil, none, nil, err
	}
	all, removed = make(map[string]state, len(entries)), make(map[string]bool)
	for tag, kve := range entries {
		if kve.Removed {
			removed[tag] = true
		}
		if kve.Removed || buckets.IsOwn(tag) {
			continue
		}
		t := state{kve: kve}
		t.entry, t.fault = decode(s.cfg.Bucket, kve)
		if t.fault == nil {
			t.fault = t.in(id, s.limit())
		}
		if t.fault != nil {
			t.entry = entry{}
		}
		all[tag] = t
	}
	return all, none, removed, none.in(id, s.limit())
}
