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

// The reasons, in the order in which they are shown. A worker with a reason other than [Stopped] is not in the queue
// group of the mode.
const (
	// Disconnected: there is no connection to NATS, or the control connection, on which ranges are loaded, is not back
	// yet.
	Disconnected Reason = "disconnected"
	// Unchecked: the state of the registry has not been checked since the start of the process.
	Unchecked Reason = "unchecked"
	// Stopped: the registry has an incident (its state was found lost or set back, or a second registry answers), and
	// no operator has resumed it yet. The worker stays in the queue group, and relays requests to a worker that is
	// not stopped, or answers 503 if there is none.
	Stopped Reason = "stopped"
	// Rights: the NATS user lacks a right that the mode needs, or the server has not listed the user's rights yet.
	Rights Reason = "rights"
	// Number: there is no worker number, or its window or the clock does not allow snowflakes.
	Number Reason = "number"
	// Store: this worker cannot write to the store, so it takes no requests that other workers relay.
	Store Reason = "store"
	// Overload: requests are answered late.
	Overload Reason = "overload"
)

// errStopped is the answer to callers while the registry is stopped and no other worker serves them. Its RetryAfter
// keeps clients from asking again at once.
var errStopped = &subjects.Error{
	Code: subjects.Unavailable, Text: "the registry is stopped", RetryAfter: 5 * time.Second,
}

var shown = []Reason{Disconnected, Unchecked, Stopped, Rights, Number, Store, Overload}

// AllReasons returns all reasons, in the order in which they are shown.
func AllReasons() []Reason { return slices.Clone(shown) }

// Forbids reports whether, for this reason, no ID of the mode may leave this process: even requests that were delivered
// before get 503. For other reasons a worker still answers those requests with IDs.
func (r Reason) Forbids() bool { return r == Unchecked || r == Stopped }

// An Out is one reason why a mode is not served, with its cause.
type Out struct {
	Reason Reason
	Why    error // for callers and operators
	Since  time.Time
}

// Reasons holds, by mode, the reasons why the process serves no requests; a membership adds the reasons of its
// connection (see [Worker.Outs]). Each reason is set and cleared by one part of the program, independently of other
// reasons. Once Set has returned with a reason that forbids, no ID of the mode leaves this process. The zero value has
// no reasons. It is safe for concurrent use.
type Reasons struct {
	mu      sync.Mutex
	out     map[Mode][]Out
	changed func() // wakes the worker, if set; it does not block

	// forbidden has the causes of each mode with a forbidding reason; nil if there is none. Each request reads it.
	forbidden atomic.Pointer[map[Mode]error]
}

// Set adds a reason to modes, with its cause. If the reason is set already, its cause is replaced and its time is kept.
func (r *Reasons) Set(reason Reason, why error, modes ...Mode) {
	r.change(modes, func(outs []Out) []Out { return add(outs, Out{reason, why, time.Now()}) })
}

// Clear removes a reason from modes.
func (r *Reasons) Clear(reason Reason, modes ...Mode) {
	r.change(modes, func(outs []Out) []Out {
		return slices.DeleteFunc(outs, func(o Out) bool { return o.Reason == reason })
	})
}

// add returns outs with o, in the order of shown. If outs has o's reason already, its cause is replaced and its time is
// kept.
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

// publish updates forbidden, which requests read. The lock is held.
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

// join returns, as one error, the causes of those outs whose reason the parameter which accepts; nil if there are none.
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

// Of returns the reasons of a mode, in the order in which they are shown.
func (r *Reasons) Of(mode Mode) []Out {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.out[mode])
}

// Why returns the causes of all reasons of a mode as one error, nil if there are none.
func (r *Reasons) Why(mode Mode) error { return join(r.Of(mode), anyReason) }

// Forbidden returns the error for callers while no ID of the mode may leave this process, else nil.
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
