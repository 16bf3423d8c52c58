// Package loaders lets several workers load a strict tag through one of them, so that their compare-and-sets do not
// fight over its mark; it is internal to natsid and may change.
//
// Each worker announces itself periodically. By a hash of names and tag, a worker chooses one of the workers that it
// has heard: the tag's loader. The other workers send the loader the total number of IDs that their requests ask for,
// and the loader parks that number as one request beside its own. A worker loads for itself if there is no other
// worker, or if the loader does not answer in time. How long it waits depends on how long loads take: see patience.
//
// # The third law
//
// A message is sent after the requests joined it, and joins the loader's load before that load sends its
// compare-and-set: so the compare-and-set is sent after all those requests arrived. Which worker loads is therefore a
// matter of speed alone. A wrong view of the other workers costs a message or a conflict. An answer that comes too
// late is a hole.
//
// A message is not passed on again: a worker that received a message for a tag loads the tag itself. A load whose first
// compare-and-sets failed ends before it sends another, and its waiting requests are passed on, if a loader has been
// heard since.
//
// Before its load joins requests, a loader waits a moment for the next messages of the workers that its last load
// served: see rendezvous. That only delays the compare-and-set, so more requests arrive before it.
//
// # The second law
//
// A range that comes from another process must be of the same marks. So every announcement, message and answer names
// the bucket of marks, and a worker with another bucket ignores it: two registries behind the same subjects do not mix.
// The loader parks a message as one request, so its range is in no other answer; the asker takes one answer to a
// message and drops later ones.
package loaders

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
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

const (
	// sayEvery is the interval at which a worker announces itself in a small fleet, saySeldom the longest interval.
	// After believed intervals without an announcement the other workers forget the worker.
	sayEvery  = time.Second
	saySeldom = 30 * time.Second
	believed  = 3
	// lookEvery is how often a worker that cannot load checks whether it can, to announce itself at once: after an
	// outage of the store all workers race for the marks until they have heard of one another. It is also the shortest
	// interval between two announcements of a worker.
	lookEvery = 50 * time.Millisecond
	// leastPause is how long a worker gets no messages after it has not answered in time. The pause doubles each time,
	// until that worker announces itself again.
	leastPause = 250 * time.Millisecond
	// loadsFor is how long a worker loads a tag itself after it got a message for the tag, unless it hears a new
	// worker: the sender found no other loader.
	loadsFor = time.Second
	// smallFleet is the largest number of known workers at which a worker announces itself at once to a new one.
	smallFleet = 20
	// mostTries is how many compare-and-sets a load sends before it is passed on to another worker that can load. A
	// load is passed on once: after that it races for the rest of its time.
	mostTries = 2
)

// A Conn is the part of a [nats.Conn] that a Ring uses.
type Conn interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, f nats.MsgHandler) (*nats.Subscription, error)
	RequestWithContext(ctx context.Context, subject string, data []byte) (*nats.Msg, error)
	IsConnected() bool
}

// Config is the settings of a Ring. All fields but Name must be set.
type Config struct {
	Namespace subjects.Namespace
	Name      string // of this process, a unique token of a subject; "" makes one
	Conn      Conn   // must not be the connection on which requests arrive
	// Segments returns the allocator of this worker, once it exists.
	Segments func() *segment.Allocator
	// Marks returns a unique name of the bucket of marks that this worker issues from; "" while the name is unknown, or
	// while the worker must issue nothing. While it is "", the worker neither loads for other workers nor passes loads
	// on.
	Marks func() string
	// Loads reports whether this worker can load, as far as it knows. While it cannot, it loads for no other worker,
	// and passes on to workers that can.
	Loads func() bool
}

// A Ring has the workers that this worker knows, from which loaders are chosen. It is safe for concurrent use.
type Ring struct {
	cfg  Config
	name string // of this process, one token of a subject

	mu     sync.Mutex
	heard  map[string]announcement // by name: the last announcement of each worker
	passed map[string]*rendezvous  // by tag, for recent messages

	slowest latency.Slowest // duration of loads of strict tags on any worker, failed or not
	news    chan struct{}   // has a value after a new worker was heard
}

// An announcement is the last one that a worker has sent.
type announcement struct {
	at    time.Time
	marks string // the bucket that it loads from

	pause      time.Duration // how long it gets no messages after it missed an answer
	retryAfter time.Time     // when that pause ends
}

