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

// A gate lets loads pass while the registry is sound. It is safe for concurrent use.
//
// Invariant: from a stop until its end no load begins, none that is under way is used, and what was loaded is held and
// discarded. The states are those of machine; a check moves the gate between begin and end.
type gate struct {
	cfg    *Config
	loaded Memory        // set before the first load
	wake   chan struct{} // has room for one word that Run is to check

	mu      sync.Mutex
	machine machine
	proof   *finding // by an acknowledged write, until an incident names it
}

// never is a number of connections that no connection has.
const never = ^uint64(0)

// An attempt is a check under way.
type attempt struct {
	began    time.Time
	links    uint64   // connections made until the check began
	doubts   int      // until the check began
	proof    *finding // that was known when the check began; nil if there was none
	thorough bool
}

// passes reports whether a load may begin, and with which pass, or returns why the registry is stopped.
func (g *gate) passes() (p pass, isOpen bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.machine.isStopped() {
		return p, false, g.machine.why
	}
	now := g.cfg.Now()
	if isOpen = g.machine.soundAt(now, g.cfg.Links()); isOpen && g.machine.isAgeing(now) {
		g.signal()
	}
	return g.machine.pass(), isOpen, nil
}

// counts returns an error if a load that began with a pass must not be used any more.
func (g *gate) counts(p pass) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.machine.counts(p, g.cfg.Now()):
		return nil
	case g.machine.why != nil:
		return g.machine.why
	}
	return fmt.Errorf("lineage: the load took longer than %v, and its range is a hole", fresh+writeTimeout)
}

// begin begins a check. The first ones on a connection are thorough, until one of them has found the registry sound.
func (g *gate) begin(thorough bool) attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	links := g.cfg.Links()
	return attempt{g.cfg.Now(), links, g.machine.doubts, g.proof, thorough || links != g.machine.links}
}

// end ends a check that did what it had to. It ends a stop, unless this worker is in an incident or has a proof of one.
// It returns why the registry is stopped, nil if it is not.
func (g *gate) end(a attempt, inIncident bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.machine.isStopped() && !inIncident && g.proof == nil {
		g.machine.resumed()
		g.loaded.Release()
		g.cfg.Serving.Allow()
	}
	g.machine.checkedAt(a.began, a.links, a.doubts)
	return g.machine.why
}

// Doubt makes the next load, and Run, check the registry: as after a reconnect.
func (g *gate) Doubt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.machine.doubt()
	g.signal()
}

func (g *gate) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// WentBack says that an acknowledged write has shown that the bucket went back: a mark is below what this worker had
// loaded, by need, or 0. When it returns, no load begins and what was loaded before is not issued. It does not block.
func (g *gate) WentBack(why string, need int64) {
	g.proved(&finding{cause: era.WentBack, why: why, need: need})
}

// proved is [gate.WentBack] for any finding.
func (g *gate) proved(f *finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.machine.isStopped() {
		return // while an incident is open, own keys show whether the bucket went back once more
	}
	g.proof = f
	g.stopLocked(g.proof)
	g.signal()
}

// named discards a proof, since the registry or an incident has what it proved.
func (g *gate) named() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proof = nil
}

// stop ends loads and the issuing from memory.
func (g *gate) stop(f *finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopLocked(f)
}

func (g *gate) stopLocked(f *finding) {
	g.refuseLocked(fmt.Errorf("%w: %s: %s; run `natsid resume`", ErrStopped, f.cause, f.why), f.cause == era.Second)
}

// refuse is stop for a reason that is no finding of this process; with all it ends snowflakes, too.
func (g *gate) refuse(why error, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuseLocked(why, all)
}

func (g *gate) refuseLocked(why error, all bool) {
	g.cfg.Serving.Refuse(why, all)
	g.machine.stop(why)
	g.loaded.Hold(why)
	g.loaded.Discard() //mutant:discard
}

// noted ends the begin of a stop: the own key of this worker names the incident, and the marks are lifted.
func (g *gate) noted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.machine.noted()
}

// Stopped returns why nothing is issued, nil if the registry is not known to be stopped.
func (g *gate) Stopped() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.machine.why
}

func (g *gate) state() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.machine.state
}

// Checked reports whether a check has found the registry sound since the connection was made last.
func (g *gate) Checked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.machine.isStopped() && !g.machine.checked.IsZero() && g.machine.links == g.cfg.Links()
}

// isAgeing reports whether a check is to be made before a load needs it.
func (g *gate) isAgeing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.machine.isAgeing(g.cfg.Now())
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

// load loads after a check, and uses the range only if the check still counts when the load ends.
//
// An entry of an era that this worker does not know was written in a later one, or in another history. So the worker
// checks; where the registry still does not have that era, that is a proof.
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
			return segment.Loaded{}, err
		}
		if err := s.member.checks.meetEra(ctx, unknown.Era); err != nil {
			return segment.Loaded{}, err
		}
	}
	return segment.Loaded{}, errNewerRead
}

// Create implements [segment.Store]: a tag is made on first use.
func (s gatedStore) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	if err := s.member.Ready(ctx); err != nil {
		return segment.Tag{}, err
	}
	return s.Store.Create(ctx, t, revive)
}

// Poll implements [segment.Store]: the entries are read by the era that a check has found. A mark below what this
// worker loaded makes the worker check again: only a write proves that the bucket went back.
func (s gatedStore) Poll(ctx context.Context, see func(segment.Listing)) error {
	if err := s.member.Ready(ctx); err != nil {
		return err
	}
	floors := s.member.floors.loaded.Floors()
	isLow := false
	err := s.Store.Poll(ctx, func(l segment.Listing) {
		for _, t := range l.Tags {
			isLow = isLow || shortfall(t, floors) > 0
		}
		see(l)
	})
	if err != nil || !isLow {
		return err
	}
	s.member.Doubt()
	if err := s.member.Ready(ctx); err != nil {
		return err
	}
	return s.member.checks.proveLow(ctx)
}
