package lineage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
)

// Bucket is what a member uses of the bucket of marks. [buckets.Bucket] implements it.
type Bucket interface {
	Look(ctx context.Context) (buckets.State, error)
	Get(ctx context.Context, key string) (buckets.Entry, error)
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
	UpdateSoon(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
	AllOwn(ctx context.Context, prefix string) (map[string]buckets.Entry, error)
	Found(ctx context.Context, s buckets.State, key string, value []byte) error
	// Known returns the highest revision that this process knows of; Saw says that it heard of one.
	Known() uint64
	Saw(revision uint64)
}

// Memory is the ranges that this worker has loaded. [segment.Allocator] implements it.
type Memory interface {
	Hold(why error)
	Release()
	Discard()
	Floors() map[string]segment.Floor
	Remember(floors map[string]segment.Floor)
}

// Tags is what a member uses of the store of the tags.
type Tags interface {
	segment.Lifter
	List(ctx context.Context, after string, limit int) ([]segment.Tag, error)
}

// Config configures a [Member]. Dir, MayFound, Reassert, Reread, Pin, Enough, Now and Log may be left out.
type Config struct {
	Bucket Bucket
	Tags   Tags
	Kind   string        // of the marks: see [Identity]
	Dir    string        // the data directory; "" remembers nothing across processes
	Name   func() string // of the worker, for people
	// Embedded says that the bucket lies in Dir, too. A restored copy then brings both back, and only the journal's own
	// file shows it.
	Embedded bool
	Poll     time.Duration // between thorough checks
	// MayFound returns an error if another bucket of the name is in use, so that one without identity is not the first.
	MayFound func(ctx context.Context) error
	// Links returns how often the connection to the bucket was made. The bucket may be an older one since.
	Links func() uint64
	// Ask sends a call to one settled worker of a registry, or with "" to one of each, and calls hear with each answer
	// until that reports that it is enough, ctx ends, or nobody is there. Announce sends a notice to all workers.
	Ask      AskFunc
	Announce func(notice []byte) error
	// Reassert writes the strict orders again that this worker knows and the bucket lacks: each worker calls it before
	// it has stopped. Reread reads all settings again: each calls it before it resumes.
	Reassert, Reread func(ctx context.Context) error
	// Refuse and Allow say which modes must not be served, and that all may be. They must not block.
	Refuse func(why error, modes Modes)
	Allow  func()
	// Alarm reports an incident, and JournalAlarm that the journal is of no use. They must not block.
	Alarm        func(cause Cause, message string)
	JournalAlarm func(message string)
	// Enough returns the time within which so many requests to the bucket should be answered, least at least.
	Enough func(requests int, least time.Duration) time.Duration
	// Settled is called with the registry once this worker can answer for it; nil is allowed.
	Settled func(registry string)
	// Unused reports whether the registry never loaded, nor held a worker number; nil says that it was used.
	Unused  func(ctx context.Context) (bool, error)
	Pin     string // the registry that an operator chose: see [Notice]
	Fields  Fields // of this worker's snowflakes
	Process string // random, one per process
	Now     func() time.Time
	Log     *slog.Logger
}

// Modes are what a worker serves.
type Modes int

// The modes that a stop ends.
const (
	Segments Modes = iota
	All
)

const (
	// writeTimeout is how long a load's compare-and-set may take at most, if its range is to be used.
	writeTimeout = 8 * time.Second
	// silence is how long the key of a volatile worker is left to it after its last write.
	silence = time.Hour
	// checkTimeout bounds a check that no load waits for, and checkRequests is how many requests one takes at most.
	checkTimeout  = 3 * time.Second
	checkRequests = 8
)

// ErrStopped is why no range is loaded and no ID is issued from memory while an incident is open.
var ErrStopped = errors.New("the registry is stopped")

// errNewerRead says that what was read is old; the next check reads it again.
var errNewerRead = errors.New("lineage: another write came first; the next check reads again")

// A Member guards the marks of one process against a registry that is another one than it remembers. It is safe for
// concurrent use.
type Member struct {
	cfg     Config
	loaded  Memory
	journal *journal
	wake    chan struct{}
	busy    chan struct{} // has room for one: whoever put a value in may use the fields down to mu

	m        memory
	halted   bool   // another registry serves instead, or an operator chose another one
	settled  string // the registry of which Settled was told
	copied   bool   // the data directory, with the marks in it, is a copy
	looked   uint64 // links at the last thorough check
	greeted  uint64 // links when another worker was last asked
	lastLook time.Time

	ends atomic.Pointer[map[string]int64] // of the last plan, by tag; nil if there is none
	id   atomic.Pointer[Identity]         // as last read; nil before

	mu      sync.Mutex
	machine machine
	proof   *finding // an acknowledgement proved it, and no incident names it yet
	ahead   bool     // Run is to make the next check
	peers   peers
}

// Open reads the journal and returns a member; [Member.Use] must follow. It returns [ErrJournal] if the journal is of
// another version.
func Open(cfg Config) (*Member, error) {
	if cfg.Dir == "" {
		return open(cfg, nil)
	}
	return open(cfg, &folder{dir: cfg.Dir})
}

func open(cfg Config, of files) (*Member, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Enough == nil {
		cfg.Enough = func(_ int, least time.Duration) time.Duration { return least }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	nothing := func(context.Context) error { return nil }
	if cfg.Reassert == nil {
		cfg.Reassert = nothing
	}
	if cfg.Reread == nil {
		cfg.Reread = nothing
	}
	w := &Member{
		cfg: cfg, wake: make(chan struct{}, 1), busy: make(chan struct{}, 1), looked: ^uint64(0), greeted: ^uint64(0),
	}
	var err error
	if w.journal, w.m, err = openJournal(of); err != nil {
		return nil, err
	}
	w.m.Volatile = of == nil
	if cfg.Embedded {
		w.copied = w.journal.copied
	} else if w.journal.copied { // of a machine, or another one's: its key is not this process's
		w.m.leaveKey()
	}
	w.peers.began = cfg.Now()
	return w, nil
}

// Use names the memory that the member guards. Call it once, before anything is loaded.
func (w *Member) Use(loaded Memory) {
	w.loaded = loaded
	if w.journal.damaged != nil {
		w.cfg.JournalAlarm(w.journal.damaged.Error() + "; this worker no longer knows what it loaded before: if a " +
			"backup was restored since, run `natsid resume --restored`")
	}
	loaded.Remember(w.journal.floors())
	w.cfg.Bucket.Saw(w.m.Highest)
	if w.m.Stop != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refuseLocked(errors.New(w.m.Stop), w.m.All)
	}
}

// Remembers reports whether this process remembers a registry: then a bucket that is missing is not the first one.
func (w *Member) Remembers() bool { return !w.m.isFresh() || w.journal.damaged != nil }

// Ready returns nil if a range may be loaded now: the registry was checked within the last 3 s, and is sound. Otherwise
// it checks, together with other calls, or returns why no range may be loaded.
func (w *Member) Ready(ctx context.Context) error {
	for {
		if ok, err := w.isReady(); ok || err != nil {
			return err
		}
		if err := w.enter(ctx); err != nil {
			return fmt.Errorf("lineage: the bucket of marks could not be checked in time: %w", err)
		}
		ok, err := w.isReady()
		if !ok && err == nil {
			err = w.check(ctx, false)
		}
		w.leave()
		if err != nil {
			return err
		}
	}
}

func (w *Member) isReady() (ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machine.isStopped() {
		return false, w.machine.why
	}
	now := w.cfg.Now()
	if ok = w.machine.soundAt(now, w.cfg.Links()); ok && now.Sub(w.machine.checked) >= ageing && !w.ahead {
		w.ahead = true
		w.signal()
	}
	return ok, nil
}

// Prove returns nil once the bucket has acknowledged a write that was sent after the call: it takes writes of this
// worker. Like each check, the write is one of the worker's own key.
func (w *Member) Prove(ctx context.Context) error {
	if err := w.Stopped(); err != nil {
		return err
	}
	if err := w.enter(ctx); err != nil {
		return fmt.Errorf("lineage: the bucket of marks could not be checked in time: %w", err)
	}
	defer w.leave()
	return w.check(ctx, false)
}

// Stopped returns why nothing is issued, nil if the registry is not known to be stopped.
func (w *Member) Stopped() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.why
}

