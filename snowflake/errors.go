package snowflake

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed is returned when the generator has been closed: its worker
	// number is given up, for good.
	ErrClosed = errors.New("snowflake: the generator is closed")
	// ErrWindow is returned when the window of time won for the worker number
	// is used up and has not been renewed.
	ErrWindow = errors.New("snowflake: the window of the worker number is used up")
	// ErrEpoch is returned when the clock is before the layout's epoch.
	ErrEpoch = errors.New("snowflake: the clock is before the epoch")
	// ErrTimeEnds is returned when the layout's time field is full.
	ErrTimeEnds = errors.New("snowflake: the time field is full")
	// ErrNoNumber is returned while there is no worker number to issue under.
	ErrNoNumber = errors.New("snowflake: no worker number is held")
	// ErrWait is returned by [Issuer.Next] when the IDs cannot be had at once
	// but can within the deadline: park the request.
	ErrWait = errors.New("snowflake: the clock must advance first")
	// ErrTooMany is returned by [Issuer.Park] when too many requests are parked.
	ErrTooMany = errors.New("snowflake: too many requests wait for the clock")
)

// A BehindError is returned when the clock must advance first: it was set
// back, or a burst has used up the ticks that may run ahead of it.
type BehindError struct {
	// By is how far the clock must advance before the IDs can be had.
	By time.Duration
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("snowflake: the clock must advance by %v first", e.By)
}
