package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/natsid/natsid/segment"
)

// A database holds leaf_alloc, perhaps in two copies.
type database struct {
	world *world
	links
	copies   [2]*rows // of a database that is split, the second is another
	limit    int64    // of max_id
	readOnly bool
	locked   map[string]bool // rows that another session holds
	backups  []map[string]segment.Row
	inserts  map[string]int // statements that insert a row and may still be carried out
}

type rows struct{ byName map[string]segment.Row }

// errLimit is a value that the column cannot hold.
var errLimit = errors.New("out of range for column max_id")

// A table is the database as one process reaches it.
type table struct {
	*database
	life *life
	side int
}

var _ segment.Table = (*table)(nil)

func (t *table) rows() map[string]segment.Row { return t.copies[t.side].byName }

// set replaces a row.
func (t *table) set(row segment.Row) {
	t.database.set(t.side, row)
	t.world.wrote(row.Name)
}

func (d *database) set(side int, row segment.Row) {
	d.backups = append(d.backups, maps.Clone(d.copies[side].byName))
	d.backups = d.backups[max(0, len(d.backups)-60):]
	row.Updated = time.Now()
	d.copies[side].byName[row.Name] = row
}

func (t *table) read(ctx context.Context, what string, apply func() error) error {
	c := call{life: t.life, ctx: ctx, what: what, store: &t.links, apply: apply}
	return c.do()
}

// write makes a statement that changes a row. A lock on the row makes it wait; if it outlasts its caller, it may
// be done all the same once the lock is free.
func (t *table) write(ctx context.Context, what, tag string, apply func() error) error {
	c := &call{life: t.life, ctx: ctx, what: what, store: &t.links, write: true}
	c.refuse = fmt.Errorf("%w: lock wait timeout", segment.ErrNotApplied)
	c.waits = func() bool { return t.locked[tag] }
	c.apply = func() error {
		if t.readOnly {
			return fmt.Errorf("%w: read-only", segment.ErrNoWrites)
		}
		return apply()
	}
	return c.do()
}

// Row implements [segment.Table].
func (t *table) Row(ctx context.Context, tag string) (segment.Row, error) {
	var row segment.Row
	err := t.read(ctx, "select "+tag, func() error {
		var ok bool
		if row, ok = t.rows()[tag]; !ok {
			return segment.ErrUnknownTag
		}
		t.life.reads(t.world.acting.origin(), tag, row.MaxID)
		return nil
	})
	if err != nil {
		return segment.Row{}, err
	}
	return row, nil
}

// Advance implements [segment.Table].
func (t *table) Advance(ctx context.Context, tag string, start, end int64) (bool, error) {
	var done bool
	err := t.write(ctx, fmt.Sprintf("advance %s from %d to %d", tag, start, end), tag, func() error {
		row, ok := t.rows()[tag]
		if done = ok && row.MaxID <= start; !done {
			return nil
		}
		if end > t.limit {
			return fmt.Errorf("%w: %w", segment.ErrNotApplied, errLimit)
		}
		row.MaxID = end
		t.set(row)
		return nil
	})
	if err != nil {
		return false, err
	}
	return done, nil
}

// Insert implements [segment.Table].
func (t *table) Insert(ctx context.Context, tag segment.Tag) error {
	if t.inserts == nil {
		t.inserts = make(map[string]int)
	}
	t.inserts[tag.Name]++
	return t.write(ctx, "insert "+tag.Name, tag.Name, func() error {
		t.inserts[tag.Name]--
		if _, ok := t.rows()[tag.Name]; ok {
			return segment.ErrExists
		}
		if tag.MaxID > t.limit {
			return fmt.Errorf("%w: %w", segment.ErrInvalid, errLimit)
		}
		t.set(segment.Row{Name: tag.Name, Step: tag.Step, MaxID: tag.MaxID, Description: tag.Description})
		return nil
	})
}

// Update implements [segment.Table].
func (t *table) Update(ctx context.Context, tag string, c segment.Change) error {
	return t.write(ctx, fmt.Sprintf("update %s to %d, step %d", tag, c.MaxID, c.Step), tag, func() error {
		row, ok := t.rows()[tag]
		if !ok {
			return nil
		}
		if c.MaxID > t.limit {
			return fmt.Errorf("%w: %w", segment.ErrInvalid, errLimit)
		}
		if c.Step != 0 {
			row.Step = c.Step
		}
		if c.Description != nil {
			row.Description = *c.Description
		}
		row.MaxID = max(row.MaxID, c.MaxID)
		t.set(row)
		return nil
	})
}

// Try implements [segment.Table].
func (t *table) Try(ctx context.Context, tag string, c segment.Change) error {
	err := t.write(ctx, fmt.Sprintf("try to update %s to %d, step %d", tag, c.MaxID, c.Step), tag, func() error {
		if c.MaxID > t.limit {
			return fmt.Errorf("%w: %w", segment.ErrInvalid, errLimit)
		}
		return nil
	})
	if err != nil && !errors.Is(err, segment.ErrInvalid) {
		err = fmt.Errorf("%w: %w", segment.ErrNotApplied, err) // it is rolled back
	}
	return err
}

// AllRows implements [segment.Table].
func (t *table) AllRows(ctx context.Context) ([]segment.Row, error) {
	var all []segment.Row
	err := t.read(ctx, "select all", func() error {
		all = slices.Collect(maps.Values(t.rows()))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Limit implements [segment.Table].
func (t *table) Limit() int64 { return t.limit }
