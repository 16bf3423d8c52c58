package snowflake

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed is returned after the generator was closed: its worker number is given up for good.
	ErrClosed = errors.New("snowflake: the generator is closed")
	// ErrWindow is returned when the clock has reached the end of the window, and [Generator.Extend] has not moved the
	// end.
	ErrWindow = errors.New("snowflake: the clock has reached the end of the window of the worker number, " +
		"or of the part of it that the state file allows")
	// ErrEpoch is returned when the clock is before the layout's epoch.
	ErrEpoch = errors.New("snowflake: the clock is before the epoch")
	// ErrTimeEnds is returned when the layout's time field is full.
	ErrTimeEnds = errors.New("snowflake: the time field is full")
	// ErrNoNumber is returned while there is no generator: the process holds no worker number, or may not use it yet.
	ErrNoNumber = errors.New("snowflake: no worker number is in use")
)

// A BehindError is returned when the clock must advance first: the clock was set back, or a burst has used up the ticks
// that may be ahead of the clock.
type BehindError struct {
	// By is how far the clock must advance before the IDs can be issued; more than 0.
	By time.Duration
	// SetBack reports that By is more than a burst can explain: the clock was set back since the last ID.
	SetBack bool
}

// Error implements error.
func (e *BehindError) Error() string {
	return fmt.Sprintf("snowflake: the clock must advance by %v first", e.By)
}
