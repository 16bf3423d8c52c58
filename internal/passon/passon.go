// Package passon lets several workers load a strict tag through one of them, so that their compare-and-sets do not
// fight over its mark; it is internal to natsid and may change.
//
// Each worker says now and then that it is there. Of those that a worker has heard, a hash of names and tag chooses
// one: the tag's loader. The others send it what their requests ask for together, and it parks that as one request
// beside its own. Where nobody is there to answer, or nobody does in time, a worker loads for itself. How long it waits
// follows from how long loads take: see patience.
//
// # The third law
//
// A message is sent after the requests joined it, and the loader's load is one that this message joined: its
// compare-and-set is sent after all of them arrived. So who loads is a matter of speed alone. A wrong view of who is
// there costs a message or a conflict. An answer that comes too late is a hole.
//
// What was passed on is not passed on again: a worker that got such a message for a tag loads the tag itself. A load
// whose first compare-and-sets failed is ended before it sends the next, and what waits by then is passed on, if a
// loader has been heard meanwhile.
//
// Before its load joins requests, a loader waits a moment for the next messages of those whom its last load served: see
// rendezvous. That only delays the compare-and-set, so more requests arrived before it.
//
// # The second law
//
// A range comes from another process, so it must be of the same marks. Whoever says that it is there, asks or answers
// names the bucket of marks, and takes nothing from one that names another: two registries behind the same subjects do
// not mix. The loader parks a message as one request, so its range is in no other answer, and the asker takes one
// answer to a message and drops any later one.
package passon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/latency"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

const (
	// sayEvery is how often a worker says that it is there in a small fleet, saySeldom how rarely at most. Others
	// believe it for believed times as long.
	sayEvery  = time.Second
	saySeldom = 30 * time.Second
	believed  = 3
	// lookEvery is how often a worker that cannot load looks whether it can, and says so: where the store was away for
	// all, they fight over the marks until they have heard of one another. No worker says anything more often.
	lookEvery = 50 * time.Millisecond
	// leastPause is for how long a worker that has not answered in time is passed nothing. It doubles each time, until
	// the worker says again that it is there.
	leastPause = 250 * time.Millisecond
	// loadsFor is how long a worker that got a message for a tag loads the tag itself, unless a worker comes meanwhile:
	// others pass on to it, since they have not been answered elsewhere.
	loadsFor = time.Second
	// smallFleet is up to how many others a worker knows that says at once to a new one that it is there.
	smallFleet = 20
	// mostTries is how many compare-and-sets a load sends before it is passed on, if somebody is there to load it. That
	// happens once: then it races for the rest of its time.
	mostTries = 2
)

// A Conn is what a Ring needs of a [nats.Conn].
type Conn interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, f nats.MsgHandler) (*nats.Subscription, error)
	RequestWithContext(ctx context.Context, subject string, data []byte) (*nats.Msg, error)
	IsConnected() bool
}

// Config is what a Ring needs. All fields but Name must be set.
type Config struct {
	Namespace subjects.Namespace
	Name      string // of this process, one token of a subject that no other has; "" makes one
	Conn      Conn   // must not be the one that requests arrive on
	// Segments returns the allocator of this worker, once it is there.
	Segments func() *segment.Allocator
	// Marks names the bucket of marks that this worker issues from, as no other bucket is named; it returns "" while it
	// does not know that, or must issue nothing. Then it loads for nobody, and nobody for it.
	Marks func() string
	// Loads reports whether this worker can load, as far as it knows. While it cannot it loads for nobody, and passes
	// on to those who can.
	Loads func() bool
}

// A Ring is the workers among which loaders are chosen, as one of them sees it. It is safe for concurrent use.
type Ring struct {
	cfg  Config
	name string // of this process, one token of a subject

	mu     sync.Mutex
	heard  map[string]word        // by name, of those who said that they are there
	passed map[string]*rendezvous // by tag, of those for which a message came lately

	slowest latency.Slowest // load of a strict tag, whoever made it, one that failed too
	news    chan struct{}   // has a token if a worker was heard that was not known
}