// New returns a ring without other workers.
func New(cfg Config) *Ring {
	return &Ring{
		cfg: cfg, name: cmp.Or(cfg.Name, strings.TrimPrefix(nats.NewInbox(), nats.InboxPrefix)),
		heard: make(map[string]announcement), passed: make(map[string]*rendezvous), news: make(chan struct{}, 1),
	}
}

// Run takes messages of other workers, and announces this worker while it knows of a strict tag, until ctx ends.
func (r *Ring) Run(ctx context.Context) error {
	own, err := r.cfg.Conn.Subscribe(wire.Loader(r.cfg.Namespace, r.name), r.take)
	if err != nil {
		return err
	}
	defer func() { _ = own.Unsubscribe() }() // it fails only on a closed connection
	others, err := r.cfg.Conn.Subscribe(wire.Loaders(r.cfg.Namespace), r.hear)
	if err != nil {
		return err
	}
	defer func() { _ = others.Unsubscribe() }()
	for {
		pause := lookEvery
		connected := r.cfg.Conn.IsConnected()
		if marks := r.cfg.Marks(); marks != "" && connected && r.cfg.Loads() && r.cfg.Segments().AnyStrict() {
			// Publish fails only without a connection; then no worker could send messages.
			_ = r.cfg.Conn.Publish(wire.Loaders(r.cfg.Namespace), []byte(r.name+" "+marks))
			pause = r.pause()
		}
		r.forget(time.Now(), connected)
		if jitter.Sleep(ctx, lookEvery) != nil { // one announcement answers all workers that were heard in that time
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

// pause limits the announcements of all workers together to some 20 messages a second.
func (r *Ring) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return jitter.Around(r.every())
}

func (r *Ring) every() time.Duration {
	return min(sayEvery*time.Duration(1+len(r.heard)/20), saySeldom)
}

// hear records the announcement of another worker. It does so also while this worker cannot load: after an outage of
// the store, others may be able to load sooner, and this worker passes its loads on to them.
func (r *Ring) hear(m *nats.Msg) {
	name, marks, _ := strings.Cut(string(m.Data), " ")
	if name == r.name || name == "" || strings.ContainsAny(name, ".*>\r\n\t") || marks == "" || len(m.Data) > 128 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, isKnown := r.heard[name]
	if isKnown || len(r.heard) < 10_000 {
		r.heard[name] = announcement{at: time.Now(), marks: marks}
	}
	if isKnown {
		return
	}
	for _, meets := range r.passed {
		meets.last = time.Time{} // workers that pass on to this worker may pass on to the new one now
	}
	if len(r.heard) <= smallFleet {
		select {
		case r.news <- struct{}{}: // until the new worker hears of this one, it would load at the same time
		default:
		}
	}
}

// forget drops workers that were not heard for long, and old rendezvous. While this worker is not connected it drops no
// worker, since it can hear none; a message to a worker that has stopped has no responders.
func (r *Ring) forget(now time.Time, connected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, w := range r.heard {
		if !connected {
			r.heard[name] = announcement{at: now, marks: w.marks}
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

// loader returns the loader of a tag, "" for this worker.
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
	for name, a := range r.heard {
		if w := weight(name, tag); w > highest && a.marks == marks && !now.Before(a.retryAfter) {
			loader, highest = name, w
		}
	}
	return loader
}

// weight returns the rank of a worker for a tag: the highest is the loader. All workers compute the same.
func weight(name, tag string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + " " + tag)) // never fails
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

// An answer is the reply of a loader: a range of marks, or nothing.
type answer struct {
	Marks string `json:"marks"`
	Start int64  `json:"start,string"`
	End   int64  `json:"end,string"`
	Step  int64  `json:"step"`
}

// take parks a message of another worker: the number of IDs, the marks and the tag.
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
	if marks == "" || marks != r.cfg.Marks() || !r.cfg.Loads() {
		r.reply(m, tag, nil)
		return
	}
	meets := r.meet(tag) // before the message is parked: the load that it joins counts it
	if meets.came() {
		defer meets.goOn() // after the message is parked
	}
	err = segments.Park(tag, n, func(ranges []segment.Range, _ error) {
		if !segments.IsStrict(tag) {
			ranges = nil // the ranges may have been loaded before the message came
		}
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

// part records that a message was answered.
func (r *Ring) part(meets *rendezvous) {
	r.mu.Lock()
	defer r.mu.Unlock()
	meets.parked--
}

// meet records that a message for a tag came. Its caller must call part once the message is answered.
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

// reply answers a message. A worker that gets no range loads for itself.
func (r *Ring) reply(m *nats.Msg, tag string, ranges []segment.Range) {
	var a answer
	s, _ := r.cfg.Segments().StatsOf(tag)
	if marks := r.cfg.Marks(); len(ranges) == 1 && marks != "" {
		a = answer{marks, ranges[0].Start, ranges[0].End, s.Configured}
	}
	body, _ := json.Marshal(a)            // integers and a string
	_ = r.cfg.Conn.Publish(m.Reply, body) // it fails only without a connection: then the range is a hole
}

// A LoadFunc loads a strict tag in this process, as [segment.Store.LoadStrict] does.
type LoadFunc func(ctx context.Context, tag string, join func() int64, floor int64) (segment.Loaded, error)

// LoadStrict loads a strict tag in the process of its loader: another process by a message, or this one with load.
func (r *Ring) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64, load LoadFunc,
) (l segment.Loaded, err error) {
	l, err = r.passOrLoad(ctx, tag, join, floor, load, mostTries)
	if errors.Is(err, errOutrun) {
		l, err = r.passOrLoad(ctx, tag, join, floor, load, math.MaxInt)
	}
	return l, err
}

// passOrLoad sends the load to the tag's loader, or loads in this process: with up to most compare-and-sets if another
// worker can load.
func (r *Ring) passOrLoad(
	ctx context.Context, tag string, join func() int64, floor int64, load LoadFunc, most int,
) (segment.Loaded, error) {
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
	return r.load(ctx, tag, join, floor, load, most)
}

// isCutOff reports whether the connection to the marks is lost.
func (r *Ring) isCutOff() bool { return r.cfg.Marks() != "" && !r.cfg.Conn.IsConnected() }

var (
	// errCutOff ends a load at once while the connection is lost. A load that began now would wait until the marks are
	// checked, while the next load can be passed on.
	errCutOff = errors.New("loaders: not connected to NATS")
	// errOutrun ends a load whose compare-and-sets lost, while another worker can load the tag.
	errOutrun = errors.New("loaders: another worker loads the tag")
)

// load loads for this worker, and for workers whose messages join the load.
//
// A worker that has just started, or recovered, may begin a load before it has heard of the other workers. It races
// with them, and may win no compare-and-set before its requests expire.
func (r *Ring) load(
	ctx context.Context, tag string, join func() int64, floor int64, load LoadFunc, most int,
) (l segment.Loaded, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	began, tries := time.Now(), 0
	defer func() { r.slowest.Note(time.Since(began)) }()
	r.mu.Lock()
	meets := r.passed[tag]
	r.mu.Unlock()
	var waited time.Duration
	l, err = load(ctx, tag, func() int64 {
		if tries++; tries > most && r.loader(tag) != "" {
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

// missed records that a loader has no subscription (noResponders), or has not answered a message with a range in time.
// Its pause is short at first: after a short outage of the store it is still the loader, and a worker that loads at the
// same time races with it.
func (r *Ring) missed(loader string, noResponders bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, isKnown := r.heard[loader]
	if noResponders {
		delete(r.heard, loader)
	} else if now := time.Now(); isKnown && !now.Before(w.retryAfter) {
		w.pause = max(leastPause, 2*w.pause)
		w.retryAfter = now.Add(w.pause)
		r.heard[loader] = w
	}
}

// pass makes the loader load the IDs that requests ask for, and reports whether the loader did. pass sends nothing if a
// message of another worker has joined these requests: a message is not passed on again.
func (r *Ring) pass(ctx context.Context, loader, tag string, join func() int64) (segment.Loaded, bool) {
	n, marks := join(), r.cfg.Marks() //mutant:pass
	if r.loader(tag) == "" || marks == "" {
		return segment.Loaded{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience(ctx))
	defer cancel()
	m, err := r.cfg.Conn.RequestWithContext(ctx, wire.Loader(r.cfg.Namespace, loader),
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
