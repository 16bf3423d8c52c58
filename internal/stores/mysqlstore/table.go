package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/natsid/natsid/segment"
)

// A Table is a [segment.Table] on leaf_alloc. It is safe for concurrent use.
type Table struct {
	db     *sql.DB
	schema schema
	gate   gate
}

var _ segment.Table = (*Table)(nil)

// Close closes the connections.
func (t *Table) Close() error { return t.db.Close() }

// Limit implements [segment.Table].
func (t *Table) Limit() int64 { return t.schema.limit }

// Row implements [segment.Table].
func (t *Table) Row(ctx context.Context, tag string) (segment.Row, error) {
	row, err := scan(t.db.QueryRowContext(ctx, t.schema.selectRow("WHERE biz_tag = ?"), tag).Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return segment.Row{}, segment.ErrUnknownTag
	case err != nil:
		return segment.Row{}, wrap(tag, err)
	case row.Name != tag:
		return segment.Row{}, &segment.NameError{Asked: tag, Found: row.Name}
	}
	return row, nil
}

func scan(scan func(...any) error) (r segment.Row, err error) {
	err = scan(&r.Name, &r.MaxID, &r.Step, &r.Description, &r.Updated)
	return r, err
}

// Advance implements [segment.Table].
func (t *Table) Advance(ctx context.Context, tag string, start, end int64) (bool, error) {
	const update = "UPDATE leaf_alloc SET max_id = ? WHERE biz_tag = ? AND max_id <= ?"
	result, err := t.write(ctx, tag, update, end, tag, start)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, wrap(tag, err)
}

// probeTag is the tag in the UPDATE of Probe. natsid serves no tag of that name, so the UPDATE finds no row.
const probeTag = "_natsid"

// Probe returns nil if the server takes writes of this user at the moment. It sends an UPDATE that matches no row: it
// changes nothing, and no locked row delays it.
func (t *Table) Probe(ctx context.Context) error {
	_, err := t.Advance(ctx, probeTag, 0, 0)
	if cause := errors.Unwrap(err); cause != nil {
		return cause // which names no tag
	}
	return err
}

// Insert implements [segment.Table].
func (t *Table) Insert(ctx context.Context, tag segment.Tag) error {
	columns, values, args := "biz_tag, max_id, step", "?, ?, ?", []any{tag.Name, tag.MaxID, tag.Step}
	if t.schema.description != "" {
		columns, values, args = columns+", "+t.schema.description, values+", ?", append(args, tag.Description)
	}
	_, err := t.write(ctx, tag.Name, "INSERT INTO leaf_alloc ("+columns+") VALUES ("+values+")", args...)
	return err
}

// Update implements [segment.Table].
func (t *Table) Update(ctx context.Context, tag string, c segment.Change) error {
	statement, args := t.update(tag, c)
	_, err := t.write(ctx, tag, statement, args...)
	return err
}

func (t *Table) update(tag string, c segment.Change) (statement string, args []any) {
	set, args := "max_id = GREATEST(max_id, ?)", []any{c.MaxID}
	if c.Step != 0 {
		set, args = set+", step = ?", append(args, c.Step)
	}
	if c.Description != nil && t.schema.description != "" {
		set, args = set+", "+t.schema.description+" = ?", append(args, *c.Description)
	}
	return "UPDATE leaf_alloc SET " + set + " WHERE biz_tag = ?", append(args, tag)
}

// Try implements [segment.Table]: it makes the change in a transaction, and rolls it back.
func (t *Table) Try(ctx context.Context, tag string, c segment.Change) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return notApplied(tag, err)
	}
	defer tx.Rollback()
	statement, args := t.update(tag, c)
	if _, err = tx.ExecContext(ctx, statement, args...); err != nil {
		return notApplied(tag, err)
	}
	return nil
}

// write executes a statement that changes the table. Its errors are those of [segment.Table].
func (t *Table) write(ctx context.Context, tag, statement string, args ...any) (sql.Result, error) {
	if err := t.gate.enter(time.Now()); err != nil {
		return nil, wrap(tag, err)
	}
	result, err := t.db.ExecContext(ctx, statement, args...)
	err = classified(err)
	t.gate.leave(time.Now(), err)
	return result, wrap(tag, err)
}

// AllRows implements [segment.Table].
func (t *Table) AllRows(ctx context.Context) (all []segment.Row, err error) {
	rows, err := t.db.QueryContext(ctx, t.schema.selectRow(""))
	if err != nil {
		return nil, fmt.Errorf("mysqlstore: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scan(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("mysqlstore: %w", err)
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// probeEvery is the interval of the writes that test whether a read-only server takes writes again.
const probeEvery = 100 * time.Millisecond

// A gate lets one write per probeEvery through while the server takes no writes: for each refused write the driver
// drops the connection, as the address may lead to another server by now. The zero value lets all writes through.
type gate struct {
	mu      sync.Mutex
	refused error     // error of the last write; nil while the server takes writes
	next    time.Time // when the next write may be sent
}

// enter returns why a write may not be sent now, or nil.
func (g *gate) enter(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused == nil {
		return nil
	}
	if now.Before(g.next) {
		return g.refused
	}
	g.next = now.Add(probeEvery)
	return nil
}

// leave records the outcome of a write.
func (g *gate) leave(now time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused = nil; errors.Is(err, segment.ErrNoWrites) {
		g.refused, g.next = err, now.Add(probeEvery)
	}
}
