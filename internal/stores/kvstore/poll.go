package kvstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// Poll implements [segment.Store]. With a table it raises the mark of each tag to the max_id of its row, so that marks
// also cover IDs that Leaf nodes took, and raises rows that are below their marks.
//
// An entry that was removed leaves a delete marker. A tag without entry and marker was lost with its bucket: its
// ranges remain valid, like those of a tag whose entry is damaged. With a table, a tag without a row counts as
// removed: even if the table lost the row, the mark keeps the tag's IDs from being loaded again.
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

// catchUp raises the mark of a tag to the max_id of its row, or max_id to the mark, whichever is lower.
func (s *Store) catchUp(ctx context.Context, tag string, t state) error {
	if t.row.MaxID < t.Mark && !t.undecided && (t.row.MaxID > 0 || !t.isMissing()) { // else the row is invalid
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

// all returns all tags; with a table, those that have a row. It reads the bucket before the table: an entry that is
// newer than its row would look as if the row had gone back. removed has the tags whose entries left a delete marker.
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

// marks returns all, the states of tags with an entry; none, the state of any tag without one; and removed, the tags
// whose entries left a delete marker.
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

const (
	// catchUps is how many tags a poll compares with their rows concurrently. Loads need most of the connections.
	catchUps = 4
	// catchUpTimeout bounds the comparison of one tag, whose row another session may have locked.
	catchUpTimeout = time.Second
	// mostNamed is how many tags an error names.
	mostNamed = 10
)

// each calls f for all tags, atOnce at a time, until ctx ends or the table takes no writes. The error names some tags
// for which f failed. each begins at a random tag, so that rows which another session has locked do not delay the same
// tags each time.
func each(ctx context.Context, atOnce int, tags []string, f func(context.Context, string) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	failed := make(map[string]error)
	one := func(tag string) {
		limited, cancel := context.WithTimeout(ctx, catchUpTimeout)
		defer cancel()
		err := f(limited, tag)
		if errors.Is(err, segment.ErrNoWrites) {
			stop(err)
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed[tag] = err
		}
	}
	places := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	from := int(jitter.Source() * float64(len(tags)))
	for _, tag := range slices.Concat(tags[from:], tags[:from]) {
		if places <- struct{}{}; ctx.Err() != nil {
			break
		}
		calls.Go(func() { one(tag); <-places })
	}
	calls.Wait()
	early := context.Cause(ctx)
	if len(failed) == 0 {
		return early
	}
	text := named(slices.Sorted(maps.Keys(failed)), func(tag string) string {
		return fmt.Sprintf("tag %s: %v", tag, failed[tag])
	})
	if early != nil {
		return fmt.Errorf("kvstore: not all tags were compared: %s: %w", text, early)
	}
	return fmt.Errorf("kvstore: %d tags are not as they should be: %s", len(failed), text)
}

// named joins the texts that f returns for the first tags, and adds how many more tags there are.
func named(tags []string, f func(tag string) string) string {
	var texts []string
	for _, tag := range tags[:min(mostNamed, len(tags))] {
		texts = append(texts, f(tag))
	}
	if more := len(tags) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
