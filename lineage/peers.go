package lineage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// Fields are what the snowflakes of a worker are made of. Workers of one namespace share them.
type Fields struct {
	Layout string `json:"layout"`
	Epoch  int64  `json:"epoch"` // Unix ms
	Unit   int64  `json:"unit"`  // of a tick, ms
}

// A Notice is what a worker says about its registry, to all workers or in answer to one. It crosses the wire as JSON.
type Notice struct {
	Registry string    `json:"registry"`
	Era      string    `json:"era"`
	Incident string    `json:"incident,omitempty"` // that is open
	Out      string    `json:"out,omitempty"`      // the registry that serves instead
	Revision uint64    `json:"revision,string"`    // the highest that the worker knows
	Pinned   bool      `json:"pinned,omitempty"`   // an operator chose this registry
	Unused   bool      `json:"unused,omitempty"`   // it never loaded, nor held a worker number
	Made     time.Time `json:"made,omitzero"`
	Fields
	Instance string `json:"instance"`
	Process  string `json:"process"` // random, one per process
}

// maxNotice bounds a notice on the wire, in bytes, and maxName each name in it.
const (
	maxNotice = 4096
	maxName   = 128
)

// parseNotice reads a notice that anyone may have sent.
func parseNotice(data []byte) (n Notice, err error) {
	if len(data) > maxNotice {
		return Notice{}, fmt.Errorf("lineage: a notice of %d bytes, want at most %d", len(data), maxNotice)
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return Notice{}, fmt.Errorf("lineage: a notice that cannot be read: %w", err)
	}
	return n, n.check()
}

func (n Notice) check() error {
	if n.Registry != "" && !IsID(n.Registry) || n.Out != "" && !IsID(n.Out) {
		return fmt.Errorf("lineage: %.40q is not the ID of a registry", n.Registry+n.Out)
	}
	if n.Process == "" || len(n.Process) > maxName || len(n.Instance) > maxName || len(n.Layout) > maxName {
		return fmt.Errorf("lineage: a notice without process, or with a name of more than %d bytes", maxName)
	}
	return nil
}

// IsID reports whether id can be a registry's: a token of a subject.
func IsID(id string) bool {
	for _, c := range []byte(id) {
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_') {
			return false
		}
	}
	return id != "" && len(id) <= maxName
}

// Serves reports whether workers of the registry issue IDs, or may again.
func (n Notice) Serves() bool { return n.Out == "" }

const (
	// announceAfter is how long a worker listens at least before it announces its registry, and announceSpread what it
	// adds at random: the first worker of a registry to speak spares all others.
	announceAfter  = 5 * time.Second
	announceSpread = 3 * time.Second
	// forgetAfter is how long a registry that is not heard counts as connected: one announcement can be lost.
	forgetAfter = 2*(announceAfter+announceSpread) + time.Second
	// askTimeout bounds a question to other registries, and greetTimeout one to this worker's own at its start, unless
	// NATS is far away.
	askTimeout   = 2 * time.Second
	greetTimeout = 2 * time.Second
	// mostUnanswered is after how many questions without answer a registry that announces itself counts as another one.
	mostUnanswered = 3
)

// peers is what a member knows of other workers. Its fields are guarded by the member's mu.
type peers struct {
	began   time.Time
	others  map[string]*other // by registry
	heard   time.Time         // when a worker of this registry last announced a revision
	speak   time.Time         // when to announce
	highest uint64            // the highest revision that was announced in this era
	before  uint64            // the highest revision that was known at the last tick
	earlier uint64            // and at the one before it
	unused  bool              // the registry never loaded, nor held a number, when this was last looked at
}

// An other is another registry that was heard.
type other struct {
	notice     Notice
	heard      time.Time
	asked      time.Time
	unanswered int
}

