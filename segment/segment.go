// Package segment issues the IDs of tags from ranges that are loaded ahead of need; it is internal to natsid and may
// change.
//
// # The second law of uniqueness
//
// A [Store] keeps one mark per tag, the first ID that no worker has loaded. All IDs below the mark are spent:
// issued, in one worker's memory, or a hole, which nobody issues. A load of n IDs reads the mark m and reserves
//
//	[a, b) with a = max(m, floor), b = a + max(n, step)
//
// by raising the mark from m to b, durably and in one step that no other load can share. The IDs are used only if
// the store acknowledged that step, or if the entry, read again, bears the random token of this very write. After
// any other outcome, such as a timeout, the write may have landed, may land later, or never, and nobody uses the
// range: it is a hole, whose size package kvstore bounds. So no two workers ever hold the same ID.
//
//   - floor is the highest range end that this process ever loaded for the tag. So the process repeats no ID, even
//     if the store returns to an earlier state. A range that begins below the floor or is empty is refused.
//   - A tag that lost its mark is unknown. An allocator that had ranges of the tag does not create it on first use,
//     since other workers may have loaded more: an operator must say where the tag continues.
//   - A deleted tag keeps its mark. When an operator creates the tag again, it continues above that mark; first use
//     does not revive it.
//   - The mark alone cannot distinguish a raise by an operator from a load. So each tag also has a least ID that only
//     rises. A worker that has seen the least ID serves each later request with that ID or higher ones. A worker sees
//     it when the change is announced, with every load and with every poll. The worker that makes the change sees it
//     before it answers the operator. A late or lost announcement only delays that other workers see it.
//
// # The third law: strict order
//
// A tag may be strict. Then, if a request is sent after the answer to another has arrived, its IDs are higher,
// whichever workers answered. The law that keeps this:
//
//	A strict request is served only from one load,
//	whose compare-and-set of the mark is sent after the request arrived.
//
// A request may join a load until the load sends its compare-and-set ([Store.LoadStrict]). No request is served from
// two loads. Say that request A was answered before request B was sent. A's load had raised the mark by then, and B's
// load raises it afterwards, so B's range begins above A's. No clock, lease or owner is part of this. A load that
// read an old mark loses its compare-and-set; one whose acknowledgement is lost leaves a hole; and a request that
// waits at a paused worker has no answer yet, so no other request must get higher IDs than it.
//
// Whether a tag is loose or strict stands in its entry from the start, and never changes. The first load of a tag
// reads that before it reserves anything ([ErrStrict]), so no ID is issued before.
//
// So no ID of a strict tag stays in memory: nothing is loaded ahead, IDs of a load beyond its requests are holes, and
// no request is served from a range that was kept after a failed load.
//
// The third law, as the second, requires a store that loses no acknowledged write of a mark.
//
// # The life of a request
//
// [Allocator.Next] serves a request from memory by one atomic operation. A cold request, whose IDs are not in memory,
// takes the following way. Each file calls the next:
//
//	allocator.go  Allocator.Park parks the request with the buffer of its tag
//	tags.go       tagSet.obtain finds the buffer or creates it, unless the tag is known not to exist
//	buffer.go     buffer.park queues the request and starts a load
//	source.go     source.run loads ranges until none is due, creating the tag first if that is configured;
//	              lane.drive waits for a place, so that failing tags do not delay others, and calls the store
//
// There are two calls upwards. source.run passes each outcome to the buffer, which answers the waiting requests. A
// buffer informs its tagSet when a tag was found, refused or stopped. The buffer guards its supply with a lock. The
// parts of the supply call nothing outside: stock (the ranges), run (the part of a range that requests use without the
// lock), waiters (the queue), pace (speed and step) and loader (how loads ended). From them the supply decides when to
// load, and how many IDs.
//
// Independently of requests, a follower (follow.go) applies changes in the store to the buffers.
package segment

import (
	"context"
	"fmt"
	"math"
	"time"
)

// MaxStep is the highest step of a tag, and the most IDs that one request may ask for.
const MaxStep = 1 << 40

// MaxID is the upper bound of all IDs: no range ends above it.
const MaxID = math.MaxInt64

// A Range is consecutive IDs, [Start, End): End is not in it. The zero value is empty.
type Range struct {
	Start, End int64
}

// Len returns how many IDs the range holds.
func (r Range) Len() int64 { return r.End - r.Start }

// Loaded is the result of a load: a range, and the tag's configured step (at least 1), rules, and least ID, below
// which none may be issued. The range may be longer or shorter than the step.
type Loaded struct {
	Range
	Step  int64
	Least int64
	Rules Rules
	// Era names the store's era, its time between two recoveries from lost data, of this load; "" for none.
	Era string
	// Read is the revision at which the load read the tag's mark in the store; 0 if there was none.
	Read uint64
	// Passed says that another worker loaded the range and passed it to this one. That worker has called
	// [Config.Granted].
	Passed bool
}

