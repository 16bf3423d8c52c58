package segment

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Table is a database that keeps one max_id per tag and can go back: to a
// backup, to a replica that had not seen the last commits. Others may write to
// it as well. All methods are safe for concurrent use.
type Table interface {
	// Row returns the row of a tag as it is now. It returns [ErrUnknownTag], or
	// a [*NameError] if the row that the database finds has another name.
	Row(ctx context.Context, tag string) (Row, error)
	// Advance sets max_id to end if it is at most start, in one step, and
	// reports whether it did. [ErrNotApplied] says that it surely did not;
	// after any other error it may have, or may yet.
	Advance(ctx context.Context, tag string, start, end int64) (bool, error)
	// Insert makes a row. It returns [ErrExists] if there is one.
	Insert(ctx context.Context, t Tag) error
	// Update changes of a row what c says and nothing else, in one step: others
	// may change the rest meanwhile. It raises max_id to c.MaxID if it is lower;
	// c.RaiseBy is 0.
	Update(ctx context.Context, tag string, c Change) error
	// Rows returns at most limit rows whose names are above after, in the order
	// of names, byte by byte.
	Rows(ctx context.Context, after string, limit int) ([]Row, error)
	// AllRows returns all rows, in no order, with one query.
	AllRows(ctx context.Context) ([]Row, error)
	// Limit returns the highest max_id the table can hold.
	Limit() int64
}

// A Row is a tag as a table has it. Its step may be one that cannot be served.
type Row = Tag

// Marks is the second memory that guards a table: per tag a high-water mark
// that only rises. All methods are safe for concurrent use.
type Marks interface {
	// Mark returns the mark of a tag; a zero one if there is none.
	Mark(ctx context.Context, tag string) (Mark, error)
	// SetMark replaces the mark of a tag if its revision is m.Revision, 0 if
	// there is none. m.High must not be below the one that was read. It returns
	// [ErrInvalid] for a tag that cannot have a mark, and [ErrMarkMoved] if it is another; after any
	// other error it may have been set, or may yet be.
	SetMark(ctx context.Context, tag string, m Mark) error
	// AllMarks returns the marks of all tags, possibly a little old.
	AllMarks(ctx context.Context) (map[string]Mark, error)
}

// A Mark is what is remembered of a tag outside its table.
type Mark struct {
	High     int64     // no ID below it is ever handed out again
	Seen     int64     // highest max_id of the table that was ever read
	Least    int64     // the tag's [Tag.Least]
	Disabled bool      // the tag was deleted
	Revision uint64    // of this entry; 0 if there is none
	Updated  time.Time // of the last change; not to be set
	// Step and Description are the row's, so that the marks alone can serve
	// the tag one day.
	Step        int64
	Description string
}

var (
	// ErrNotApplied is returned by [Table.Advance] when it surely changed nothing.
	ErrNotApplied = errors.New("segment: the table was not changed")
	// ErrMarkMoved is returned by [Marks.SetMark] when somebody else set it.
	ErrMarkMoved = errors.New("segment: the mark was moved")
	// ErrBadRow is returned when a tag's row cannot be served as it stands.
	ErrBadRow = errors.New("segment: the tag's row cannot be served")
	// ErrUnguarded is returned when something needs a guard and there is none.
	ErrUnguarded = errors.New("segment: a tag is deleted in the guard, and there is none")
)

// A NameError says that the database, whose collation ignores case, found a
// row whose name differs from the tag that was asked. It is an [ErrUnknownTag].
type NameError struct{ Asked, Found string }

func (e *NameError) Error() string {
	return fmt.Sprintf("segment: no tag %q, the table has %q", e.Asked, e.Found)
}

// Unwrap returns [ErrUnknownTag].
func (e *NameError) Unwrap() error { return ErrUnknownTag }
