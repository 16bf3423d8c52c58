package lineage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// A gate lets loads of IDs pass while a recent check has found the registry sound. It is safe for concurrent use.
//
// Invariant: from a stop until its end no load begins, no load that is under way yields IDs, and all IDs in memory
// are discarded.
//
//	          checked            doubted, or 3 s later
//	unknown ----------> sound ----------> unknown
//	   |                  |
//	   +--------+---------+   stop: a proof, or an open incident was read or heard
//	            v
//	         stopped ----------> unknown
//	           ^  |    resumed
//	           +--+ stop: a proof while stopped, or another incident
type gate struct {
	cfg    *Config
	loaded Memory        // set before the first load
	wake   chan struct{} // has room for one signal that Run must check

	mu     sync.Mutex
	why    error    // why nothing is loaded or issued; nil unless this worker is stopped
	sound  ongoing  // the last check that found the registry sound
	stops  int      // how often this worker was stopped
	doubts int      // calls of Doubt
	proof  *finding // an acknowledged write proved it; nil once an incident names it
}

const (
	// fresh is how long a check counts. A load needs a check of the last 3 s.
	fresh = 3 * time.Second
	// writeTimeout bounds a load's compare-and-set: if it takes longer, its range is not used.
	writeTimeout = 8 * time.Second
	// ageing is the age of a check at which a load makes Run check again, so that later loads need not wait for a
	// check.
	ageing = 2 * time.Second
	// never, no possible count of connections, says that no check was made yet.
	never = ^uint64(0)
)

// An ongoing is a check under way.
type ongoing struct {
	began    time.Time
	links    uint64   // connections made until the check began
	doubts   int      // calls of Doubt until the check began
	proof    *finding // the proof known when the check began; nil if there was none
	thorough bool
}

// A pass is what a load keeps from its start, and counts judges at its end: the time at which the last check before it
// began, and how often this worker had been stopped.
type pass struct {
	checked time.Time
	stops   int
}

// isSound reports whether a check that began less than the duration within ago found the registry sound, and Doubt
// was not called since it began.
func (g *gate) isSound(within time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isSoundLocked(within, g.doubts)
}

// isSoundLocked is isSound for a check that began after the given number of calls of Doubt. The lock is held.
func (g *gate) isSoundLocked(within time.Duration, doubts int) bool {
	return g.why == nil && g.sound.doubts >= doubts && g.sound.links == g.cfg.Links() &&
		g.cfg.Now().Sub(g.sound.began) < within
}

// doubted returns how often Doubt was called.
func (g *gate) doubted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.doubts
}

// passes returns a pass for a load that may begin. The parameter doubts is how often Doubt had been called when the
// load was requested. isOpen is false if the registry must be checked first. err says why the registry is stopped; nil
// if it is not.
//
// Law: a load rests on a check of the last 3 s that began after each doubt raised before the load was requested. Later
// doubts concern later loads: anyone can raise doubts by messages, perhaps faster than checks end.
func (g *gate) passes(doubts int) (p pass, isOpen bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if isOpen = g.isSoundLocked(fresh, doubts); isOpen && !g.isSoundLocked(ageing, g.doubts) {
		g.signal()
	}
	return pass{g.sound.began, g.stops}, isOpen, g.why
}

// counts returns an error if the range of a load with this pass must not be used: the load took too long, or the worker
// was stopped since. A worker enters a new era only after a stop, so no range of an earlier era is used either.
func (g *gate) counts(p pass) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	late := g.cfg.Now().Sub(p.checked) >= fresh+writeTimeout || g.stops != p.stops //mutant:counts
	if g.why != nil || !late {
		return g.why
	}
	return fmt.Errorf("lineage: the load took longer than %v, and its range is a hole", fresh+writeTimeout)
}

// begin returns the check to make now. It is thorough if the parameter says so, or if no check on the present
// connection, which may lead to another bucket, has found the registry sound.
func (g *gate) begin(thorough bool) ongoing {
	g.mu.Lock()
	defer g.mu.Unlock()
	links := g.cfg.Links()
	return ongoing{g.cfg.Now(), links, g.doubts, g.proof, thorough || links != g.sound.links}
}

