// Package witness notices that the bucket of marks went back, and repairs it from what the workers remember; it is
// internal to natsid and may change.
//
// A bucket that was restored from a backup, or that lost its last seconds, looks sound: its marks are only too low. No
// entry shows it, and a worker's own floors show it only for tags that this worker loaded last. Three things do:
//
//   - Each worker owns a witness, a key that only this worker writes: by compare-and-set from the revision and token
//     that it remembers, in memory and in its data directory. It is written at the start, after each reconnect, at
//     each look at the others, and before a load if the last write is older than 3 s; a worker that loads all the
//     time writes it ahead, every 2 s. A bucket that went back has an older one, however far it has moved since.
//   - Revisions rise. A write that is acknowledged with a revision at or below one that was known before the write was
//     sent went into a bucket that went back. Workers announce the highest revision to one another.
//   - A load that replaces a mark below this worker's own floor.
//
// Only an acknowledged write is a proof: a leader that was deposed may show an old entry, but acknowledges nothing.
//
// # The repair
//
// Law: after a proof no worker loads, and none issues what it had in memory, until every range that any worker loaded
// after the restored state lies below the marks. In steps, for each worker:
//
//	hold loads and discard memory; note the incident in the bucket; announce it
//	lift the mark of every tag to the worker's own floor
//	answer: write the witness, with the incident, and the gap in the worker's memory, if there is one
//	once all witnesses that may have loaded have answered without a gap: close the incident, and load again
//
// A witness may have loaded unless its record in the restored state says that it had stopped cleanly, and no worker has
// seen a later one, or that it was retired. A worker knows all loads of its life (see [record]). Where loads may be
// unknown, as those of a worker that crashed, segments are refused until an operator has raised all tags by more than
// what was loaded.
package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
)

