// Package segment hands out IDs from ranges that are loaded ahead of need.
//
// A [Store] keeps one high-water mark per tag. Loading a range raises the
// mark first and yields the IDs below it after, so no ID below a mark is ever
// handed out again; what was loaded and not used is a hole. An [Allocator]
// keeps the ranges of every tag in memory and loads the next in the
// background while the current one lasts.
package segment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxStep is the highest step a tag can be made with, and the most IDs one
// request may ask for.
const MaxStep = 1 << 40

// What [Config] takes for MaxStep and StepTime if they are 0: Leaf's.
const (
	DefaultMaxStep  = 1_000_000
	DefaultStepTime = 15 * time.Minute
)

// A Range is a row of successive IDs, [Start, End): End is not in it. The zero
// value is empty.
type Range struct {
	Start, End int64
}

// Len returns how many IDs the range holds.
func (r Range) Len() int64 { return r.End - r.Start }

// Loaded is what a load yields: a range, the step that the tag is configured
// with, at least 1, and the tag's Least. The range may be longer than the step.
type Loaded struct {
	Range
	Step  int64
	Least int64
}

// A Tag is what a store keeps of one.
type Tag struct {
	Name        string
	Step        int64     // how many IDs one load takes at least, 1..MaxStep
	MaxID       int64     // the high-water mark: the first ID not yet loaded by anyone
	Least       int64     // no ID below it may be handed out, not even by who has loaded it; 0 for none
	Description string    // free text
	Updated     time.Time // of the last load or change; set by the store
	Disabled    bool      // deleted: serves nobody, keeps its mark
	// MarkAhead is how far the mark that guards the tag in a second place is
	// ahead of the store's own, negative if it is behind; nil if there are not
	// both. Only [Store.List] tells it.
	MarkAhead *int64
}

// Validate returns an error that wraps [ErrInvalid] if the tag cannot be made:
// its step must be 1..MaxStep, its MaxID, the first ID to give, at least 1.
func (t Tag) Validate() error {
	if t.Step < 1 || t.Step > MaxStep {
		return fmt.Errorf("%w: step %d, want 1..%d", ErrInvalid, t.Step, int64(MaxStep))
	}
	if t.MaxID < 1 {
		return fmt.Errorf("%w: start %d, want at least 1", ErrInvalid, t.MaxID)
	}
	return nil
}

// A Store keeps the high-water marks. All its methods are safe for concurrent
// use, also by many processes on one store, and return by the time ctx ends.
//
// Every store upholds the law of uniqueness: a range that Load returns begins
// at or above the mark that it has replaced by the range's end, durably and
// in one step that no other load can share. Where the outcome of that step is
// not known, Load returns an error and the range is nobody's.
type Store interface {
	// Load takes the next max(n, step) IDs of a tag, beginning at floor or
	// above: the highest end that the caller ever saw for the tag. It tells the
	// tag's step, so that a caller whose n is more learns of it. It returns
	// [ErrUnknownTag], [ErrDisabled], [ErrExhausted], or another error, after
	// which a later call may succeed.
	Load(ctx context.Context, tag string, n, floor int64) (Loaded, error)

	// Create makes a tag that begins with the ID t.MaxID and returns it as it
	// stands then. A disabled tag is enabled again if revive is set, with t's
	// step and description, and goes on above its own mark; otherwise Create
	// returns [ErrDisabled]. It returns [ErrExists] for an enabled tag,
	// [ErrInvalid] for one that cannot be, and, without revive, may return
	// [ErrUnknownTag] if the store has lost tags: this could be one of them.
	Create(ctx context.Context, t Tag, revive bool) (Tag, error)

	// Update changes a tag and returns it as it stands then. It returns
	// [ErrUnknownTag], [ErrDisabled], [ErrInvalid] or a [*RaiseError], which
	// changed nothing. After any other error the change may have been made,
	// whole or in part; made again it does no harm but that RaiseBy raises twice.
	Update(ctx context.Context, tag string, c Change) (Tag, error)

	// Delete disables a tag and keeps its mark. It returns [ErrUnknownTag] if
	// there is none, and nil if it was disabled already.
	Delete(ctx context.Context, tag string) error

	// Look returns a tag as it stands, disabled or not, or [ErrUnknownTag].
	Look(ctx context.Context, tag string) (Tag, error)

	// Poll tells see of all tags, read with one query or listing, and then does
	// what the store must do from time to time. If it returns an error see may
	// have been called or not.
	Poll(ctx context.Context, see func(Listing)) error

	// List returns at most limit tags whose names are above after, in the
	// order of names, byte by byte, disabled ones included.
	List(ctx context.Context, after string, limit int) ([]Tag, error)
}

// A Listing is all tags of a store at about one moment.
type Listing struct {
	Tags []Tag // in no order, disabled ones included
	// Removed reports whether a tag that is not among Tags was taken away. It
	// does not where the store may have lost its memory of the tag: then what is
	// loaded of it is as good as before.
	Removed func(tag string) bool
}

var (
	// ErrUnknownTag is returned when a store has no such tag.
	ErrUnknownTag = errors.New("segment: unknown tag")
	// ErrDisabled is returned when the tag was deleted. It is an [ErrUnknownTag].
	ErrDisabled = fmt.Errorf("%w: it was deleted", ErrUnknownTag)
	// ErrExists is returned when a tag that exists is made again.
	ErrExists = errors.New("segment: the tag exists")
	// ErrExhausted is returned when the next range would end beyond int64.
	ErrExhausted = errors.New("segment: the IDs of the tag are used up")
	// ErrInvalid is returned when a tag cannot be made or changed as asked, or
	// for a count of IDs that is out of range.
	ErrInvalid = errors.New("segment: invalid tag")
	// ErrWait is returned by [Allocator.Next] when the IDs are not in memory:
	// park the request.
	ErrWait = errors.New("segment: the next range is not loaded yet")
	// ErrTooMany is returned by [Allocator.Park] when too many requests wait
	// for the tag.
	ErrTooMany = errors.New("segment: too many requests wait for the tag")
	// ErrNotLoaded is returned when no range could be loaded before the deadline.
	ErrNotLoaded = errors.New("segment: no range could be loaded in time")
	// ErrClosed is returned after [Allocator.Close].
	ErrClosed = errors.New("segment: the allocator is closed")
)

// NextRange returns the range of n IDs that follows a mark, no lower than
// floor: the one place where the arithmetic of the law is done, for all
// stores. It returns [ErrExhausted] if the range would end beyond int64.
func NextRange(mark, floor, n int64) (Range, error) {
	start := max(mark, floor)
	if n > math.MaxInt64-start {
		return Range{}, ErrExhausted
	}
	return Range{start, start + n}, nil
}