// Notice returns what this worker says about its registry; its Registry is "" before that is known.
func (w *Member) Notice() Notice {
	id := w.Identity()
	n := Notice{
		Registry: id.Registry, Era: id.Era(), Out: id.Out, Revision: w.cfg.Bucket.Known(), Made: id.Made,
		Pinned: w.cfg.Pin != "" && w.cfg.Pin == id.Registry, Fields: w.cfg.Fields, Instance: w.cfg.Name(),
		Process: w.cfg.Process,
	}
	if id.Incident != nil {
		n.Incident = id.Incident.ID
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n.Unused = w.peers.unused
	return n
}

// Hear takes in an announcement, which anyone may have sent. It does not block.
func (w *Member) Hear(data []byte) {
	if n, err := parseNotice(data); err == nil {
		w.hear(n)
	}
}

func (w *Member) hear(n Notice) {
	own := w.Identity()
	if n.Process == w.cfg.Process || n.Registry == "" || own.Registry == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.Registry == own.Registry {
		w.hearOwnLocked(own, n)
		return
	}
	o := w.peers.others[n.Registry]
	if o == nil {
		o = &other{}
		if w.peers.others == nil {
			w.peers.others = make(map[string]*other)
		}
		w.peers.others[n.Registry] = o
	}
	o.notice, o.heard = n, w.cfg.Now()
	w.signal()
}

// hearOwnLocked takes in what another worker says of this registry. What differs is a reason to check, and no more.
func (w *Member) hearOwnLocked(own Identity, n Notice) {
	p := &w.peers
	p.heard = w.cfg.Now()
	p.speak = p.heard.Add(announceAfter + jitter.UpTo(announceSpread))
	open := ""
	if own.Incident != nil {
		open = own.Incident.ID
	}
	if n.Era != own.Era() || n.Incident != open || n.Out != own.Out {
		w.machine.doubt()
		w.signal()
		return
	}
	p.highest = max(p.highest, n.Revision)
	w.cfg.Bucket.Saw(n.Revision)
	// Senders have just written or read. One that knows less than was known long before may be on a bucket that went
	// back; only a write shows it.
	if n.Revision < p.earlier {
		w.machine.doubt()
		w.signal()
	}
}

// Ask returns the notices of one worker of each registry that answers.
func (w *Member) Ask(ctx context.Context) ([]Notice, error) {
	return w.cfg.Ask.Notices(ctx, w.Notice())
}

// greet asks one settled worker of the registry, once for each connection, whether it knows a later state of the
// bucket. A worker that has just begun remembers none, so it could load first from a bucket that went back. Workers
// announce the highest revision each second, so any of them knows.
func (w *Member) greet(ctx context.Context, links uint64) error {
	if w.greeted == links || w.Stopped() != nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, w.cfg.Enough(2, greetTimeout))
	defer cancel()
	r, err := w.cfg.Ask.one(limited, w.m.Registry, call{Op: opNotice, From: w.Notice()})
	if err == nil {
		w.hear(r.Notice)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		w.cfg.Log.Debug("no other worker was asked about the registry", "error", err)
	}
	w.greeted = links
	return nil
}

// announce sends this worker's notice to all workers.
func (w *Member) announce() {
	n := w.Notice()
	if n.Registry == "" {
		return
	}
	if err := w.cfg.Announce(encode(n)); err != nil {
		w.cfg.Log.Debug("the registry was not announced", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.peers
	p.heard, p.highest = w.cfg.Now(), max(p.highest, n.Revision)
	p.speak = p.heard.Add(announceAfter + jitter.UpTo(announceSpread))
}

// announceIfDue announces the registry every few seconds, and a new highest revision once a second, unless another
// worker of the registry has: so the messages do not grow with the square of the workers.
func (w *Member) announceIfDue() {
	now, known := w.cfg.Now(), w.cfg.Bucket.Known()
	w.mu.Lock()
	p := &w.peers
	p.earlier, p.before = p.before, known
	due := now.After(p.speak) || known > p.highest && now.Sub(p.heard) >= tick && w.machine.state == Sound
	w.mu.Unlock()
	if due {
		w.announce()
	}
}

// meet looks at the other registries that were heard. The caller has entered.
func (w *Member) meet(ctx context.Context) {
	own := w.Identity()
	for _, o := range w.dueOthers() {
		goesOn := w.cfg.Pin != "" && w.cfg.Pin == own.Registry && !o.notice.Pinned
		if goesOn || own.Out != "" || own.Incident != nil || !o.notice.Serves() {
			continue
		}
		if err := w.meetOne(ctx, o); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStopped) {
			w.cfg.Log.Warn("another registry serves the same subjects, and cannot be examined yet", "registry",
				o.notice.Registry, "error", err)
		}
	}
}

// dueOthers returns the other registries to be examined, and forgets those that are not heard.
func (w *Member) dueOthers() (due []*other) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Now()
	maps.DeleteFunc(w.peers.others, func(_ string, o *other) bool { return now.Sub(o.heard) > forgetAfter })
	for _, o := range w.peers.others {
		if o.asked.Before(o.heard) && now.Sub(o.asked) >= tick {
			o.asked = now
			due = append(due, o)
		}
	}
	return due
}