// Checked reports whether a check has found the registry sound since the connection was made last.
func (w *Member) Checked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.machine.isStopped() && !w.machine.checked.IsZero() && w.machine.links == w.cfg.Links()
}

// Identity returns the identity as last read, a zero one before.
func (w *Member) Identity() Identity {
	if id := w.id.Load(); id != nil {
		return *id
	}
	return Identity{}
}

func (w *Member) enter(ctx context.Context) error {
	select {
	case w.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Member) leave() { <-w.busy }

// Doubt makes the next load, and Run, check the registry: as after a reconnect.
func (w *Member) Doubt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machine.doubt()
	w.signal()
}

func (w *Member) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// WentBack says that an acknowledged write has shown that the bucket went back. When it returns, no load begins and
// what was loaded before is not issued. It does not block.
func (w *Member) WentBack(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machine.isStopped() {
		return // while an incident is open, own keys show whether the bucket went back once more
	}
	w.proof = &finding{cause: WentBack, why: why}
	w.stopLocked(*w.proof)
	w.signal()
}

// stop ends loads and the issuing from memory.
func (w *Member) stop(f finding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked(f)
}

func (w *Member) stopLocked(f finding) {
	w.refuseLocked(fmt.Errorf("%w: %s: %s; run `natsid resume`", ErrStopped, f.cause, f.why), f.cause == Second)
}

