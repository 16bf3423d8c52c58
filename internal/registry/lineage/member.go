package lineage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// Bucket is what a [Member] uses of the bucket of marks, the next IDs of tags. [buckets.Bucket] implements it.
type Bucket interface {
	Look(ctx context.Context) (buckets.Info, error)
	Get(ctx context.Context, key string) (buckets.Entry, error)
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
	UpdateSoon(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
	Latest(ctx context.Context, prefix string) (map[string]buckets.Entry, error)
	// Known returns the highest revision that this process knows of. Saw notes a revision that another process reports.
	Known() uint64
	Saw(revision uint64)
	// Enough returns a timeout for a number of requests in a row: see [buckets.Bucket.Enough].
	Enough(requests int, least time.Duration) time.Duration
}

// Memory is the ranges of IDs that this worker has loaded. [segment.Allocator] implements it.
type Memory interface {
	Hold(why error)
	Release()
	Discard()
	Floors() map[string]segment.Floor
	Remember(floors map[string]segment.Floor)
}

// Tags is what a member uses of the store of tags. A floor is the end of what this worker loaded of a tag.
type Tags interface {
	// List returns tags in the order of names, as [segment.Store] does, with their marks in the present era.
	List(ctx context.Context, after string, limit int) ([]segment.Tag, error)
	// Low returns the most by which a mark (a tag's next ID) is below its floor, 0 if no mark is, and names the marks
	// that are. As the proof it writes the entry of the lowest mark back unchanged, by compare-and-set. See
	// [segment.Floor.Above].
	Low(ctx context.Context, floors map[string]segment.Floor) (need int64, why string, err error)
	// Restore writes an entry for each floor (what this worker knows of a tag) that has none: its mark is the floor's
	// End, its era the floor's. For a tag with a last number it also raises the mark of an existing entry to the floor.
	// An entry that was made on first use, and so has no rules, gets the floor's rules. A deleted tag stays deleted.
	Restore(ctx context.Context, floors map[string]segment.Floor) error
}

// Bus carries messages about registries among workers.
type Bus interface {
	// Ask sends a call to one worker of a registry, or, if registry is "", to one of each. It calls hear with each
	// answer, until hear returns true, ctx ends, or nobody listens.
	Ask(ctx context.Context, registry string, call []byte, hear func(answer []byte) (enough bool)) error
	// Announce sends a notice, what this worker says about its registry, to all workers.
	Announce(notice []byte) error
}

// Serving switches this worker's serving on and off, and raises its alarms. No method may block.
type Serving interface {
	// Refuse ends the serving of segments and, if all is true, of snowflakes. Allow undoes Refuse.
	Refuse(why error, all bool)
	Allow()
	// Alarm reports a stop of the registry, and JournalAlarm that the files of its memory cannot be used.
	Alarm(cause era.Cause, message string)
	JournalAlarm(message string)
}

// Config configures a [Member]. Dir, Pin, Now and Log may be left out.
type Config struct {
	Bucket  Bucket
	Tags    Tags
	Bus     Bus
	Serving Serving
	Kind    string        // the kind of the marks: see [era.Identity]
	Rows    bool          // a table has a row for each tag
	Dir     string        // the data directory; "" remembers nothing across processes
	Name    func() string // the worker's name, for people
	Numbers func() string // see [Notice]; nil if unknown
	// Embedded says that the bucket lies in Dir, too. If a copy of Dir is restored, the worker's memory and the
	// bucket agree, so only inode and birth time of the memory's file show that Dir is a copy.
	Embedded bool
	Poll     time.Duration // time between thorough checks
	// Links returns how often the connection to the bucket was made. Each new connection may lead to an older bucket.
	Links func() uint64
	// Settled is called with the registry's ID by each check that has read it. This worker may then answer questions.
	Settled func(registry string)
	// Unused reports whether no worker ever loaded IDs or had a worker number in the registry.
	Unused  func(ctx context.Context) (bool, error)
	Pin     string // the registry that an operator chose: see [Notice]
	Fields  Fields // of this worker's snowflakes
	Process string // random, one per process
	Now     func() time.Time
	Log     *slog.Logger
}

// ErrStopped is the error of a load while the registry is stopped. IDs in memory are not issued either.
var ErrStopped = errors.New("the registry is stopped")

// A Member stops the loads of one process when the bucket of marks (next IDs of tags) is in another state than the
// process remembers, or is of another registry. It has a gate for loads, a checker that opens the gate, and peers,
// which hear of other workers and so give reasons to check. It is safe for concurrent use.
type Member struct {
	cfg *Config
	*gate
	*registry
	*peers
	own    *own
	checks *checker
}

// Open reads the journal (the files of the worker's memory) and returns a member; [Member.Use] must follow. Open
// returns [ErrJournal] if the journal is of another version or cannot be read.
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
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	j, m, err := openJournal(of)
	if err != nil {
		return nil, err
	}
	if m.copied && !cfg.Embedded { // a copied memory: the process it is from may use the key
		m.leaveKey()
		m.copied = false
	}
	g := &gate{cfg: &cfg, wake: make(chan struct{}, 1), sound: ongoing{links: never}}
	r := &registry{cfg: &cfg}
	p := &peers{cfg: &cfg, registry: r, gate: g, others: make(map[string]*other)}
	k := &own{cfg: &cfg, journal: j, memory: m}
	if !m.isFresh() {
		r.begun.Store(&era.Identity{Registry: m.Registry, Era: m.Era, Offsets: m.Eras})
	}
	c := &checker{cfg: &cfg, gate: g, registry: r, own: k, peers: p, turn: make(chan struct{}, 1)}
	return &Member{&cfg, g, r, p, k, c}, nil
}

