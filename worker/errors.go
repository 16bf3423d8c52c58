package worker

import (
	"errors"
	"fmt"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// errStore says that a store failed for a reason of its own.
var errStore = errors.New("worker: the store failed")

// ofStore marks an error that came straight from a store.
func ofStore(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errStore, err)
}

// codes maps the cores' errors to what crosses the wire. The first row that
// fits counts. The texts say what to do next, and name no internals.
var codes = []struct {
	err  error
	code subjects.Code
	text string
}{
	{segment.ErrDisabled, subjects.NotFound, "the tag was deleted; make it again with `natsid tag create`, it goes on above its old IDs"},
	{segment.ErrUnknownTag, subjects.NotFound, "no such tag; make it with `natsid tag create`"},
	{segment.ErrBadRow, subjects.Unavailable, "the tag's row in the table has a step or max_id below 1: mend it"},
	{segment.ErrUnguarded, subjects.BadRequest, "a tag is deleted in the guard, which is off: delete its row in the table, or start the workers with --guard on"},
	{segment.ErrExists, subjects.BadRequest, "the tag exists already"},
	{segment.ErrInvalid, subjects.BadRequest, "step must be 1..1099511627776, start at least 1, and the store must have room for them and for the description, its length and its characters"},
	{segment.ErrTooMany, subjects.TooMany, "too many requests wait for this tag: back off"},
	{segment.ErrExhausted, subjects.Unavailable, "the tag has not so many IDs left below what the store can hold"},
	{segment.ErrNotLoaded, subjects.Unavailable, "the store did not give a range in time: retry, then back off"},
	{errStore, subjects.Unavailable, "the store does not answer: retry, then back off"},
	{segment.ErrClosed, subjects.Unavailable, "this worker is stopping: retry"},
	{snowflake.ErrTooMany, subjects.TooMany, "too many requests wait for the clock: back off"},
	{snowflake.ErrNoNumber, subjects.Unavailable, "this worker has no worker number: retry, another worker may"},
	{snowflake.ErrClosed, subjects.Unavailable, "this worker has given up its worker number: retry, another worker may"},
	{snowflake.ErrWindow, subjects.Unavailable, "this worker may not issue at this time yet, or any more: retry, another worker may"},
	{snowflake.ErrEpoch, subjects.Unavailable, "this worker's clock is before the epoch: retry, another worker may"},
	{snowflake.ErrTimeEnds, subjects.Unavailable, "the time field of the layout is full: a new layout is needed"},
}

// wireError returns err as it crosses the wire. What no row knows is a bug.
func (w *Worker) wireError(err error) *subjects.Error {
	if e, ok := errors.AsType[*subjects.Error](err); ok {
		return e
	}
	if b, ok := errors.AsType[*snowflake.BehindError](err); ok {
		return subjects.Errorf(subjects.Unavailable, "this worker's clock is %v behind its last ID: retry, another worker may", b.By)
	}
	if n, ok := errors.AsType[*segment.NameError](err); ok {
		return subjects.Errorf(subjects.NotFound, "no such tag; the table has %+q", n.Found)
	}
	if r, ok := errors.AsType[*segment.RaiseError](err); ok {
		return raiseRefused(r)
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			if row.err == errStore {
				w.cfg.Log.Warn("the store failed", "error", err)
			}
			return subjects.Errorf(row.code, "%s", row.text)
		}
	}
	w.cfg.Log.Error("a request failed", "error", err)
	return subjects.Errorf(subjects.Internal, "internal error; the worker's log tells more")
}

// raiseRefused says why a mark cannot be raised as asked.
func raiseRefused(r *segment.RaiseError) *subjects.Error {
	if r.MaxID != 0 && r.MaxID < r.Now {
		return subjects.Errorf(subjects.BadRequest, "max_id is %d and only rises: give at least that, or raise_by", r.Now)
	}
	return subjects.Errorf(subjects.BadRequest, "max_id is %d, and the store holds at most %d: raise it by less", r.Now, r.Limit)
}
