// Package fleet has one worker load a contended strict tag for the others: see [StrictTags]; it is internal to natsid
// and may change.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

const (
	// mostTries is how many compare-and-sets a load sends before it is passed to another worker, the tag's loader. If
	// the loader gives no range, the load sends more until its time is up.
	mostTries = 2
	// A worker waits for a loader's answer answerLoads times as long as the slowest load lately, and leastAnswer at
	// least: see patience.
	leastAnswer = 200 * time.Millisecond
	answerLoads = 3
	// leastPause is how long a worker asks no loader after a loader gave it no range in time. The pause doubles each
	// time, up to mostPause, until a loader answers with a range.
	leastPause = 250 * time.Millisecond
	mostPause  = 2 * time.Second
	// A load waits for messages of other workers (see await) for a quarter of the last load's duration, mostWait at
	// most.
	mostWait = 2 * time.Millisecond
	// forgetAfter is how long after the last use a worker forgets that it contended for a tag. It looks for such tags
	// about twice in that time.
	forgetAfter = 10 * time.Second
	// mostTags bounds the contended tags of one worker. Further tags are loaded without a loader.
	mostTags = 1000
)

// A Conn is the part of a [nats.Conn] that [StrictTags] use.
type Conn interface {
	Publish(subject string, data []byte) error
	QueueSubscribe(subject, queue string, f nats.MsgHandler) (*nats.Subscription, error)
	RequestWithContext(ctx context.Context, subject string, data []byte) (*nats.Msg, error)
	IsConnected() bool
}

// StrictConfig configures [StrictTags]. All fields must be set.
type StrictConfig struct {
	Namespace subjects.Namespace
	Conn      Conn // must not be the connection on which requests arrive
	// Segments returns the allocator of this worker, once it exists.
	Segments func() *segment.Allocator
	// Marks returns a unique name of the bucket with the marks that this worker raises. A mark is the end of the IDs of
	// a tag that are reserved so far. The name is "" while it is unknown, or while the worker must issue nothing. While
	// the name is "", the worker neither loads for other workers nor asks them.
	Marks func() string
	// Loads reports whether this worker can load, as far as it knows. While it cannot, it loads for no other worker.
	Loads func() bool
}

// StrictTags are the strict tags for which this worker contended with others lately. A load of a tag raises its mark,
// the end of the IDs reserved so far, by a compare-and-set in JetStream. StrictTags let several workers load a tag
// through one of them, its loader, so that their compare-and-sets do not race. StrictTags is safe for concurrent use.
//
// A worker loads a strict tag itself until others overtake its compare-and-sets. Then it asks the tag's loader, which
// listens on id.loader.<tag>, to load for it: a message has the total number of IDs that the worker's requests ask for,
// and the loader parks that number as one request beside its own. Where nobody listens, NATS says so at once, and the
// worker becomes the loader. A loader that is overtaken stops listening, and asks. So of the workers that contend for a
// tag one is its loader after a few loads. While no workers contend, none sends anything. If the loader does not answer
// in time (see [StrictTags.patience]), the worker loads the tag itself.
//
// # The third law: later requests for a strict tag get higher IDs
//
// This holds if each request gets IDs from a load whose compare-and-set was sent after the request arrived. A worker
// sends a message only after its requests joined the message, and the message joins the loader's load before that load
// sends its compare-and-set. So it does not matter which worker loads. A wrong loader, or two, cost a message or a
// conflict. The range of an answer that comes too late is never used.
//
// A message is not passed on again: a worker that has a message for a tag loads the tag itself.
//
// Before its load joins requests, a loader waits a moment for the next messages of the workers that its last load
// served: see [StrictTags.await]. That only delays the compare-and-set, so more requests arrive before it.
//
// # The second law: no ID of a tag is issued twice
//
// Two buckets of marks may reserve the same range. So every message and answer names the bucket, and a worker with
// another bucket ignores it, even if two registries stand behind the same subjects. The loader parks a message as one
// request, so the range is in no other answer. The worker that asked takes one answer to a message, and drops later
// ones.
type StrictTags struct {
	cfg     StrictConfig
	slowest segment.Slowest // duration of loads of strict tags on any worker, failed or not

	mu  sync.Mutex
	all map[string]*tag
}