// end records a check that found no fault. It also ends this worker's stop, unless the incident is open (inIncident) or
// a proof of a wrong state is not written yet. It returns why the registry is stopped, nil if it is not.
func (g *gate) end(a ongoing, inIncident bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil && !inIncident && g.proof == nil {
		g.why = nil
		g.loaded.Release()
		g.cfg.Serving.Allow()
	}
	if g.why == nil {
		g.sound = a
	}
	return g.why
}

// Doubt makes the next load, and Run, check the registry, as after a reconnect. It does not end a stop.
func (g *gate) Doubt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubts++
	g.signal()
}

func (g *gate) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// WentBack stops the worker: an acknowledged write has proved that the bucket went back. need is by how much a mark is
// below what this worker had loaded, 0 if unknown. Once it returns, no load begins, and no ID loaded before is issued.
// It does not block.
func (g *gate) WentBack(why string, need int64) {
	f := &finding{cause: era.WentBack, why: why, need: need}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil {
		return // during a stop, checks of the own key show whether the bucket went back once more
	}
	g.proof = f
	g.stopLocked(f.reason())
	g.signal()
}

// named discards the proof that the bucket went back, once an incident (the record of a stop) names it, or an operator
// has resumed the registry.
func (g *gate) named() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proof = nil
}

// stop ends loads, and the issuing of loaded IDs; if all is true, also of snowflakes.
func (g *gate) stop(why error, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopLocked(why, all)
}

func (g *gate) stopLocked(why error, all bool) {
	g.cfg.Serving.Refuse(why, all)
	g.why = why
	g.stops++
	g.loaded.Hold(why)
	g.loaded.Discard() //mutant:discard
}

// Stopped returns why nothing is issued, nil if the registry is not known to be stopped.
func (g *gate) Stopped() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// Checked reports whether a check on the present connection has found the registry sound.
func (g *gate) Checked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why == nil && g.sound.links == g.cfg.Links()
}

// A gatedStore is a store that loads only while the registry is sound.
type gatedStore struct {
	segment.Store
	member *Member
}

// Load implements [segment.Store].
func (s gatedStore) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	return s.load(ctx, func(ctx context.Context) (segment.Loaded, error) { return s.Store.Load(ctx, tag, n, floor) })
}

// LoadStrict implements [segment.Store].
func (s gatedStore) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	return s.load(ctx, func(ctx context.Context) (segment.Loaded, error) {
		return s.Store.LoadStrict(ctx, tag, join, floor)
	})
}

// load makes sure of a recent check, loads, and returns the range only if that check still counts when the load ends.
//
// If the tag's entry names an unknown era, either an operator has resumed the registry, which begins an era, or the
// bucket went back. A check decides which.
func (s gatedStore) load(
	ctx context.Context, load func(context.Context) (segment.Loaded, error),
) (l segment.Loaded, err error) {
	for range 2 {
		p, err := s.member.ready(ctx)
		if err != nil {
			return segment.Loaded{}, err
		}
		l, err = load(ctx)
		if err == nil {
			return l, s.member.counts(p)
		}
		unknown, ok := errors.AsType[*era.UnknownError](err)
		if !ok {
			return l, err
		}
		if err := s.member.checks.meetEra(ctx, unknown.Era); err != nil {
			return segment.Loaded{}, err
		}
	}
	return segment.Loaded{}, errNewerRead
}

// Create implements [segment.Store]. A tag that is missing in the bucket is created only while no entries can have been
// lost.
func (s gatedStore) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	if err := s.member.Ready(ctx); err != nil {
		return segment.Tag{}, err
	}
	return s.Store.Create(ctx, t, revive)
}

// Poll implements [segment.Store]; marks (next IDs of tags) are read as the last check says. A mark below what this
// worker loaded is read again, and written back unchanged: only an acknowledged write proves that the bucket went back.
func (s gatedStore) Poll(ctx context.Context, see func(segment.Listing)) error {
	if err := s.member.Ready(ctx); err != nil {
		return err
	}
	floors := s.member.loaded.Floors()
	isLow := false
	err := s.Store.Poll(ctx, func(l segment.Listing) {
		for _, t := range l.Tags {
			isLow = isLow || floors[t.Name].Above(t) > 0
		}
		see(l)
	})
	if err != nil || !isLow {
		return err
	}
	return s.member.checks.proveLow(ctx)
}