func (w *Member) refuseLocked(why error, all bool) {
	w.cfg.Refuse(why, map[bool]Modes{false: Segments, true: All}[all])
	w.machine.stop(why)
	w.loaded.Hold(why)
	w.loaded.Discard() //mutant:discard
}

// halt makes this worker serve nothing while its registry is not the one that serves; nil if it is.
func (w *Member) halt(v *view) error {
	var why error
	switch id := v.id; {
	case v.missing != nil:
	case w.cfg.Pin != "" && id.Registry != w.cfg.Pin:
		why = fmt.Errorf("%w: this worker rests on registry %s, and --registry is %s: connect it to the NATS of "+
			"that one",
			ErrStopped, id.Registry, w.cfg.Pin)
	case id.Out != "":
		why = fmt.Errorf("%w: registry %s serves instead of registry %s, on which this worker rests: connect this "+
			"worker to the NATS of that one, or run `natsid resume --keep`", ErrStopped, id.Out, id.Registry)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case why != nil && w.halted:
	case why != nil:
		w.halted = true
		w.m.Stop, w.m.All = why.Error(), true
		w.refuseLocked(why, true)
		w.noteToDisk()
	case w.halted:
		w.halted, w.m.Stop, w.m.All = false, "", false
	}
	return why
}

// allowLocked ends a stop.
func (w *Member) allowLocked() {
	w.m.Stop, w.m.All = "", false
	w.machine.resumed()
	w.loaded.Release()
	w.cfg.Allow()
}

// check reads the identity, writes the own key, and follows what both show. The caller has entered.
func (w *Member) check(ctx context.Context, thorough bool) error {
	began, links := w.cfg.Now(), w.cfg.Links()
	w.mu.Lock()
	doubts, proof := w.machine.doubts, w.proof
	w.mu.Unlock()
	v, err := w.read(ctx, thorough || links != w.looked)
	if err != nil {
		return err
	}
	if proof == nil && w.copied {
		proof = &finding{cause: WentBack, asFound: true,
			why: "the data directory, in which the marks are too, is a copy or was restored"}
	}
	if err := w.halt(&v); err != nil {
		w.settle(&v)
		return err
	}
	if err := w.follow(ctx, &v, proof); err != nil {
		return err
	}
	w.settle(&v)
	if err := w.greet(ctx, links); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machine.isStopped() && w.m.Incident == "" && w.proof == nil {
		w.allowLocked() // the incident ended
	}
	w.machine.checkedAt(began, links, doubts)
	if w.machine.isStopped() {
		return w.machine.why
	}
	if !v.created.IsZero() {
		w.looked, w.lastLook = links, began
	}
	return nil
}

