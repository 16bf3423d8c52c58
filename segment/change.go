package segment

import (
	"fmt"
	"math"
)

// A Change says what of a tag is to be changed. What it leaves at its zero
// value stays as it is; the zero Change changes nothing.
type Change struct {
	Step        int64   // the tag's own step from now on, 1..[MaxStep]
	Description *string // nil leaves it
	// MaxID raises the high-water mark: no ID below it is handed out any more.
	MaxID int64
	// RaiseBy raises the mark by so many IDs above where it is then, at least 1.
	// MaxID and RaiseBy exclude each other.
	RaiseBy int64
}

// Raises reports whether the change raises the mark.
func (c Change) Raises() bool { return c.MaxID != 0 || c.RaiseBy != 0 }

// A RaiseError says that a mark cannot be raised as asked: it would go down, or
// above what the store can hold. It is an [ErrInvalid].
type RaiseError struct {
	Change
	Now   int64 // where the mark is
	Limit int64 // the most that the store can hold
}

func (e *RaiseError) Error() string {
	if e.MaxID != 0 && e.MaxID < e.Now {
		return fmt.Sprintf("segment: max_id %d is below %d, where it is, and max_id only rises", e.MaxID, e.Now)
	}
	return fmt.Sprintf("segment: max_id is %d; raised as asked it would be above %d, the most that the store can hold", e.Now, e.Limit)
}

// Unwrap returns [ErrInvalid].
func (e *RaiseError) Unwrap() error { return ErrInvalid }

// Apply returns t as the change makes it, in a store whose marks go up to
// limit; what is not known of t may be zero. It is the one place where the
// arithmetic of raising is done, for all stores.
//
// Law: the mark never goes down. A mark that is raised becomes the tag's Least:
// whoever learns of that throws away what it has loaded below.
func (c Change) Apply(t Tag, limit int64) (Tag, error) {
	if c.Step < 0 || c.Step > MaxStep {
		return t, fmt.Errorf("%w: step %d, want 1..%d", ErrInvalid, c.Step, int64(MaxStep))
	}
	if c.MaxID < 0 || c.RaiseBy < 0 || c.MaxID != 0 && c.RaiseBy != 0 {
		return t, fmt.Errorf("%w: max_id %d, raised by %d, want one of them, at least 1", ErrInvalid, c.MaxID, c.RaiseBy)
	}
	if c.Step != 0 {
		t.Step = c.Step
	}
	if c.Description != nil {
		t.Description = *c.Description
	}
	if !c.Raises() || c.MaxID != 0 && c.MaxID == t.Least {
		return t, nil // the same change made again finds itself done
	}
	raised := c.MaxID
	if c.RaiseBy != 0 {
		raised = t.MaxID + min(c.RaiseBy, math.MaxInt64-t.MaxID)
	}
	if raised < t.MaxID || raised > limit || c.RaiseBy > limit-t.MaxID {
		return t, &RaiseError{Change: c, Now: t.MaxID, Limit: limit}
	}
	t.MaxID, t.Least = raised, raised
	return t, nil
}
