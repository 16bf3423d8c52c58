package segment

import (
	"context"
	"time"
)

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
	// Update changes the fields that c sets and nothing else, in one step: others may change the rest concurrently.
	// It raises max_id to c.MaxID if it is lower; c.RaiseBy is 0. Its errors are those of Insert, but for ErrExists.
	Update(ctx context.Context, tag string, c Change) error
	// Try returns the error that Update would return now, and changes nothing.
	Try(ctx context.Context, tag string, c Change) error
	// Rows returns at most limit rows whose names are above after, in the byte order of names.
	Rows(ctx context.Context, after string, limit int) ([]Row, error)
	// AllRows returns all rows, in no order, with one query.
	AllRows(ctx context.Context) ([]Row, error)
	// Limit returns the highest max_id that the table can hold.
	Limit() int64
}

// A Row is a tag as a table has it. Its step may be one that cannot be served.
type Row = Tag

// Marks is the second memory that guards a table: one mark per tag that only rises. All methods are safe for concurrent
// use.
type Marks interface {
	// Mark returns the mark of a tag; a zero one if the tag has none.
	Mark(ctx context.Context, tag string) (Mark, error)
	// SetMark replaces the mark of a tag if its revision is m.Revision, 0 if the tag has none. m.High must not be below
	// the one that was read. It returns the revision that it wrote, [ErrMarkMoved] if the revision is another, and
	// [ErrInvalid] for a tag that cannot have a mark. After any other error the mark may have been set, or may be set
	// later.
	SetMark(ctx context.Context, tag string, m Mark) (revision uint64, err error)
	// MayCreate returns nil if a tag that has no mark never had one, and [ErrUnknownTag] if its mark may be lost. It is
	// asked before a tag is created on first use.
	MayCreate(ctx context.Context) error
	// AllMarks returns the marks of all tags, possibly a little old.
	AllMarks(ctx context.Context) (map[string]Mark, error)
}

// A Mark is the state of a tag that is kept outside its table.
type Mark struct {
	High     int64     // no ID below it is ever reserved again
	Seen     int64     // highest max_id that was ever read from the table
	Least    int64     // the tag's [Tag.Least]
	Disabled bool      // the tag was deleted
	Revision uint64    // of this entry; 0 if the tag has none
	Tokens   string    // tokens of the entry's latest writes, which each write passes on: see package attempt
	Updated  time.Time // of the last change; set by the store
	Record   Record    // of the tag's loads
	// Step and Description are the row's, so that the marks alone can serve the tag later.
	Step        int64
	Description string
	Rules       Rules
}