// A word is what a worker has said last.
type word struct {
	at    time.Time
	marks string // that it loads from

	pause time.Duration // for which it is passed nothing, since it has not answered in time
	again time.Time     // the end of that
}

// New returns a ring in which nobody is known.
func New(cfg Config) *Ring {
	return &Ring{
		cfg: cfg, name: cmp.Or(cfg.Name, strings.TrimPrefix(nats.NewInbox(), nats.InboxPrefix)),
		heard: make(map[string]word), passed: make(map[string]*rendezvous), news: make(chan struct{}, 1),
	}
}

// Run takes what others pass on, and says that this worker is there while it knows of a strict tag, until ctx ends.
func (r *Ring) Run(ctx context.Context) error {
	own, err := r.cfg.Conn.Subscribe(r.cfg.Namespace.Loader(r.name), r.take)
	if err != nil {
		return err
	}
	defer func() { _ = own.Unsubscribe() }() // fails only on a connection that is gone
	others, err := r.cfg.Conn.Subscribe(r.cfg.Namespace.Loaders(), r.hear)
	if err != nil {
		return err
	}
	defer func() { _ = others.Unsubscribe() }()
	for {
		pause := lookEvery
		connected := r.cfg.Conn.IsConnected()
		if marks := r.cfg.Marks(); marks != "" && connected && r.cfg.Loads() && r.cfg.Segments().AnyStrict() {
			// It fails only without a connection; then nobody could send anything.
			_ = r.cfg.Conn.Publish(r.cfg.Namespace.Loaders(), []byte(r.name+" "+marks))
			pause = r.pause()
		}
		r.forget(time.Now(), connected)
		select {
		case <-time.After(lookEvery): // one word answers all that came meanwhile
		case <-ctx.Done():
			return nil
		}
		if pause > lookEvery {
			select {
			case <-time.After(pause - lookEvery):
			case <-r.news:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// pause keeps what all workers say together to some 20 messages a second.
func (r *Ring) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return jitter.Around(r.every())
}

func (r *Ring) every() time.Duration {
	return min(sayEvery*time.Duration(1+len(r.heard)/20), saySeldom)
}

// hear notes that another worker is there, and which marks it loads from. This one need not be able to load at that
// moment: where the store was away for all, it passes on to those who were back before it.
func (r *Ring) hear(m *nats.Msg) {
	name, marks, _ := strings.Cut(string(m.Data), " ")
	if name == r.name || name == "" || strings.ContainsAny(name, ".*>\r\n\t") || marks == "" || len(m.Data) > 128 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.heard[name]
	if known || len(r.heard) < 10_000 {
		r.heard[name] = word{at: time.Now(), marks: marks}
	}
	if known {
		return
	}
	for _, meets := range r.passed {
		meets.last = time.Time{} // whoever passes on to this worker may pass on to that one now
	}
	if len(r.heard) <= smallFleet {
		select {
		case r.news <- struct{}{}: // until it hears of this worker, it would load beside it
		default:
		}
	}
}

// forget forgets who was not heard for long, and which messages came long ago. While this worker is not connected it
// hears nobody, and forgets nobody: whoever is gone by then has no responders.
func (r *Ring) forget(now time.Time, connected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, w := range r.heard {
		if !connected {
			r.heard[name] = word{at: now, marks: w.marks}
		} else if now.Sub(w.at) > believed*r.every() {
			delete(r.heard, name)
		}
	}
	for tag, meets := range r.passed {
		if meets.parked == 0 && now.Sub(meets.last) > loadsFor {
			delete(r.passed, tag)
		}
	}
}

// loader returns who loads a tag, "" for this worker.
func (r *Ring) loader(tag string) string {
	marks, loads := r.cfg.Marks(), r.cfg.Loads()
	r.mu.Lock()
	defer r.mu.Unlock()
	if meets := r.passed[tag]; meets != nil && (meets.parked > 0 || time.Since(meets.last) < loadsFor) {
		return ""
	}
	loader, highest, now := "", uint64(0), time.Now()
	if loads {
		highest = weight(r.name, tag)
	}
	for name, word := range r.heard {
		if w := weight(name, tag); w > highest && word.marks == marks && !now.Before(word.again) {
			loader, highest = name, w
		}
	}
	return loader
}

// weight is what a worker counts for a tag: the highest wins. It is the same in all workers.
func weight(name, tag string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + " " + tag)) // never fails
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

// An answer is what a loader says: a range of marks, or nothing.
type answer struct {
	Marks string `json:"marks"`
	Start int64  `json:"start,string"`
	End   int64  `json:"end,string"`
	Step  int64  `json:"step"`
}

// take parks what another worker passed on, which is the number of IDs, the marks and the tag.
func (r *Ring) take(m *nats.Msg) {
	count, rest, _ := strings.Cut(string(m.Data), " ")
	marks, tag, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(count, 10, 64)
	if err == nil {
		err = subjects.CheckTag(tag)
	}
	if err != nil || m.Reply == "" {
		return
	}
	segments := r.cfg.Segments()
	if marks == "" || marks != r.cfg.Marks() || !r.cfg.Loads() || !segments.IsStrict(tag) {
		r.reply(m, tag, nil)
		return
	}
	meets := r.meet(tag) // before it is parked: a load that it joins sees this
	if meets.came() {
		defer meets.goOn() // once it is parked
	}
	err = segments.Park(tag, n, func(ranges []segment.Range, _ error) {
		if len(ranges) == 1 {
			meets.await() // before the answer: the next message may follow at once
		}
		r.part(meets)
		r.reply(m, tag, ranges)
	})
	if err != nil {
		r.part(meets)
		r.reply(m, tag, nil)
	}
}

// part notes that a message has its answer.
func (r *Ring) part(meets *rendezvous) {
	r.mu.Lock()
	defer r.mu.Unlock()
	meets.parked--
}

// meet notes that a message for a tag came; part must follow.
func (r *Ring) meet(tag string) *rendezvous {
	r.mu.Lock()
	defer r.mu.Unlock()
	meets := r.passed[tag]
	if meets == nil {
		meets = &rendezvous{all: make(chan struct{}, 1)}
		r.passed[tag] = meets
	}
	meets.last = time.Now()
	meets.parked++
	return meets
}

// reply answers a message. Whoever gets no range loads for itself.
func (r *Ring) reply(m *nats.Msg, tag string, ranges []segment.Range) {
	var a answer
	s, _ := r.cfg.Segments().StatsOf(tag)
	if marks := r.cfg.Marks(); len(ranges) == 1 && marks != "" {
		a = answer{marks, ranges[0].Start, ranges[0].End, s.Configured}
	}
	body, _ := json.Marshal(a)            // integers and a string
	_ = r.cfg.Conn.Publish(m.Reply, body) // fails only without a connection: then the range is a hole
}

// Store returns the store for an allocator, whose strict loads are passed on.
func (r *Ring) Store(store segment.Store) segment.Store { return passing{store, r} }

type passing struct {
	segment.Store
	ring *Ring
}

// LoadStrict implements [segment.Store].
func (p passing) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (l segment.Loaded, err error) {
	l, err = p.passOrLoad(ctx, tag, join, floor, mostTries)
	if errors.Is(err, errOutrun) {
		l, err = p.passOrLoad(ctx, tag, join, floor, math.MaxInt)
	}
	return l, err
}

// passOrLoad lets the loader load, or loads here, with so many compare-and-sets while a loader is there.
func (p passing) passOrLoad(
	ctx context.Context, tag string, join func() int64, floor int64, most int,
) (segment.Loaded, error) {
	r := p.ring
	if r.isCutOff() {
		return segment.Loaded{}, errCutOff
	}
	if loader := r.loader(tag); loader != "" {
		began := time.Now()
		if l, ok := r.pass(ctx, loader, tag, join); ok && l.Start >= floor {
			r.slowest.Note(time.Since(began))
			return l, nil
		}
		if r.isCutOff() {
			return segment.Loaded{}, errCutOff
		}
	}
	return p.load(ctx, tag, join, floor, most)
}

// isCutOff reports whether the marks are out of reach.
func (r *Ring) isCutOff() bool { return r.cfg.Marks() != "" && !r.cfg.Conn.IsConnected() }

var (
	// errCutOff ends a load at once: the connection may be back in a moment. A load that began now would wait until the
	// marks are checked, and the next one is passed on.
	errCutOff = errors.New("passon: not connected to NATS")
	// errOutrun ends a load that sent its compare-and-sets in vain, while another worker is there to load the tag.
	errOutrun = errors.New("passon: another worker loads the tag")
)

// load loads for this worker, and for those whose messages join.
//
// A worker that has just come, or come back, may have begun before it heard of the others. It loads against them, and
// may win none of its compare-and-sets before its requests expire.
func (p passing) load(
	ctx context.Context, tag string, join func() int64, floor int64, most int,
) (l segment.Loaded, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	began, tries := time.Now(), 0
	defer func() { p.ring.slowest.Note(time.Since(began)) }()
	p.ring.mu.Lock()
	meets := p.ring.passed[tag]
	p.ring.mu.Unlock()
	var waited time.Duration
	l, err = p.Store.LoadStrict(ctx, tag, func() int64 {
		if tries++; tries > most && p.ring.loader(tag) != "" {
			end(errOutrun) // before the compare-and-set: a store sends none once its context has ended
		}
		if meets != nil {
			waited += meets.wait(ctx)
		}
		return join()
	}, floor)
	if meets != nil {
		meets.loaded(time.Since(began) - waited)
	}
	if err != nil && errors.Is(context.Cause(ctx), errOutrun) {
		err = errOutrun
	}
	return l, err
}

// missed notes that a worker has not answered what was passed on to it in time, or with nothing, or is gone. Where the
// store was slow or away for a moment it is there as before, and who loads beside it fights with it and with those whom
// it loads for.
func (r *Ring) missed(loader string, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, known := r.heard[loader]
	if gone {
		delete(r.heard, loader)
	} else if now := time.Now(); known && !now.Before(w.again) {
		w.pause = max(leastPause, 2*w.pause)
		w.again = now.Add(w.pause)
		r.heard[loader] = w
	}
}

// pass lets the loader load what requests ask for, and reports whether it did. What it loads must have been asked for
// by the message: a message that was passed on to this worker may have joined meanwhile, and is not passed on again.
func (r *Ring) pass(ctx context.Context, loader, tag string, join func() int64) (segment.Loaded, bool) {
	n, marks := join(), r.cfg.Marks() //mutant:pass
	if r.loader(tag) == "" || marks == "" {
		return segment.Loaded{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience(ctx))
	defer cancel()
	m, err := r.cfg.Conn.RequestWithContext(ctx, r.cfg.Namespace.Loader(loader),
		[]byte(strconv.FormatInt(n, 10)+" "+marks+" "+tag))
	if err != nil {
		if r.cfg.Conn.IsConnected() {
			r.missed(loader, errors.Is(err, nats.ErrNoResponders))
		}
		return segment.Loaded{}, false
	}
	var a answer
	if err = json.Unmarshal(m.Data, &a); err == nil && a.Marks == "" {
		r.missed(loader, false)
	}
	if err != nil || a.Marks != marks || r.cfg.Marks() != marks ||
		a.Start < 1 || a.End-a.Start != n || a.Step < 1 {
		return segment.Loaded{}, false
	}
	//mutant:passed
	return segment.Loaded{Range: segment.Range{Start: a.Start, End: a.End}, Step: a.Step, Passed: true}, true
}