// meetOne finds out whether another registry is there, and stops this one if so.
//
// Law: what was heard is proof of nothing. The own identity is read first, and the other worker reads its own for the
// answer: so if both are one registry, both see that. One that announces itself again and again and cannot be asked
// counts as another one: nothing else could keep the two apart.
func (w *Member) meetOne(ctx context.Context, o *other) error {
	if err := w.check(ctx, true); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer := o.notice
	r, err := w.cfg.Ask.one(ctx, o.notice.Registry, call{Op: opNotice, From: w.Notice()})
	own := w.Identity()
	if err == nil {
		answer, o.unanswered = r.Notice, 0
	} else if o.unanswered++; o.unanswered < mostUnanswered {
		return err
	}
	if answer.Registry == own.Registry || !answer.Serves() {
		return nil
	}
	return w.conflict(ctx, own, answer)
}

// conflict stops this registry because of another one, or lets it leave if it was never used.
func (w *Member) conflict(ctx context.Context, own Identity, n Notice) error {
	v, err := w.read(ctx, false)
	if err != nil {
		return err
	}
	if v.id.Registry != own.Registry || v.id.Incident != nil || v.id.Out != "" {
		return errNewerRead
	}
	unused, err := w.isUnused(ctx)
	if err != nil {
		return err
	}
	if unused && !n.Unused {
		w.cfg.Alarm(Second, fmt.Sprintf("registry %s serves the same subjects; this worker rests on registry %s, "+
			"which was never used and leaves: connect this worker to the NATS of the other registry",
			n.Registry, own.Registry))
		return w.yield(ctx, &v, n.Registry)
	}
	f := finding{cause: Second, other: n.Registry, why: fmt.Sprintf("registry %s serves the same subjects, and "+
		"this worker rests on registry %s: both may give the same IDs", n.Registry, own.Registry)}
	return w.prove(ctx, &v, f, time.Time{})
}

// giveWay takes a bucket without identity out for a registry that answers, as behind a leaf node, if this worker
// remembers nothing and nobody ever used the bucket. Then it reports whether it did, and why nothing is served.
//
// Law: who is asked by another registry checks its own first. So one that answers and has not found its identity gone
// rests on another bucket.
func (w *Member) giveWay(ctx context.Context, v *view) (left bool, err error) {
	if unused, err := w.isUnused(ctx); !unused || err != nil || v.revision != 0 {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	all, _ := w.cfg.Ask.Notices(limited, w.Notice()) // none is none
	other := slices.IndexFunc(all, func(n Notice) bool { return n.Registry != "" && n.Incident == "" && n.Serves() })
	if other < 0 {
		return false, nil
	}
	next := Found(w.cfg.Kind, v.created)
	next.Out = all[other].Registry
	if _, err := w.cfg.Bucket.Create(ctx, identityKey, next.Encode()); err != nil {
		return false, errors.Join(err, errNewerRead)
	}
	v.id, v.missing = next, nil
	w.id.Store(&v.id)
	w.cfg.Alarm(Second, fmt.Sprintf("registry %s serves the same subjects; this worker rests on registry %s, which "+
		"was "+
		"never used and leaves: connect this worker to the NATS of the other registry", next.Out, next.Registry))
	return true, w.halt(v)
}

// isUnused reports whether the registry never loaded, nor held a worker number.
func (w *Member) isUnused(ctx context.Context) (bool, error) {
	if w.cfg.Unused == nil {
		return false, nil
	}
	unused, err := w.cfg.Unused(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers.unused = unused && err == nil
	return unused, err
}
