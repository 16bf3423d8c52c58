package app

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/natsid/natsid/worker"
)

// refusals are the reasons why modes must not be served at the moment, though
// IDs may be in memory: the one place where they are kept. While a mode has one
// it is not ready, the worker leaves the queue group of the mode, and requests
// that it has taken already are answered 503 with the reason. No ID of the mode
// leaves the process after refuse has returned.
//
// Reasons of different sources stand side by side; each source allows what it
// refused itself. The zero value refuses nothing. It is safe for concurrent use.
type refusals struct {
	mu      sync.Mutex
	reasons map[refusal]error
	first   atomic.Pointer[map[worker.Mode]error] // of each refused mode; nil if there is none
	changed atomic.Pointer[func()]                // called after each change, if set; it does not block
}

// A refusal is one source's word about one mode.
type refusal struct {
	mode   worker.Mode
	source string
}

// refuse stops serving the modes, for a reason in words for callers and
// operators. A later reason of the same source takes the place of an earlier one.
func (r *refusals) refuse(source string, why error, modes ...worker.Mode) {
	r.change(func() {
		for _, m := range modes {
			r.reasons[refusal{m, source}] = why
		}
	})
}

// allow takes back what a source refused.
func (r *refusals) allow(source string, modes ...worker.Mode) {
	r.change(func() {
		for _, m := range modes {
			delete(r.reasons, refusal{m, source})
		}
	})
}

// has reports whether a source refuses any mode.
func (r *refusals) has(source string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.reasons {
		if key.source == source {
			return true
		}
	}
	return false
}

func (r *refusals) change(f func()) {
	if changed := r.changed.Load(); changed != nil {
		defer (*changed)()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reasons == nil {
		r.reasons = map[refusal]error{}
	}
	f()
	first := map[worker.Mode]error{}
	for _, key := range slices.SortedFunc(maps.Keys(r.reasons), refusal.compare) {
		if why := r.reasons[key]; first[key.mode] == nil {
			first[key.mode] = why
		} else {
			first[key.mode] = fmt.Errorf("%w; %w", first[key.mode], why)
		}
	}
	if len(first) == 0 {
		r.first.Store(nil)
		return
	}
	r.first.Store(&first)
}

func (a refusal) compare(b refusal) int {
	return cmp.Or(cmp.Compare(a.mode, b.mode), cmp.Compare(a.source, b.source))
}

// why returns why a mode is refused, or nil. It is one atomic load where nothing
// is refused, since each request asks.
func (r *refusals) why(mode worker.Mode) error {
	if first := r.first.Load(); first != nil {
		return (*first)[mode]
	}
	return nil
}