// Bucket is what a witness uses of the bucket of marks. [buckets.Bucket] implements it.
type Bucket interface {
	Get(ctx context.Context, key string) (buckets.Entry, error)
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
	UpdateSoon(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
	AllOwn(ctx context.Context, prefix string) (map[string]buckets.Entry, error)
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
	Forgot() bool // Floors lacks some
	Remember(floors map[string]segment.Floor)
}

// Store is what a witness uses of the store of the tags.
type Store interface {
	segment.Lifter
	List(ctx context.Context, after string, limit int) ([]segment.Tag, error)
}

// Config configures a [Witness]. All fields must be set but Dir and Log.
type Config struct {
	Bucket Bucket
	Store  Store
	Dir    string        // the data directory; "" remembers nothing across processes
	Name   func() string // of the worker, for people
	// Embedded says that the bucket lies in Dir, too: a restored copy brings both back, and only the journal's own file
	// shows it.
	Embedded bool
	Poll     time.Duration // between looks at all witnesses, at most; longer in a large fleet
	// Registry returns the identity of the bucket, "" if it has none, and when an operator last confirmed that the
	// bucket has all tags, as one that takes the place of another; zero for never. It reads the identity now if that is
	// asked for, or if it never was read.
	Registry func(ctx context.Context, now bool) (id string, confirmed time.Time, err error)
	// Announce publishes a message to the other workers, whose [Witness.Hear] takes it. Ask does, too, and calls
	// hear with what Hear returns to each of them, until that reports that it is enough or ctx ends.
	Announce func(message []byte) error
	Ask      func(ctx context.Context, message []byte, hear func(reply []byte) (enough bool))
	// Reconnects returns how often the connection to the bucket was made again. The bucket may be an older one since.
	Reconnects func() uint64
	// Enough, if set, returns the time within which so many requests to the bucket should be answered, least at least.
	Enough func(requests int, least time.Duration) time.Duration
	// Refuse and Allow say that segments must not be served, and that they may again. They must not block.
	Refuse func(why error)
	Allow  func()
	// Begun is called once the first check of [Witness.Run] is over, with what it found; nil is allowed.
	Begun func(error)
	// Alarm reports that the marks went back, JournalAlarm that the journal is of no use, and NewerAlarm that no range
	// is loaded, since a newer natsid uses the bucket. They must not block.
	Alarm, JournalAlarm, NewerAlarm func(message string)
	Log                             *slog.Logger // nil discards
}

const (
	// fresh is how long a check counts: a load checks again after that.
	fresh = 3 * time.Second
	// ageing is the age at which Run makes the next check, if a load was made: then the loads that follow need not
	// wait for it.
	ageing = 2 * time.Second
	// greeting is how long a process that begins waits for the others to answer, and longer where NATS is far away: a
	// question and its answer take as long as two requests of both. After a server's restart it takes
	// them 0.35 s to connect again.
	greeting = 2 * time.Second
	// checkTimeout bounds a check that no load waits for, unless the bucket is known to be far away: a check takes
	// checkRequests requests at most.
	checkTimeout  = 3 * time.Second
	checkRequests = 8
)

// ErrWentBack is why no range is loaded while an incident is open.
var ErrWentBack = errors.New("the marks went back, as after restoring a backup")

// A Witness guards the marks of one process. It is safe for concurrent use.
type Witness struct {
	cfg    Config
	memory Memory
	wake   chan struct{}
	busy   chan struct{} // has room for one: whoever put a value in may use the fields down to mu

	journal    journal
	damaged    error // why the journal on disk was not read
	remembers  bool  // the journal is one of an earlier process
	moved      bool  // the marks are in the data directory, and its journal is a copy
	disk       disk
	me         record // as it was last written, or is about to be
	open       bool   // the last write of me may or may not have landed
	revision   uint64 // of the last write known to have landed; 0 if it must be read first
	inherited  bool   // the witness is taken over from another worker, and not written yet
	greeted    bool   // the other workers have answered, or had time to
	greetUntil time.Time
	asked      uint64            // the reconnects at the last question
	homeless   bool              // the bucket has no identity, and so no witnesses
	strange    bool              // the bucket took the place of another: floors are to be lifted there
	gap        string            // why an answer has a gap, "" if it has none
	owes       string            // what showed that the bucket went back, until this worker has answered
	previous   *record           // of the process before this one, until the first check
	orphan     bool              // what the process before this one loaded last is not known: see succeed
	listed     map[string]record // all witnesses, as the greeting listed them, until the first look
	known      map[string]record // all witnesses of this registry, as they were last seen
	repaired   bool              // the marks were repaired, and known is of before
	seen       map[string]bool   // those that this process has seen while it had found the bucket in order
	newer      bool              // an entry of a newer natsid was found
	sound      bool              // a check has found the bucket in order: only then witnesses are looked at

	mu      sync.Mutex
	checked time.Time // when the last check began; zero if one is due
	doubts  int       // how often a check became due
	ahead   bool      // Run is to make the next check
	// reconnects is how often the connection had been made again before the last check; it is the highest number before
	// the first.
	reconnects uint64
	registry   string // the identity of the bucket
	id         string // of the witness
	other      bool   // it is not the one that the journal names
	held       bool   // an incident is open
	proof      string // what shows that the bucket went back, until an incident is open for it
	incident   string // the ID of the incident being repaired, "" if it is not known yet
	closed     string // the ID of the last one closed
	era        string // the ID of the last incident that this worker knows of
	// met is when workers last spoke, by their witnesses, until a look has shown these. Law: a worker that begins or
	// continues loads nothing before those that hear it have met it. So they know of it before their next look.
	met     map[string]time.Time
	heard   time.Time // when a revision was last announced, by any worker
	highest uint64    // the highest revision announced in this era
	before  uint64    // the highest revision that was known at the last tick
	earlier uint64    // and at the one before it
}

// Open reads the journal and returns a witness; [Witness.Use] must follow. It returns [ErrJournal] if the journal is of
// a newer version. A damaged one raises the alarm, and its memory is lost.
func Open(cfg Config) (*Witness, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Enough == nil {
		cfg.Enough = func(_ int, least time.Duration) time.Duration { return least }
	}
	w := &Witness{
		cfg: cfg, wake: make(chan struct{}, 1), busy: make(chan struct{}, 1), known: map[string]record{},
		seen: map[string]bool{}, met: map[string]time.Time{}, reconnects: math.MaxUint64,
	}
	j, damaged, err := openJournal(cfg.Dir)
	if err != nil {
		return nil, err
	}
	w.journal, w.damaged = j, damaged
	w.moved = cfg.Embedded && (j.moved || damaged != nil)
	w.remembers = damaged != nil || j.Token != "" || len(j.Pending) > 0
	return w, nil
}

// Use names the memory that the witness guards, and begins the life of this process: where the last one stopped cleanly
// and left its floors, it continues. Call it once, before anything is loaded.
func (w *Witness) Use(memory Memory) {
	w.memory = memory
	j, damaged := &w.journal, w.damaged
	w.me = record{Version: version, Counter: j.Counter, Life: j.Life, After: j.After, Volatile: j.dir == ""}
	floors, known := j.floors()
	switch {
	case damaged != nil:
		w.cfg.JournalAlarm(damaged.Error() + "; this worker does not know any more what it loaded before, and begins " +
			"a new witness: if the marks were restored from a backup meanwhile, run `natsid tag raise --all --by N`")
		w.newWitness(lost)
	case j.Witness == "":
		w.newWitness("")
	case floors != nil:
		w.memory.Remember(floors)
		maps.Copy(w.known, known)
	default: // j.Life may have stopped and continued: that its witness says that it has ended proves nothing
		w.me.After, w.me.Life = lost, newToken()
	}
}

// newWitness begins a witness of its own, whose lives follow the given one.
func (w *Witness) newWitness(after string) {
	w.journal.Witness, w.journal.Token, w.journal.Pending, w.journal.Counter = newToken(), "", nil, 0
	w.me.Counter, w.me.Life, w.me.After = 0, newToken(), after
	w.revision, w.open, w.inherited = 0, false, false
}

// MayFound returns an error if this process remembers another bucket than the one that is about to be made: then the
// new one is not the first, and other workers may have loaded what it knows nothing of.
func (w *Witness) MayFound(context.Context) error {
	if !w.remembers {
		return nil
	}
	return fmt.Errorf("the data directory %s remembers another one, which is gone", w.cfg.Dir)
}

// Ready returns nil if a range may be loaded now: no incident is open, and the bucket was checked within the last 3 s.
// Otherwise it checks the bucket, together with other calls, or returns why no range may be loaded.
func (w *Witness) Ready(ctx context.Context) error {
	for {
		ok, err := w.isReady()
		if ok || err != nil {
			return err
		}
		if err := w.enter(ctx); err != nil {
			return fmt.Errorf("witness: the bucket of marks could not be checked in time: %w", err)
		}
		if ok, err = w.isReady(); !ok && err == nil {
			err = w.check(ctx)
		}
		w.leave()
		if err != nil {
			return err
		}
	}
}

// ErrHomeless is returned by [Witness.Prove] if the bucket has no identity, and so no witnesses.
var ErrHomeless = errors.New("witness: the bucket of marks has no identity, and no witness is written to it")

// Prove returns nil once the bucket has acknowledged a write that was sent after the call: it takes writes of this
// worker. Like each check of the bucket, the write is one of the worker's own witness.
func (w *Witness) Prove(ctx context.Context) error {
	if w.isHeld() { // and may be until ctx ends
		return w.heldError()
	}
	if err := w.enter(ctx); err != nil {
		return fmt.Errorf("witness: the bucket of marks could not be checked in time: %w", err)
	}
	defer w.leave()
	if w.isHeld() {
		return w.heldError()
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	if w.homeless {
		return ErrHomeless
	}
	return nil
}

func (w *Witness) isReady() (ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held {
		return false, w.heldError()
	}
	age := time.Since(w.checked)
	ok = !w.checked.IsZero() && age < fresh && w.cfg.Reconnects() == w.reconnects
	if ok && age >= ageing && !w.ahead {
		w.ahead = true
		w.signal()
	}
	return ok, nil
}

// Checked reports whether the bucket was checked since the connection to it was last made, and no incident is open. The
// check may be an old one: see [Witness.Ready].
func (w *Witness) Checked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.held && w.cfg.Reconnects() == w.reconnects
}

func (w *Witness) heldError() error {
	return fmt.Errorf("%w; the workers are raising them above all IDs that they loaded", ErrWentBack)
}

func (w *Witness) enter(ctx context.Context) error {
	select {
	case w.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Witness) leave() { <-w.busy }

// Reconnected says that the connection to NATS was lost for a while: the next load checks first, and so does Run.
func (w *Witness) Reconnected() { w.suspect() }

// suspect makes the next load, and Run, check the bucket.
func (w *Witness) suspect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.suspectLocked()
}

func (w *Witness) suspectLocked() {
	w.checked = time.Time{}
	w.doubts++
	w.signal()
}

func (w *Witness) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// WentBack says that an acknowledged write has shown that the bucket went back. When it returns no load goes on, and
// what was loaded before is not issued. It does not block.
func (w *Witness) WentBack(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proof == "" {
		w.proof = why
	}
	w.holdLocked()
	w.signal()
}

// holdLocked stops loads and memory.
func (w *Witness) holdLocked() {
	w.held, w.checked = true, time.Time{}
	why := w.heldError()
	w.cfg.Refuse(why)
	w.memory.Hold(why)
	w.memory.Discard()
}
