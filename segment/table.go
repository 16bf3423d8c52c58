package segment

import "context"

// A Table is a database that keeps one max_id per tag and can go back: to a backup, or to a replica that had not seen
// the last commits. Others may write to it as well. All methods are safe for concurrent use.
type Table interface {
	// Row returns the present row of a tag. It returns [ErrUnknownTag], or a [*NameError] if the row that the database
	// finds has another name.
	Row(ctx context.Context, tag string) (Row, error)
	// Advance sets max_id to end if it is at most start, in one step, and reports whether it did. After
	// [ErrNotApplied] it certainly did not; after any other error it may have, or may do so later.
	Advance(ctx context.Context, tag string, start, end int64) (bool, error)
	// Insert inserts a row. It returns [ErrExists] if there is one, [ErrInvalid] if the table cannot hold it, and
	// [ErrNotApplied] if it changed nothing for another reason. After any other error it may have inserted the row.
	Insert(ctx context.Context, t Tag) error
	// Update changes the fields that c sets and nothing else, in one step: others may change the rest concurrently. It
	// raises max_id to c.MaxID if it is lower; c.RaiseBy is 0. Its errors are those of Insert except ErrExists.
	Update(ctx context.Context, tag string, c Change) error
	// Try returns the error that Update would return now, and changes nothing.
	Try(ctx context.Context, tag string, c Change) error
	// AllRows returns all rows, in no order, with one query.
	AllRows(ctx context.Context) ([]Row, error)
	// Limit returns the highest max_id that the table can hold.
	Limit() int64
}

// A Row is a tag as a table has it. Its step may be one that cannot be served.
type Row = Tag