// settle says of which registry this worker can answer questions.
func (w *Member) settle(v *view) {
	if r := v.id.Registry; r != w.settled && w.cfg.Settled != nil {
		w.settled = r
		w.cfg.Settled(r)
	}
}

// read reads the identity, and with thorough the stream. A bucket that this process has just made gets its identity.
func (w *Member) read(ctx context.Context, thorough bool) (v view, err error) {
	e, err := w.cfg.Bucket.Get(ctx, identityKey)
	missing := errors.Is(err, buckets.ErrNoKey)
	if err != nil && !missing {
		return v, fmt.Errorf("lineage: the identity of the bucket of marks cannot be read: %w", err)
	}
	if thorough || missing {
		state, err := w.cfg.Bucket.Look(ctx)
		if errors.Is(err, buckets.ErrUnfit) {
			v.unfit, err = err, nil
		}
		if err != nil {
			return v, fmt.Errorf("lineage: the stream of the marks cannot be described: %w", err)
		}
		v.created = state.Created.UTC()
		if missing {
			return w.readMissing(ctx, v, state)
		}
	}
	v.revision = e.Revision
	if v.id, err = DecodeIdentity(e.Value); err != nil {
		if errors.Is(err, ErrNewer) {
			return v, err
		}
		v.missing = err
		if !v.created.IsZero() {
			return v, nil
		}
		return w.read(ctx, true)
	}
	if v.id.Kind != w.cfg.Kind {
		return v, fmt.Errorf("%w: the marks are of kind %s, and this worker is of kind %s",
			ErrKind, v.id.Kind, w.cfg.Kind)
	}
	w.id.Store(&v.id)
	return v, nil
}

// ErrKind is returned for marks of another kind than the worker's.
var ErrKind = errors.New("lineage: the marks are of another kind of store")

// errFounding says that another worker has made the bucket just now, and has not written its identity yet.
var errFounding = errors.New("lineage: another worker is making the bucket of the marks; retry")

// readMissing gives a bucket its identity, if this process has made it as the first of its name. A process that
// remembers a registry never founds one.
func (w *Member) readMissing(ctx context.Context, v view, s buckets.State) (view, error) {
	v.missing = ErrNoIdentity
	switch {
	case w.Remembers():
		return v, nil
	case s.Founding:
		return v, errFounding
	case !s.Mine && !s.Untouched():
		return v, nil
	}
	if w.cfg.MayFound != nil && w.cfg.MayFound(ctx) != nil {
		return v, nil
	}
	err := w.cfg.Bucket.Found(ctx, s, identityKey, Found(w.cfg.Kind, s.Created).Encode())
	if err != nil && !errors.Is(err, buckets.ErrKeyExists) {
		return v, err
	}
	return v, errFounding // the next check reads it
}

// follow does what a view shows. proof is what an acknowledgement has proved, nil if nothing.
func (w *Member) follow(ctx context.Context, v *view, proof *finding) error {
	m := &w.m
	if m.Incident != "" {
		return w.followStop(ctx, v)
	}
	f := find(m, v)
	if f != nil {
		proof = f
	}
	switch in := v.id.Incident; {
	case f == nil && in == nil && !m.isFresh() && m.Era != v.id.Era(): //mutant:renew
		return w.renew(ctx, v)
	case v.missing != nil && m.isFresh():
		if left, err := w.giveWay(ctx, v); left || err != nil {
			return err
		}
		return w.prove(ctx, v, *proof, time.Time{})
	case proof != nil:
		return w.prove(ctx, v, *proof, time.Time{})
	case in != nil:
		return w.join(ctx, v)
	case m.isFresh():
		return w.begin(ctx, v)
	}
	return w.write(ctx, v, false)
}

