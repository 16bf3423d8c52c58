package segment

import (
	"errors"
	"fmt"
)

// Errors of stores and allocators.
var (
	// ErrUnknownTag is returned when a store has no such tag.
	ErrUnknownTag = errors.New("segment: unknown tag")
	// ErrDisabled is returned when the tag was deleted. It is an [ErrUnknownTag].
	ErrDisabled = fmt.Errorf("%w: it was deleted", ErrUnknownTag)
	// ErrExists is returned when a tag to be created exists already.
	ErrExists = errors.New("segment: the tag exists")
	// ErrExhausted is returned when the next range would end beyond the numbers of the tag, or beyond what the store
	// can hold. An [ExhaustedError] says how many IDs are left.
	ErrExhausted = errors.New("segment: the IDs of the tag are used up")
	// ErrStrict is returned by [Store.Load] for a strict tag: nothing was reserved.
	ErrStrict = errors.New("segment: the tag is strict")
	// ErrUndecided is returned while an operator must say where the tag continues: see [Tag.Undecided].
	ErrUndecided = errors.New("segment: the store went back, and the numbers of the tag end: an operator must say " +
		"where it goes on")
	// ErrClock is returned by a load of a daily, monthly or yearly tag if this worker's clock says that the next period
	// has begun, and the clock was not yet compared with others: see [Rules.Window].
	ErrClock = errors.New("segment: a period has begun by this worker's clock, which is not yet compared with others")
	// ErrInvalid is returned when a tag cannot be created or changed as requested, or for a count of IDs out of range.
	ErrInvalid = errors.New("segment: invalid tag")
	// ErrUncertain is returned when a tag may have been created, changed or deleted, in whole or in part. Any other
	// error of such a call means that nothing was changed.
	ErrUncertain = errors.New("segment: the change may have been made")
	// ErrWait is returned by [Allocator.Next] when the IDs are not in memory: park the request.
	ErrWait = errors.New("segment: the next range is not loaded yet")
	// ErrTooMany is returned by [Allocator.Park] when too many requests wait for the tag.
	ErrTooMany = errors.New("segment: too many requests wait for the tag")
	// ErrNotLoaded is returned when no range could be loaded before the deadline.
	ErrNotLoaded = errors.New("segment: no range could be loaded in time")
	// ErrElsewhere is returned while this worker cannot load, and another one may: see [Allocator.TurnAway].
	ErrElsewhere = errors.New("segment: this worker cannot load, and another one may")
	// ErrRationed is returned when [Config.Ration] does not allow a tag to be created on first use now.
	ErrRationed = errors.New("segment: no tag is made on first use now")
	// ErrClosed is returned after [Allocator.Close].
	ErrClosed = errors.New("segment: the allocator is closed")
)

// Errors of guarded tables.
var (
	// ErrNotApplied is returned by methods of [Table] that certainly changed nothing.
	ErrNotApplied = errors.New("segment: the table was not changed")
	// ErrNoWrites is returned by methods of [Table] when the table takes no writes at all: its server is read-only, or
	// cannot be reached. It is an [ErrNotApplied].
	ErrNoWrites = fmt.Errorf("%w: it takes no writes", ErrNotApplied)
	// ErrBadRow is returned when a tag's row has a step or max_id that cannot be served.
	ErrBadRow = errors.New("segment: the tag's row cannot be served")
	// ErrZone is returned when this worker lacks the time zone of a daily, monthly or yearly tag. It is an [ErrBadRow].
	ErrZone = fmt.Errorf("%w by this worker", ErrBadRow)
)

// An ExhaustedError says how many IDs are left where a request asks for more. It is an [ErrExhausted].
type ExhaustedError struct {
	Left int64 // 0 if no ID is left
	Why  error
}

func (e *ExhaustedError) Error() string { return fmt.Sprintf("%v; %d are left", e.Why, e.Left) }

// Unwrap returns Why.
func (e *ExhaustedError) Unwrap() error { return e.Why }

// A NameError says that the database, whose collation ignores case, found a row whose name differs from the requested
// tag. It is an [ErrUnknownTag].
type NameError struct{ Asked, Found string }

func (e *NameError) Error() string {
	return fmt.Sprintf("segment: no tag %q, the table has %q", e.Asked, e.Found)
}

// Unwrap returns [ErrUnknownTag].
func (e *NameError) Unwrap() error { return ErrUnknownTag }

// A RightError says which right on leaf_alloc the user of the database lacks: SELECT, INSERT, UPDATE or CREATE. It is
// an [ErrNotApplied].
type RightError struct{ Right string }

func (e *RightError) Error() string {
	return fmt.Sprintf("segment: the database's user may not %s: grant it %s on leaf_alloc", e.Right, e.Right)
}

// Unwrap returns [ErrNotApplied].
func (e *RightError) Unwrap() error { return ErrNotApplied }