// A Run is the IDs from From to To, without To, that one process alone has loaded or skipped: no other process raised
// the mark in between. The zero Run is none. No ID is issued because of a Run: it serves audits.
type Run struct {
	By   string `json:"by"` // random, one per process
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// Raised is a function that a store calls after each write that raised a tag's mark between the parameters from and
// to, or may have raised it, before the load knows whether the write succeeded. The parameter before is the run that
// ends at from, if another process wrote it and it is known. Raised must not block.
type Raised func(tag string, from, to int64, before Run)

// A Tag is a tag as a store keeps it.
type Tag struct {
	Name        string
	Step        int64     // a load reserves at least this many IDs, 1..MaxStep
	MaxID       int64     // the mark: the first ID that no worker has loaded
	Least       int64     // no ID below it may be issued, not even one already loaded; 0 for none
	Description string    // free text
	Updated     time.Time // of the last load or change; set by the store
	Disabled    bool      // deleted: no ID is issued, the mark is kept
	Rules       Rules
	// Undecided says that the store went back to an earlier state, and that no range is loaded until an operator sets
	// MaxID above every ID that was ever loaded.
	Undecided bool
	// MarkAhead is the tag's mark in the bucket minus the max_id of its row in the [Table], negative if the mark is
	// behind; nil if the tag has no row or no mark. Only [Store.List] sets it.
	MarkAhead *int64
}

// Validate returns an error that wraps [ErrInvalid] if the tag cannot be created: its step must be 1..MaxStep, and its
// MaxID, the first ID to issue, at least 1, or 0 for the lowest one.
func (t Tag) Validate() error {
	if t.Step < 1 || t.Step > MaxStep {
		return fmt.Errorf("%w: step %d, want 1..%d", ErrInvalid, t.Step, int64(MaxStep))
	}
	if t.MaxID < 0 {
		return fmt.Errorf("%w: start %d, want at least 1", ErrInvalid, t.MaxID)
	}
	if err := t.Rules.Validate(); err != nil {
		return err
	}
	if t.MaxID <= 1 {
		return nil
	}
	if t.MaxID < t.Rules.lowest() {
		return ruleError("start %d is below min %d", t.MaxID, t.Rules.Min)
	}
	return t.Rules.fits(t.MaxID, 1, time.Now())
}

// A Floor is what a process remembers of a tag from its own loads; above all, how far it has loaded the tag.
type Floor struct {
	End  int64 // no ID at or above it was ever loaded by this process
	Step int64 // the configured step, 0 if it is not known
	Live bool  // the tag was not deleted when this process last saw it
	// Rules are the tag's rules; nil if this process does not know them.
	Rules *Rules `json:",omitempty"`
	// Era names the era of the store in which the IDs below End were loaded: see [Loaded].
	Era string `json:",omitempty"`
}

// with returns f, completed from known, an earlier floor of the same tag: with End if that is higher, and with the
// rules if f is of a live tag and has none.
func (f Floor) with(known Floor) Floor {
	if f.Live && f.Rules == nil && known.Rules != nil {
		f.Rules, f.Era = known.Rules, known.Era
	}
	f.End = max(f.End, known.End)
	return f
}

// Above returns by how much the floor's End, up to which this process loaded the tag, is above the mark of t (the first
// ID that no worker has loaded); 0 if it is not.
//
// Law: a mark below the floor shows that the store returned to an earlier state. The mark of a tag with a last
// number proves nothing, since an operator may have set that mark after a loss of data.
func (f Floor) Above(t Tag) int64 {
	if t.MaxID < 1 || t.Undecided || t.Rules.Bounded() || f.Rules != nil && f.Rules.Bounded() {
		return 0 // below 1 its entry is damaged
	}
	return max(0, f.End-t.MaxID)
}

// A Store keeps the marks of tags. All methods are safe for concurrent use, also by many processes on one store, and
// return by the time ctx ends.
//
// Every store upholds the law of uniqueness: a range that Load returns begins at the mark or above it. Load has
// raised that mark to the range's end, durably and in one step that no other load can share. Where the outcome of
// the step is unknown, Load returns an error, and nobody uses the range, unless a later read of the mark proves
// that the step was this load's.
type Store interface {
	// Load reserves the next max(n, step) IDs of a tag, at floor or above. floor is the highest end that the caller
	// ever saw for the tag. Load returns fewer IDs, at least one, if fewer are left, or if it returns a range that
	// an earlier failed load reserved. It returns [ErrUnknownTag], [ErrDisabled], [ErrExhausted] if no ID is left,
	// or another error, after which a later call may succeed. For a strict tag it reserves nothing and returns
	// [ErrStrict], with all fields of Loaded except the range.
	Load(ctx context.Context, tag string, n, floor int64) (Loaded, error)

	// LoadStrict reserves IDs of a strict tag, whose IDs must rise over all workers. In each attempt it reads the mark,
	// then calls join, then sends the compare-and-set that raises the mark. It reserves the number of IDs that join
	// returns, at least 1; fewer only if it returns a range that an earlier failed load reserved. Its range begins
	// above all ranges that were loaded when join was last called. It sends nothing if ctx has ended when join returns.
	// It returns the errors of Load. If fewer IDs are left than join returns, it reserves nothing and returns an
	// [ExhaustedError].
	LoadStrict(ctx context.Context, tag string, join func() int64, floor int64) (Loaded, error)

	// Create creates a tag whose first ID is t.MaxID and returns it as stored. If revive is set, a disabled tag is
	// enabled again, loose or strict as before, with t's step and description, and continues above its own mark;
	// otherwise Create returns [ErrDisabled] for it. It returns [ErrExists] for an enabled tag and [ErrInvalid] for an
	// invalid one. Without revive it may return [ErrUnknownTag] if the store has lost tags, since t may be one of them.
	//
	// Of several concurrent calls that create or revive a tag one succeeds, and the tag gets the fields of that call.
	// After an error of Create, Update or Delete nothing was changed, unless the error wraps [ErrUncertain].
	Create(ctx context.Context, t Tag, revive bool) (Tag, error)

	// Update changes a tag and returns it as stored. It returns [ErrUnknownTag], [ErrDisabled] or
	// [ErrInvalid]. Repeating it does no harm, except that RaiseBy raises twice.
	Update(ctx context.Context, tag string, c Change) (Tag, error)

	// Delete disables a tag and keeps its mark. It returns [ErrUnknownTag] if the tag does not exist, and nil if it was
	// disabled already.
	Delete(ctx context.Context, tag string) error

	// Look returns a tag as stored, disabled or not, or [ErrUnknownTag].
	Look(ctx context.Context, tag string) (Tag, error)

	// Poll reads all tags with one query or listing, calls the function see with them, and then does the store's
	// own periodic work. An error says nothing about whether see was called.
	Poll(ctx context.Context, see func(Listing)) error

	// List returns the first tags, limit at most, whose names sort above the parameter after, by bytes; disabled
	// too.
	List(ctx context.Context, after string, limit int) ([]Tag, error)
}

// A Listing is all tags of a store at about one moment.
type Listing struct {
	Tags []Tag // in no order, disabled ones included
	// Removed reports whether a tag that is not in Tags was removed on purpose. It reports false where the store may
	// have lost the tag: then the ranges loaded from it remain valid.
	Removed func(tag string) bool
}

// NextRange returns the next range of n IDs: it starts at the mark, or at floor if that is higher, and ends at
// limit at most, so the last range of a tag may be shorter. All stores call NextRange, so only this function
// computes ranges. It returns [ErrExhausted] if no ID is left.
func NextRange(mark, floor, n, limit int64) (Range, error) {
	start := max(mark, floor)
	if start >= limit {
		return Range{}, ErrExhausted
	}
	return Range{start, start + min(n, limit-start)}, nil
}

// A Table is a database that keeps one max_id per tag, and that can return to an earlier state: a backup, or a replica
// that lacked the last commits. Other programs may write to it as well. All methods are safe for concurrent use.
type Table interface {
	// Row returns the present row of a tag. It returns [ErrUnknownTag], or a [*NameError] if the row that the database
	// finds has another name.
	Row(ctx context.Context, tag string) (Row, error)
	// Advance sets max_id to the parameter end if max_id is at most start, in one step, and reports whether it did.
	// After [ErrNotApplied] it certainly did not; after any other error it may have, or may do so later.
	Advance(ctx context.Context, tag string, start, end int64) (bool, error)
	// Insert inserts a row. It returns [ErrExists] if the tag has a row, [ErrInvalid] if the table cannot hold the row,
	// and [ErrNotApplied] if it changed nothing for another reason. After any other error the row may be inserted.
	Insert(ctx context.Context, t Tag) error
	// Update changes the fields that c sets and nothing else, in one step: others may change the rest concurrently. It
	// raises max_id to c.MaxID if max_id is lower; c.RaiseBy is 0. Its errors are those of Insert except ErrExists.
	Update(ctx context.Context, tag string, c Change) error
	// Try returns the error that Update would return now, and changes nothing.
	Try(ctx context.Context, tag string, c Change) error
	// AllRows returns all rows, in no order, with one query.
	AllRows(ctx context.Context) ([]Row, error)
	// Limit returns the highest max_id that the table can hold.
	Limit() int64
}

// A Row is a tag as a [Table] has it. Its step and max_id may be invalid: see [ErrBadRow].
type Row = Tag