// followStop follows a view while this worker has joined an incident.
func (w *Member) followStop(ctx context.Context, v *view) error {
	in := v.id.Incident
	switch {
	case v.missing != nil:
		return w.prove(ctx, v, *find(&w.m, v), time.Time{})
	case in != nil && in.ID == w.m.Incident:
		return w.stay(ctx, v)
	case in != nil:
		return w.join(ctx, v)
	case v.id.Knows(w.m.Incident):
		return w.resume(ctx, v)
	}
	//mutant:gone
	return w.prove(ctx, v, finding{cause: WentBack, why: "the open incident is gone from the identity, and " +
		"no resume ended it"}, time.Time{})
}

// prove opens an incident for what was proved, or joins the open one, by compare-and-set.
//
// Law: one set-back that several workers prove is one incident, so who has not joined the open one joins it. Who has,
// or knows that it ended, proves another set-back and makes a new one. The chain gets what a prover has and it lacks.
func (w *Member) prove(ctx context.Context, v *view, f finding, state time.Time) error {
	w.stop(f)
	if f.asFound {
		state = w.stateFound(ctx)
	}
	next, opened := w.accuse(v, f, state)
	var err error
	if v.missing != nil && v.revision == 0 {
		_, err = w.cfg.Bucket.Create(ctx, identityKey, next.Encode())
	} else {
		_, err = w.cfg.Bucket.Update(ctx, identityKey, next.Encode(), v.revision)
	}
	if errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) {
		return errNewerRead
	}
	if err != nil {
		return fmt.Errorf("lineage: the incident cannot be written: %w", err)
	}
	w.mu.Lock()
	w.proof = nil
	w.mu.Unlock()
	w.copied = false
	v.id, v.missing = next, nil
	w.id.Store(&v.id)
	w.m.join(next.Incident.ID)
	// What the proof rests on stays as it was found.
	w.m.leaveKey() //mutant:proof-key
	if opened {
		w.cfg.Alarm(f.cause, fmt.Sprintf(
			"%s. No segment ID is served until an operator runs `natsid resume`. Incident %s", f.why, next.Incident.ID))
	} else {
		w.stop(finding{cause: next.Incident.Cause, why: next.Incident.Why()}) // all workers give one reason
	}
	w.announce()
	return w.note(ctx, v)
}

// accuse returns the identity with the incident for what was proved, and reports whether it is a new one.
func (w *Member) accuse(v *view, f finding, state time.Time) (next Identity, opened bool) {
	m := &w.m
	next = v.id
	if v.missing != nil {
		next = Found(w.cfg.Kind, v.created)
		next.Eras = nil
		if m.Registry != "" {
			next.Registry = m.Registry
		}
	}
	in := Incident{ID: newID(), Cause: f.cause, Opened: w.cfg.Now().UTC(), Other: f.other}
	open := next.Incident
	joins := open != nil && open.ID != m.Incident && !slices.Contains(m.Ended, open.ID) //mutant:joins
	if joins {
		in = *open
		in.Provers, in.Forgotten = slices.Clone(in.Provers), slices.Clone(in.Forgotten)
	} else {
		opened = true
		if open != nil {
			in.forget(next, append(slices.Clone(open.Forgotten), open.ID)...)
		}
	}
	in.forget(next, append([]string{m.Era, m.Incident}, m.Ended...)...) //mutant:forgotten
	in.addProver(Prover{Name: w.cfg.Name(), Why: f.why, At: w.cfg.Now().UTC(), State: state})
	next.Incident = &in
	return next, opened
}

// join stops since an incident is open that another worker has proved.
func (w *Member) join(ctx context.Context, v *view) error {
	w.stop(finding{cause: v.id.Incident.Cause, why: v.id.Incident.Why()})
	before := w.m.Incident
	if err := w.compare(ctx, v); err != nil || w.m.Incident != before {
		return err
	}
	if w.m.isFresh() {
		w.m.Registry, w.m.Era = v.id.Registry, v.id.Era()
	}
	w.m.join(v.id.Incident.ID)
	return w.note(ctx, v)
}