// A tag is a strict tag for which workers contend. [StrictTags.mu] guards it.
type tag struct {
	used time.Time // when a load or a message of the tag last came
	// hears receives the messages of other workers; nil unless this worker is the loader.
	hears *nats.Subscription
	asks  bool // loads are passed to the loader

	pause      time.Duration // how long this worker asks no loader after the next missing answer; 0 is leastPause
	retryAfter time.Time     // when that pause ends

	parked  int           // messages that wait for their answers
	awaited int           // workers that were served and have not sent their next message
	came    chan struct{} // a message means: no worker is awaited; has room for one
	took    time.Duration // duration of the last load
}

// NewStrictTags returns the tags of a worker that has contended for none.
func NewStrictTags(cfg StrictConfig) *StrictTags {
	return &StrictTags{cfg: cfg, all: make(map[string]*tag)}
}

// Run forgets, from time to time until ctx ends, the tags for which no workers contend any more. At the end it forgets
// all tags but those for which messages of other workers wait.
func (t *StrictTags) Run(ctx context.Context) {
	for jitter.Sleep(ctx, forgetAfter/2) == nil {
		t.forget(time.Now().Add(-forgetAfter))
	}
	t.forget(time.Now())
}

func (t *StrictTags) forget(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, g := range t.all {
		if g.parked == 0 && !g.used.After(before) {
			g.resign()
			delete(t.all, name)
		}
	}
}

// of returns a tag, which it adds if add is true; nil if there is none. The lock is held.
func (t *StrictTags) of(name string, add bool) *tag {
	g := t.all[name]
	if g == nil && add && len(t.all) < mostTags {
		g = &tag{came: make(chan struct{}, 1)}
		t.all[strings.Clone(name)] = g
	}
	if g != nil {
		g.used = time.Now()
	}
	return g
}

// resign makes this worker no longer the tag's loader. Messages on their way are still answered, since their senders
// wait. The lock is held.
func (g *tag) resign() {
	if g.hears != nil {
		_ = g.hears.Drain() // it fails only on a closed connection
		g.hears = nil
	}
}

// mayAsk reports whether this worker may ask the loader of a tag now.
func (t *StrictTags) mayAsk(g *tag) bool {
	return g.parked == 0 && !time.Now().Before(g.retryAfter) && t.cfg.Marks() != "" && t.cfg.Conn.IsConnected()
}

// asks reports whether a load of a tag is passed to the loader at once.
func (t *StrictTags) asks(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.of(name, false)
	return g != nil && g.asks && t.mayAsk(g)
}

// overtaken records that the compare-and-sets of a load lost against other workers, and reports whether to pass the
// load to the tag's loader. A load for which messages of other workers wait is not passed on again.
func (t *StrictTags) overtaken(name string) (pass bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.of(name, true)
	if g == nil {
		return false
	}
	g.resign()
	g.asks = true
	return t.mayAsk(g)
}

// lead makes this worker the loader of a tag: it then loads the tag for other workers, too.
func (t *StrictTags) lead(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.of(name, true)
	if g == nil || g.hears != nil {
		return
	}
	hears, err := t.cfg.Conn.QueueSubscribe(wire.Loader(t.cfg.Namespace, name), wire.QueueGroup, t.take)
	if err == nil { // it fails only on a closed connection
		g.hears, g.asks = hears, false
	}
}

// answered records whether the loader of a tag has answered with a range in time. The first pause is short: after a
// short outage of the store the loader still loads, and a worker that loads at the same time races with it.
func (t *StrictTags) answered(name string, isRange bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.of(name, false); g != nil && isRange {
		g.pause = 0
	} else if g != nil {
		g.pause = min(max(leastPause, 2*g.pause), mostPause)
		g.retryAfter = time.Now().Add(g.pause)
	}
}

