package worker

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/subjects"
)

// A Reason is why a worker serves no requests of a mode.
type Reason string

// The reasons, in the order in which they are shown. A worker with one of them is in no queue group of the mode, but
// for [Stopped].
const (
	// Disconnected: there is no connection to NATS, or ranges are loaded on another one that is not back yet.
	Disconnected Reason = "disconnected"
	// Unchecked: the registry was not checked since the start.
	Unchecked Reason = "unchecked"
	// Stopped: the registry has an incident, which an operator resolves. The worker stays in the queue group, so that
	// callers learn that. It passes each request on to a worker that is not stopped; without one it answers 503.
	Stopped Reason = "stopped"
	// Rights: the user of NATS lacks a right without which no request is served, or NATS has not said yet.
	Rights Reason = "rights"
	// Number: there is no worker number, or its window or the clock does not allow snowflakes.
	Number Reason = "number"
	// Store: the store cannot be written here, so no requests of other workers are taken.
	Store Reason = "store"
	// Overload: requests are answered late.
	Overload Reason = "overload"
)

// errStopped is what callers get while the registry is stopped. Its time to wait says that no other worker may serve
// them, so clients do not ask again for it.
var errStopped = &subjects.Error{
	Code: subjects.Unavailable, Text: "the registry is stopped", RetryAfter: 5 * time.Second,
}

var shown = []Reason{Disconnected, Unchecked, Stopped, Rights, Number, Store, Overload}

// AllReasons returns all reasons, in the order in which they are shown.
func AllReasons() []Reason { return slices.Clone(shown) }

// Forbids reports whether no ID of the mode that this process issued may leave it: requests that the worker took before
// are answered with 503. While a worker has only other reasons, it answers those from memory.
func (r Reason) Forbids() bool { return r == Unchecked || r == Stopped }

// An Out is one reason, with its cause.
type Out struct {
	Reason Reason
	Why    error // for callers and operators
	Since  time.Time
}

// Reasons are those why a worker serves no requests, by mode, as far as its process decides: a membership adds those of
// its connection, see [Worker.Outs]. Reasons stand side by side; whoever sets one clears it. After a Set of a reason
// that forbids has returned, no ID of the mode that this process issued leaves it. The zero value has none. It is safe
// for concurrent use.
type Reasons struct {
	mu      sync.Mutex
	out     map[Mode][]Out
	changed func() // wakes the worker, if set; it does not block

	// Each request asks this. It is nil where no mode has a reason that forbids.
	forbidden atomic.Pointer[map[Mode]error]
}

// Set takes a worker out of modes. It replaces the cause of a reason that is set already, and keeps its time.
func (r *Reasons) Set(reason Reason, why error, modes ...Mode) {
	r.change(modes, func(outs []Out) []Out { return add(outs, Out{reason, why, time.Now()}) })
}

// Clear takes a reason back.
func (r *Reasons) Clear(reason Reason, modes ...Mode) {
	r.change(modes, func(outs []Out) []Out {
		return slices.DeleteFunc(outs, func(o Out) bool { return o.Reason == reason })
	})
}

// add returns outs with o in its place. A reason that is there keeps its time.
func add(outs []Out, o Out) []Out {
	if i := find(outs, o.Reason); i >= 0 {
		outs[i].Why = o.Why
		return outs
	}
	outs = append(outs, o)
	slices.SortFunc(outs, func(a, b Out) int {
		return cmp.Compare(slices.Index(shown, a.Reason), slices.Index(shown, b.Reason))
	})
	return outs
}

func find(outs []Out, reason Reason) int {
	return slices.IndexFunc(outs, func(o Out) bool { return o.Reason == reason })
}

// change replaces the reasons of modes.
func (r *Reasons) change(modes []Mode, f func([]Out) []Out) {
	r.mu.Lock()
	changed := r.changed
	if r.out == nil {
		r.out = map[Mode][]Out{}
	}
	for _, m := range modes {
		r.out[m] = f(slices.Clone(r.out[m]))
	}
	r.publish()
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// publish stores the causes of reasons that forbid where requests read them. The lock is held.
func (r *Reasons) publish() {
	causes := map[Mode]error{}
	for m, outs := range r.out {
		if why := join(outs, Reason.Forbids); find(outs, Stopped) >= 0 {
			causes[m] = errStopped
		} else if why != nil {
			causes[m] = subjects.Errorf(subjects.Unavailable, "%v", why)
		}
	}
	if len(causes) == 0 {
		r.forbidden.Store(nil)
		return
	}
	r.forbidden.Store(&causes)
}

// join returns the causes of some reasons, nil if there are none.
func join(outs []Out, which func(Reason) bool) (why error) {
	for _, o := range outs {
		switch {
		case !which(o.Reason):
		case why == nil:
			why = o.Why
		default:
			why = fmt.Errorf("%w; %w", why, o.Why)
		}
	}
	return why
}

func anyReason(Reason) bool { return true }

// Of returns the reasons of a mode.
func (r *Reasons) Of(mode Mode) []Out {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.out[mode])
}

// Why returns the causes of all reasons of a mode, or nil.
func (r *Reasons) Why(mode Mode) error { return join(r.Of(mode), anyReason) }

// Forbidden returns why no ID of a mode may leave the process, as callers read it, or nil.
func (r *Reasons) Forbidden(mode Mode) error {
	if all := r.forbidden.Load(); all != nil {
		return (*all)[mode]
	}
	return nil
}

// wakes sets the function that is called after each change.
func (r *Reasons) wakes(changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}