// note ends the begin of a stop: it lifts the marks to the floors, writes settings again, and joins the incident in the
// own key.
func (w *Member) note(ctx context.Context, v *view) error {
	//mutant:stop-lift
	if _, err := w.lift(ctx); err != nil {
		return err
	}
	if err := w.cfg.Reassert(ctx); err != nil {
		return err
	}
	w.journal.writeFloors(w.floors())
	incident := w.m.Incident
	w.m.Stop, w.m.All = w.Stopped().Error(), v.id.Incident.Cause == Second
	if err := w.write(ctx, v, false); err != nil || w.m.Incident != incident {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machine.noted()
	return nil
}

// stay waits for the end of an incident, and looks whether the bucket went back once more.
func (w *Member) stay(ctx context.Context, v *view) error {
	incident := w.m.Incident
	if err := w.compare(ctx, v); err != nil || w.m.Incident != incident {
		return err
	}
	w.mu.Lock()
	if w.machine.state == Unknown || w.machine.state == Sound { // a life before this one had joined
		w.stopLocked(finding{cause: v.id.Incident.Cause, why: v.id.Incident.Why()})
	}
	begun := w.machine.state == Stopped
	w.mu.Unlock()
	switch {
	case !begun:
		return w.note(ctx, v)
	case v.id.Incident.Cause == Exposed: // what was lifted may vanish again until the settings are right
		_, err := w.lift(ctx)
		return err
	}
	return nil
}

// resume ends the stop, since the chain has the incident.
//
// Law: all that a resume raised, and all that this worker loaded, lies below the marks, or the bucket went back since.
func (w *Member) resume(ctx context.Context, v *view) error {
	if err := w.takeEnds(ctx, v); errors.Is(err, errNoPlan) {
		return w.prove(ctx, v, finding{cause: WentBack, why: err.Error()}, time.Time{})
	} else if err != nil {
		return err
	}
	if done, err := w.catchUp(ctx, v); !done {
		return err
	}
	w.m.end(w.m.Incident)
	w.m.Incident = ""
	w.cfg.Log.Info("the registry was resumed", "era", v.id.Era())
	return w.begin(ctx, v)
}

// catchUp lifts all marks to this worker's floors and reads all settings again, or proves that a mark was below. It
// reports whether the worker may begin.
func (w *Member) catchUp(ctx context.Context, v *view) (done bool, err error) {
	below, err := w.lift(ctx)
	switch {
	case err != nil:
		return false, err
	case below != "":
		return false, w.prove(ctx, v, finding{cause: WentBack, why: below}, time.Time{})
	}
	err = w.cfg.Reread(ctx)
	return err == nil, err
}

// renew begins as new in a registry that was resumed while this worker was away.
//
// Law: floors that are not in the marks are never thrown away. So all marks are lifted to them first, and one that is
// below is a proof: no resume reckoned with it.
//
// It does so as a stopped worker: its first write may get a lower revision than it knows, which the resume explains.
// So it does a late acknowledgement of a write that was sent before: all that this worker loaded is of its era.
func (w *Member) renew(ctx context.Context, v *view) error {
	w.mu.Lock()
	w.proof = nil
	w.stopLocked(finding{cause: WentBack, why: "it was resumed while this worker was away"})
	w.mu.Unlock()
	if done, err := w.catchUp(ctx, v); !done {
		return err
	}
	return w.begin(ctx, v)
}

// begin joins the present era, with a new key.
func (w *Member) begin(ctx context.Context, v *view) error {
	if err := w.takeEnds(ctx, v); errors.Is(err, errNoPlan) {
		return w.prove(ctx, v, finding{cause: WentBack, why: err.Error()}, time.Time{})
	} else if err != nil {
		return err
	}
	w.m.Registry, w.m.Era = v.id.Registry, v.id.Era()
	w.m.leaveKey()
	w.journal.writeFloors(w.floors())
	return w.write(ctx, v, false)
}