// Over returns a store whose strict loads are made in the process of the tag's loader: another process by a message,
// or this one by the given store.
func (t *StrictTags) Over(store segment.Store) segment.Store { return sharing{store, t} }

type sharing struct {
	segment.Store
	tags *StrictTags
}

// LoadStrict implements [segment.Store].
func (s sharing) LoadStrict(
	ctx context.Context, name string, join func() int64, floor int64,
) (segment.Loaded, error) {
	t := s.tags
	if t.asks(name) {
		if l, ok := t.pass(ctx, name, join, floor); ok {
			return l, nil
		}
	}
	l, err := t.load(ctx, name, join, floor, s.Store, true)
	if !errors.Is(err, errOvertaken) {
		return l, err
	}
	if l, ok := t.pass(ctx, name, join, floor); ok {
		return l, nil
	}
	return t.load(ctx, name, join, floor, s.Store, false)
}

// errOvertaken ends a load whose compare-and-sets lost, and which is passed to the loader.
var errOvertaken = errors.New("fleet: another worker loads the tag")

// load loads the tag in this process, for this worker and for workers whose messages join the load. If mayPass is true,
// it returns errOvertaken when the load is to be passed to the loader, another worker.
func (t *StrictTags) load(
	ctx context.Context, name string, join func() int64, floor int64, store segment.Store, mayPass bool,
) (l segment.Loaded, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	began, tries, waited := time.Now(), 0, time.Duration(0)
	l, err = store.LoadStrict(ctx, name, func() int64 {
		if tries++; tries > mostTries && mayPass && t.overtaken(name) {
			end(errOvertaken) // before the compare-and-set: a store sends none once its context has ended
		}
		waited += t.await(ctx, name)
		return join()
	}, floor)
	took := time.Since(began) - waited
	t.slowest.Note(took)
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.all[name]; g != nil {
		g.took = took
	}
	if err != nil && errors.Is(context.Cause(ctx), errOvertaken) {
		err = errOvertaken
	}
	return l, err
}

