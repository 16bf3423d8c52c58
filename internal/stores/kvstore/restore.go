package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
)

// wentBack reports to Config.WentBack that a tag's mark is below floor, the highest end of this worker's ranges.
// Before, a write confirms that the mark is current. wentBack returns the error of the load.
//
// Law: that write does not change the entry. So if this worker is killed before all workers are stopped, its next
// process finds the low mark again.
func (s *Store) wentBack(ctx context.Context, tag string, was state, floor int64) error {
	if err := s.confirm(ctx, tag, was); err != nil {
		return err
	}
	why := fmt.Sprintf("the mark of tag %s was %d, and this worker had loaded up to %d", tag, was.Mark, floor)
	s.cfg.WentBack(why, floor-was.Mark)
	return errors.New("kvstore: " + why)
}

// Low implements [lineage.Tags].
func (s *Store) Low(ctx context.Context, floors map[string]segment.Floor) (need int64, why string, err error) {
	if len(floors) == 0 {
		return 0, "", nil
	}
	all, _, _, err := s.marks(ctx)
	above := func(tag string) int64 { return floors[tag].Above(all[tag].asListed(tag)) }
	var low []string
	for tag := range all {
		if above(tag) > 0 {
			low = append(low, tag)
		}
	}
	if err != nil || len(low) == 0 {
		return 0, "", err
	}
	slices.SortFunc(low, func(a, b string) int {
		return cmp.Or(cmp.Compare(above(b), above(a)), strings.Compare(a, b))
	})
	lowest := low[0]
	if all[lowest], err = s.readMark(ctx, lowest); err == nil {
		err = s.confirm(ctx, lowest, all[lowest])
	}
	if need = above(lowest); err == nil && need == 0 {
		err = errOvertaken
	}
	return need, named(low, func(tag string) string {
		return fmt.Sprintf("%s at %d, loaded up to %d", tag, all[tag].Mark, floors[tag].End)
	}), wrap(lowest, err)
}

// confirm proves that what was read of a tag is current: it writes the entry back unchanged, by compare-and-set. If
// there is no entry, it writes one that has the same meaning as none.
func (s *Store) confirm(ctx context.Context, tag string, was state) (err error) {
	if was.isMissing() {
		_, err = s.kv.Create(ctx, tag, entry{Mark: 1, First: true}.encode())
		return err
	}
	_, err = s.kv.Update(ctx, tag, was.kve.Value, was.kve.Revision)
	return err
}

// Restore implements [lineage.Tags].
func (s *Store) Restore(ctx context.Context, floors map[string]segment.Floor) error {
	if len(floors) == 0 {
		return nil
	}
	all, none, _, err := s.marks(ctx)
	var due []string
	for tag, f := range floors {
		was, ok := all[tag]
		if !ok {
			was = none
		}
		if _, isDue := was.restored(f); isDue {
			due = append(due, tag)
		}
	}
	if err != nil {
		return err
	}
	slices.Sort(due)
	return each(ctx, s.atOnce, due, func(ctx context.Context, tag string) error {
		return s.restore(ctx, tag, floors[tag])
	})
}

func (s *Store) restore(ctx context.Context, tag string, f segment.Floor) error {
	return wrap(tag, jitter.Race(ctx, isOvertaken, func() (uint64, error) {
		was, err := s.readMark(ctx, tag)
		if err != nil {
			return 0, err
		}
		if e, isDue := was.restored(f); isDue {
			_, err = s.put(ctx, tag, was, e, new(creation))
		}
		if errors.Is(err, segment.ErrUnknownTag) { // it was deleted, and stays so
			err = nil
		}
		return was.kve.Revision, err
	}))
}

// restored returns the entry that Restore writes for a floor, what a worker knows of the tag from its own loads, and
// reports whether an entry must be written: see [lineage.Tags].
func (t state) restored(f segment.Floor) (e entry, isDue bool) {
	if e = t.entry; f.Rules == nil || f.End < 1 || t.isDamaged() || e.Disabled {
		return e, false
	}
	isMade := e.First && e.Rules == segment.Rules{}
	switch {
	case t.isMissing():
		e = entry{Mark: f.End, Step: f.Step, Rules: *f.Rules, Era: f.Era}
	case isMade && *f.Rules != segment.Rules{}: //mutant:first-use
		e.Rules, e.First = *f.Rules, false
		if e.Least = e.Mark; e.Rules.Bounded() {
			e.Mark, e.Least, e.Era = f.End, 0, f.Era
		}
	case (e.Rules.Bounded() || e.undecided) && e.Mark < f.End: //mutant:lift
		e.Mark = f.End
	default:
		return e, false
	}
	return e, true
}
