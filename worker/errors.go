package worker

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// errStore marks an error that a store returned.
var errStore = errors.New("worker: the store failed")

// ofStore returns err marked with errStore; nil for nil.
func ofStore(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errStore, err)
}

// codes maps errors of packages segment and snowflake to codes and texts for callers; the first row that matches
// counts. A text states a fact and names no internals. Commands, which know the code, add what to do.
var codes = []struct {
	err  error
	code subjects.Code
	text string
}{
	// ErrNotLoaded wraps the cause of a failed load. It stands first, since callers need not know the cause.
	{segment.ErrNotLoaded, subjects.Unavailable, "the store did not deliver a range in time"},
	{segment.ErrUncertain, subjects.Unavailable, "the change may have been made, in whole or in part"},
	{segment.ErrDisabled, subjects.NotFound, "the tag was deleted"},
	{segment.ErrUnknownTag, subjects.NotFound, "no such tag"},
	{segment.ErrZone, subjects.Unavailable, "this worker lacks the time zone of the tag"},
	{segment.ErrBadRow, subjects.Unavailable, "the tag's row in the table has a step or max_id below 1"},
	{segment.ErrExists, subjects.Conflict, "the tag exists"},
	{segment.ErrInvalid, subjects.BadRequest,
		"step must be 1..1099511627776 and start at least 1; " +
			"the store must be able to hold both, and the length and characters of the description"},
	{segment.ErrRationed, subjects.TooMany, "this worker made too many tags just now"},
	{segment.ErrTooMany, subjects.TooMany, "too many requests wait for this tag"},
	{segment.ErrUndecided, subjects.Unavailable,
		"the registry was resumed, and where the tag goes on is undecided"},
	{segment.ErrClock, subjects.Unavailable,
		"a new day, month or year of the tag has begun by this worker's clock, which is not yet compared with others'"},
	{segment.ErrExhausted, subjects.UsedUp, "no number is left of the tag, or of its day, month or year"},
	{segment.ErrElsewhere, subjects.Unavailable, "this worker cannot load IDs at the moment"},
	{errStore, subjects.Unavailable, "the store does not answer"},
	{segment.ErrClosed, subjects.Unavailable, "this worker is stopping"},
	{issuer.ErrTooMany, subjects.TooMany, "too many requests wait for the clock"},
	{issuer.ErrExpired, subjects.Unavailable, "this worker was too slow to answer in time"},
	{snowflake.ErrNoNumber, subjects.Unavailable, "this worker has no worker number"},
	{snowflake.ErrClosed, subjects.Unavailable, "this worker has given up its worker number"},
	{snowflake.ErrWindow, subjects.Unavailable, "this worker may not issue at this time"},
	{snowflake.ErrEpoch, subjects.Unavailable, "this worker's clock is before the epoch"},
	{snowflake.ErrTimeEnds, subjects.Unavailable, "the time field of the layout is full"},
}

// wireError returns the error that callers get for err. An error that no row of codes matches is a bug, and is logged.
func wireError(err error, log *slog.Logger) *subjects.Error {
	if e, ok := errors.AsType[*subjects.Error](err); ok {
		return e
	}
	if b, ok := errors.AsType[*snowflake.BehindError](err); ok {
		return subjects.Errorf(subjects.Unavailable, "this worker's clock is %v behind its last ID", b.By)
	}
	if n, ok := errors.AsType[*segment.NameError](err); ok {
		return subjects.Errorf(subjects.NotFound, "no such tag; the table has %+q", n.Found)
	}
	if x, ok := errors.AsType[*segment.ExhaustedError](err); ok && x.Left > 0 {
		e := subjects.Errorf(subjects.UsedUp,
			"only %d numbers are left of the tag, or of its day, month or year", x.Left)
		e.MaxBatch = int(min(x.Left, wire.MaxBatchLimit))
		return e
	}
	if r, ok := errors.AsType[segment.RuleError](err); ok {
		return subjects.Errorf(subjects.BadRequest, "%s", string(r))
	}
	if r, ok := errors.AsType[*segment.RightError](err); ok && !errors.Is(err, segment.ErrUncertain) {
		log.Error("the user of the database lacks a right; requests that need it are answered 503", "error", err)
		return subjects.Errorf(subjects.Unavailable,
			"the workers' user of the database lacks the right %s on leaf_alloc", r.Right)
	}
	for _, row := range codes {
		if !errors.Is(err, row.err) {
			continue
		}
		if row.err == errStore || row.err == segment.ErrUncertain {
			log.Warn("the store failed; the request was answered 503", "error", err)
		}
		e := subjects.Errorf(row.code, "%s", row.text)
		if row.err == segment.ErrUndecided || row.err == segment.ErrBadRow { // no worker serves before a person acts
			e.RetryAfter = errStopped.RetryAfter
		}
		return e
	}
	log.Error("a request failed for an unknown reason and was answered 500: report this as a bug", "error", err)
	return subjects.Errorf(subjects.Internal, "internal error; see the log of the worker")
}