// await waits until the workers that the last load of a tag served have sent their next messages, for mostWait at most,
// and returns how long it waited. A worker that is late is not awaited again until it is served again.
//
// A worker sends its next message once its last one is answered, for all requests that arrived in between. So messages
// arrive just after a load has ended, when the next load would already have read the mark: without the wait a message
// would take two loads.
//
// Law (later requests for a strict tag get higher IDs): a load calls await before it joins requests, and so before it
// sends its compare-and-set.
func (t *StrictTags) await(ctx context.Context, name string) time.Duration {
	t.mu.Lock()
	g := t.all[name]
	if g == nil || g.awaited == 0 {
		t.mu.Unlock()
		return 0
	}
	select {
	case <-g.came: // from an earlier load
	default:
	}
	most := min(g.took/4, mostWait)
	t.mu.Unlock()
	began, late := time.Now(), time.NewTimer(most)
	defer late.Stop()
	select {
	case <-g.came:
	case <-late.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g.awaited = 0
	return time.Since(began)
}

// patience returns how long to wait for a loader's answer within ctx: at most half of the time, so that the other half
// remains for a load of the worker's own. While no load was measured, patience returns that half.
//
// A message waits for the load that is under way, and then for its own load. A worker that gave up sooner would load at
// the same time as the loader. If JetStream is slow, all workers would do so, and their compare-and-sets would race for
// one mark: some workers would win none before their requests expire.
func (t *StrictTags) patience(ctx context.Context) time.Duration {
	slowest := t.slowest.Get()
	d := max(leastAnswer, answerLoads*slowest)
	if end, ok := ctx.Deadline(); ok {
		if half := max(leastAnswer, time.Until(end)/2); slowest == 0 || d > half {
			return half
		}
	}
	return d
}

// An answer is the reply of a loader: a range in the named bucket of marks, or nothing.
type answer struct {
	Marks string `json:"marks"`
	Start int64  `json:"start,string"`
	End   int64  `json:"end,string"`
	Step  int64  `json:"step"`
}

// pass makes the loader, another worker, load the IDs that requests ask for, and reports whether the loader did. IDs
// below floor, up to which this worker has loaded the tag, are refused. Where there is no loader, this worker becomes
// it. pass sends nothing if a message of another worker has joined these requests: a message is not passed on again.
func (t *StrictTags) pass(ctx context.Context, name string, join func() int64, floor int64) (segment.Loaded, bool) {
	n, marks := join(), t.cfg.Marks() //mutant:pass
	if !t.asks(name) {
		return segment.Loaded{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience(ctx))
	defer cancel()
	began := time.Now()
	m, err := t.cfg.Conn.RequestWithContext(ctx, wire.Loader(t.cfg.Namespace, name),
		[]byte(strconv.FormatInt(n, 10)+" "+marks+" "+name))
	if errors.Is(err, nats.ErrNoResponders) {
		t.lead(name)
		return segment.Loaded{}, false
	}
	var a answer
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
	}
	isRange := err == nil && marks != "" && a.Marks == marks && t.cfg.Marks() == marks &&
		a.Start >= max(1, floor) && a.End-a.Start == n && a.Step >= 1
	t.answered(name, isRange)
	if !isRange {
		return segment.Loaded{}, false
	}
	t.slowest.Note(time.Since(began))
	//mutant:passed
	return segment.Loaded{Range: segment.Range{Start: a.Start, End: a.End}, Step: a.Step, Passed: true}, true
}

// take parks (queues) the message of another worker as one request for IDs. The message has the number of IDs, the name
// of the bucket of marks, and the tag.
func (t *StrictTags) take(m *nats.Msg) {
	count, rest, _ := strings.Cut(string(m.Data), " ")
	marks, name, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(count, 10, 64)
	if err == nil {
		err = subjects.CheckTag(name)
	}
	if err != nil || m.Reply == "" {
		return
	}
	segments := t.cfg.Segments()
	t.mu.Lock()
	g := t.of(name, true)
	if g != nil && !t.cfg.Loads() {
		g.resign()
	}
	if g == nil || marks == "" || marks != t.cfg.Marks() || !t.cfg.Loads() {
		t.mu.Unlock()
		t.reply(m, name, nil)
		return
	}
	g.parked++ // before the message is parked: the load that it joins is not passed on
	if g.awaited == 1 {
		defer func() { // after the message is parked
			select {
			case g.came <- struct{}{}:
			default:
			}
		}()
	}
	g.awaited = max(0, g.awaited-1)
	t.mu.Unlock()
	done := func(ranges []segment.Range) {
		t.mu.Lock()
		g.parked--
		if len(ranges) == 1 {
			g.awaited++ // before the answer: the next message may follow at once
		}
		t.mu.Unlock()
		t.reply(m, name, ranges)
	}
	err = segments.Park(name, n, func(ranges []segment.Range, _ error) {
		if !segments.IsStrict(name) {
			ranges = nil // the ranges may have been loaded before the message came
		}
		done(ranges)
	})
	if err != nil {
		done(nil)
	}
}

// reply answers a message. A worker that gets no range loads for itself.
func (t *StrictTags) reply(m *nats.Msg, name string, ranges []segment.Range) {
	var a answer
	s, _ := t.cfg.Segments().StatsOf(name)
	if marks := t.cfg.Marks(); len(ranges) == 1 && marks != "" {
		a = answer{marks, ranges[0].Start, ranges[0].End, s.Configured}
	}
	body, _ := json.Marshal(a)            // integers and a string
	_ = t.cfg.Conn.Publish(m.Reply, body) // it fails only without a connection: then the range is a hole
}
