package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/segment"
)

// uncertain marks the error of a change of the table with [segment.ErrUncertain], unless it says that nothing was
// changed.
func uncertain(err error) error {
	for _, certain := range []error{nil, segment.ErrExists, segment.ErrInvalid, segment.ErrNotApplied} {
		if errors.Is(err, certain) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", segment.ErrUncertain, err)
}

// half marks the error of a change that was made in the mark, and not in the row.
func half(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: in the mark, but not in the table's row: %w", segment.ErrUncertain, err)
}

// Update implements [segment.Store]. Like a load it is one compare-and-set: a load that has read the mark before is
// refused, and starts over.
//
// With a table, step and description are the row's; the mark has copies. The mark is changed first, so no load of
// natsid begins below it from then on. If the write to the row fails, the next poll lifts the row. Values that the row
// cannot hold are refused before the mark is changed.
func (s *Store) Update(ctx context.Context, tag string, c segment.Change) (t segment.Tag, err error) {
	inRow := segment.Change{Step: c.Step, Description: c.Description}
	toRow := s.cfg.Table != nil && (c.Step != 0 || c.Description != nil)
	err = s.change(ctx, tag, func(e *entry) (err error) {
		if e.Disabled {
			return segment.ErrDisabled
		}
		if t, err = c.Apply(e.tag(tag, time.Now()), s.limit()); err == nil {
			err = s.mayDecide(ctx, *e, t)
		}
		if err != nil {
			return err
		}
		e.set(t) //mutant:raised
		if toRow {
			err = s.cfg.Table.Try(ctx, tag, inRow)
		}
		return err
	})
	if err != nil {
		return segment.Tag{}, err
	}
	if c.Raises() {
		inRow.MaxID = t.MaxID
	}
	if toRow || s.cfg.Table != nil && c.Raises() {
		err = half(s.cfg.Table.Update(ctx, tag, inRow))
	}
	return t, wrap(tag, err)
}

// mayDecide returns why an operator cannot decide now where a tag continues; nil if t decides nothing.
//
// Law: a decision counts in the era in which it is made. No decision is made during an incident: its end begins another
// era, and workers that join it still raise the marks of such tags to their floors.
func (s *Store) mayDecide(ctx context.Context, was entry, t segment.Tag) error {
	if !was.undecided || t.Undecided {
		return nil
	}
	id, err := s.readIdentity(ctx)
	if err == nil && id.Incident != nil {
		err = segment.RuleError("the registry is stopped: where the tag goes on can be said once it is resumed")
	}
	return err
}

// Raise raises the mark of a tag to the max_id of a row, and copies the row's step and description.
func (s *Store) Raise(ctx context.Context, row segment.Row) error {
	return s.change(ctx, row.Name, func(e *entry) error {
		e.Seen, e.Step, e.Description, e.Claimed = max(e.Seen, row.MaxID), row.Step, row.Description, false
		return nil
	})
}
