package segmenttest

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/segment"
)

// Table is a [segment.Table] in memory that can go back, and whose Advance can be made to fail. The zero value is empty
// and ready to use. It is safe for concurrent use.
type Table struct {
	mu   sync.Mutex
	rows map[string]segment.Row
	hook atomic.Pointer[AdvanceHook]
}

// An AdvanceHook replaces an Advance; advance is the real one.
type AdvanceHook func(advance func() (bool, error)) (bool, error)

var _ segment.Table = (*Table)(nil)

// OnAdvance replaces Advance by hook from now on; nil ends that.
func (t *Table) OnAdvance(hook AdvanceHook) { t.hook.Store(&hook) }

// Snapshot returns the present rows.
func (t *Table) Snapshot() map[string]segment.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.rows)
}

// Restore replaces the rows, as a restored backup or an old replica does.
func (t *Table) Restore(rows map[string]segment.Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = maps.Clone(rows)
}

// LoadAsLeaf takes a range as a Leaf node does, which knows no marks.
func (t *Table) LoadAsLeaf(tag string) segment.Range {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.rows[tag]
	row.MaxID += row.Step
	t.rows[tag] = row
	return segment.Range{Start: row.MaxID - row.Step, End: row.MaxID}
}

// Row implements [segment.Table].
func (t *Table) Row(ctx context.Context, tag string) (segment.Row, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row, ok := t.rows[tag]
	if !ok {
		return row, segment.ErrUnknownTag
	}
	return row, ctx.Err()
}

// Advance implements [segment.Table].
func (t *Table) Advance(ctx context.Context, tag string, start, end int64) (bool, error) {
	advance := func() (bool, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		row, ok := t.rows[tag]
		if ctx.Err() != nil || !ok || row.MaxID > start {
			return false, ctx.Err()
		}
		row.MaxID, row.Updated = end, time.Now()
		t.rows[tag] = row
		return true, nil
	}
	if hook := t.hook.Load(); hook != nil && *hook != nil {
		return (*hook)(advance)
	}
	return advance()
}

// Insert implements [segment.Table].
func (t *Table) Insert(_ context.Context, tag segment.Tag) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.rows[tag.Name]; ok {
		return segment.ErrExists
	}
	if t.rows == nil {
		t.rows = make(map[string]segment.Row)
	}
	tag.Updated = time.Now()
	t.rows[tag.Name] = tag
	return nil
}

// Update implements [segment.Table].
func (t *Table) Update(_ context.Context, tag string, c segment.Change) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	row, ok := t.rows[tag]
	if !ok {
		return nil
	}
	if c.Step != 0 {
		row.Step = c.Step
	}
	if c.Description != nil {
		row.Description = *c.Description
	}
	row.MaxID, row.Updated = max(row.MaxID, c.MaxID), time.Now()
	t.rows[tag] = row
	return nil
}

// Try implements [segment.Table].
func (t *Table) Try(context.Context, string, segment.Change) error { return nil }

// AllRows implements [segment.Table].
func (t *Table) AllRows(context.Context) ([]segment.Row, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.rows)), nil
}

// Limit implements [segment.Table].
func (t *Table) Limit() int64 { return math.MaxInt64 }

// page returns at most limit tags above after, in order.
func page(tags map[string]segment.Tag, after string, limit int) []segment.Tag {
	var p []segment.Tag
	for _, t := range tags {
		if t.Name > after || after == "" {
			p = append(p, t)
		}
	}
	slices.SortFunc(p, func(a, b segment.Tag) int { return strings.Compare(a.Name, b.Name) })
	return p[:min(limit, len(p))]
}