// Use sets the loaded IDs that the member discards at a stop. Call it once, before anything is loaded.
func (w *Member) Use(loaded Memory) {
	w.loaded, w.own.loaded = loaded, loaded
	if damaged := w.own.journal.damaged; damaged != nil {
		w.cfg.Serving.JournalAlarm(damaged.Error() + "; this worker no longer knows what it loaded before: if a " +
			"backup was restored since, run `natsid resume --restored`")
	}
	loaded.Remember(w.own.journal.floors())
	w.cfg.Bucket.Saw(w.own.Highest)
	if w.own.Stop != "" {
		w.stop(errors.New(w.own.Stop), true)
	}
}

// Fits returns why this worker must not use the marks, nil if it may: [era.ErrKind] or [era.ErrNewer]. Other faults
// of the identity, the entry that describes the registry, stop the registry at the first check.
func (w *Member) Fits(ctx context.Context) error {
	_, err := w.registry.read(ctx, false)
	return err
}

// Remembers reports whether this process remembers a registry. If it does, a missing bucket was lost.
func (w *Member) Remembers() bool { return w.own.remembers() }

// Reconnected is called when the connection to the bucket was made again. That may lead to an older bucket, so the next
// load checks. This worker announces itself, since it may have missed questions.
func (w *Member) Reconnected() {
	w.Doubt()
	w.announce()
}

// Ready returns nil if a range may be loaded now: a check within the last 3 s found the registry sound, and began after
// the last doubt that was raised before the call. If there was no such check, Ready makes one, which concurrent calls
// share. The error says why no range may be loaded.
func (w *Member) Ready(ctx context.Context) error {
	_, err := w.ready(ctx)
	return err
}

// ready is Ready, and also returns a pass, by which the load is judged when it ends.
func (w *Member) ready(ctx context.Context) (pass, error) {
	doubts := w.doubted()
	for {
		if p, isOpen, err := w.passes(doubts); isOpen || err != nil {
			return p, err
		}
		err := w.checks.do(ctx, func() error {
			if _, isOpen, err := w.passes(doubts); isOpen || err != nil {
				return err
			}
			return w.checks.check(ctx, false)
		})
		if err != nil {
			return pass{}, err
		}
	}
}

// Prove returns nil once the bucket has acknowledged a write that this worker sent after the call: the check that
// Prove makes writes the own key, which only this worker writes.
func (w *Member) Prove(ctx context.Context) error {
	if err := w.Stopped(); err != nil {
		return err
	}
	return w.checks.do(ctx, func() error { return w.checks.check(ctx, false) })
}

// SetThrottle changes the limit of each tag's rate, in IDs per second, in the identity (the entry that describes the
// registry), by compare-and-set. It announces a change, so that other workers check and read it.
func (w *Member) SetThrottle(ctx context.Context, rate int64) error {
	return w.checks.do(ctx, func() error {
		for {
			v, err := w.registry.read(ctx, false)
			if err != nil || v.missing != nil {
				return cmp.Or(err, v.missing)
			}
			next := v.id
			next.Throttle = rate
			if err = w.registry.replace(ctx, &v, next); !errors.Is(err, errNewerRead) {
				w.peers.announce()
				return err
			}
		}
	})
}

// Gate returns a store for an allocator. Loads, polls and tags made on first use wait for [Member.Ready]. All other
// calls go straight to the store, so that an operator can raise tags while the registry is stopped.
func (w *Member) Gate(store segment.Store) segment.Store { return gatedStore{store, w} }
