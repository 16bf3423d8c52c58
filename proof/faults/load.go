//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A kind is the kind of IDs that a request asks for. Each kind is judged by itself.
type kind int

const (
	snowflake kind = iota
	long           // a tag whose ranges outlast every fault
	short          // a tag whose ranges last a second or two: it needs its store all the time
	strict         // a tag whose IDs rise over all workers: each request needs its store
	kinds
)

func (k kind) String() string { return [...]string{"snowflake", "long", "short", "strict"}[k] }

func (k kind) subject() string {
	switch k {
	case long:
		return namespace.Segment(longTag)
	case short:
		return namespace.Segment(shortTag)
	case strict:
		return namespace.Segment(strictTag)
	}
	return namespace.Snowflake()
}

// The tags, and the patience of callers.
const (
	namespace = subjects.DefaultNamespace
	longTag   = "faults.long"
	shortTag  = "faults.short"
	strictTag = "faults.strict"
	rareTag   = "faults.rare" // used by some faults only: see askFor
	shortStep = 50

	// callerWaits is how long a caller waits: workers answer within 1.5 s.
	callerWaits = 2 * time.Second
)

// Outcomes of a request without IDs. An error code is an outcome, too.
const (
	timeout      = "timeout"       // no answer, though the caller's connection lived
	disconnected = "disconnected"  // no answer, and the caller's own connection was lost
	noResponders = "no-responders" // NATS knew of no worker
	slowly       = "slow"          // IDs after more than noticed; counted only for faults that must be unnoticed
)

// tick is the interval at which callers check for due work.
const tick = 5 * time.Millisecond

// noticed is how long callers wait before they notice.
const noticed = time.Second

// A load sends requests at a steady rate, whether or not answers come, and keeps
// the outcome of each. Its methods are safe for concurrent use.
type load struct {
	start      time.Time
	quit       time.Duration // when the last request was sent, since start
	links      []*link
	ledgers    [kinds]*ledger.Ledger
	asked      map[subjects.ID]bool // IDs that askFor got; only the trial's goroutine uses it
	askedTwice int64
	unnoticed  bool                  // slow answers count as failures
	early      [kinds]*ledger.Ledger // IDs issued before a fault settled
	settled    atomic.Int64          // when it settled, a time.Duration since start; 0 if early is unused
	ids        atomic.Int64
	rising     order // judges the strict tag
	days       days

	mu       sync.Mutex
	seq      uint64
	pending  map[uint64]request
	begun    map[uint64]begun // requests without an answer, expired or not
	order    []uint64         // of pending, the oldest first; answered ones stay until they are due
	sent     [kinds]int64
	failures []failure
	refused  []span // requests for the strict tag that ended with 503, until then
	lastOK   [kinds]time.Time
	gaps     [kinds]time.Duration
	stalled  time.Duration              // the longest that this process stood still
	alarms   map[string]wire.AlarmEvent // each event once
	fault    error                      // of the load itself: its figures are void
}

// A request is a request that waits for its answer.
type request struct {
	kind  kind
	n     int
	at    time.Time
	until time.Time // deadline of its caller
	link  *link
	epoch int64 // of the link
}

// A failure is a request without IDs.
type failure struct {
	kind    kind
	outcome string
	at      time.Duration // when it was sent, since the start of the load
}

func (f failure) String() string { return fmt.Sprintf("%v %s", f.kind, f.outcome) }

// newLoad connects to each of the servers.
func newLoad(dir string, urls []string) (*load, error) {
	l := &load{
		pending: make(map[uint64]request), begun: make(map[uint64]begun),
		asked: make(map[subjects.ID]bool), alarms: make(map[string]wire.AlarmEvent),
	}
	for k := range l.ledgers {
		l.ledgers[k], l.early[k] = ledger.New(dir), ledger.New(dir)
	}
	for i := range urls {
		if err := l.connect(strings.Join(nearest(urls, i), ",")); err != nil {
			l.disconnect()
			return nil, err
		}
	}
	return l, nil
}

// nearest returns the servers for the i-th caller: when its own is down, each caller goes to another one.
func nearest(urls []string, i int) []string {
	return slices.Concat(urls[i:i+1], urls[:i], urls[i+1:])
}

func (l *load) disconnect() {
	for _, k := range l.links {
		k.nc.Close()
	}
}

// run sends rate requests per second until ctx ends, then waits for the last
// answers.
func (l *load) run(ctx context.Context, rate, batch int) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var sent int64
	last := time.Now()
	for ctx.Err() == nil || l.waiting() {
		<-ticks.C
		now := time.Now()
		if stalled := now.Sub(last); stalled > 20*tick {
			l.extend(stalled)
		}
		last = now
		for due := int64(now.Sub(l.start).Seconds() * float64(rate)); ctx.Err() == nil && sent < due; sent++ {
			l.send(sent, batch)
		}
		l.expire(now)
		if ctx.Err() == nil {
			l.quit = now.Sub(l.start)
		}
	}
	l.finish()
}

func (l *load) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = time.Now()
	for k := range l.lastOK {
		l.lastOK[k] = l.start
	}
}

func (l *load) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) > 0
}

// mix is the kinds of ten requests in a row: three snowflakes and three times the long tag, one of each in a batch,
// and twice the short and the strict tag.
var mix = [10]struct {
	kind  kind
	batch bool
}{
	{snowflake, false}, {long, false}, {short, false}, {snowflake, true}, {strict, false},
	{snowflake, false}, {long, true}, {short, false}, {strict, false}, {long, false},
}

// send sends the i-th request, by the next connection that is up.
func (l *load) send(i int64, batch int) {
	for try := range len(l.links) {
		k := l.links[(int(i)+try)%len(l.links)]
		if k.leaving.Load() || !k.nc.IsConnected() {
			continue
		}
		what, n, body := mix[i%10].kind, 1, []byte(nil)
		if mix[i%10].batch {
			n, body = batch, strconv.AppendInt(nil, int64(batch), 10)
		}
		seq := l.register(request{kind: what, n: n, link: k, epoch: k.epoch.Load()})
		reply := fmt.Sprintf("%s.%d.%d", k.inbox, what, seq)
		if err := k.nc.PublishRequest(what.subject(), reply, body); err != nil {
			l.unregister(seq) // the connection was lost at this moment: nothing was sent
		}
		return
	}
}

func (l *load) register(r request) (seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	r.at = time.Now()
	r.until = r.at.Add(callerWaits)
	l.pending[l.seq] = r
	l.order = append(l.order, l.seq)
	l.sent[r.kind]++
	l.begun[l.seq] = l.rising.begin(l.now())
	return l.seq
}

func (l *load) unregister(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[l.pending[seq].kind]--
	delete(l.pending, seq)
	delete(l.begun, seq)
}

// answered records an answer. An answer after the deadline may still hold IDs, which may not repeat either.
func (l *load) answered(m *nats.Msg) {
	tokens := strings.Split(m.Subject, ".")
	what, err1 := strconv.Atoi(tokens[len(tokens)-2])
	seq, err2 := strconv.ParseUint(tokens[len(tokens)-1], 10, 64)
	if err1 != nil || err2 != nil {
		l.invalidate(fmt.Errorf("an answer on %s", m.Subject))
		return
	}
	l.mu.Lock()
	r, waits := l.pending[seq]
	delete(l.pending, seq)
	if !waits {
		r.kind = kind(what)
	}
	began := l.begun[seq]
	delete(l.begun, seq)
	l.mu.Unlock()
	outcome := refusal(m)
	switch {
	case outcome == "":
		l.record(m.Data, r, waits, began)
	case waits:
		l.fail(r, outcome)
	}
}

// refusal returns why an answer holds no IDs, "" if it does.
func refusal(m *nats.Msg) string {
	if m.Header.Get("Status") == "503" {
		return noResponders
	}
	return m.Header.Get(subjects.HeaderErrorCode)
}

// record records the IDs of an answer.
func (l *load) record(body []byte, r request, waits bool, began begun) {
	n, err := l.add(body, r.kind, began)
	if err == nil && waits && n != int64(r.n) {
		err = fmt.Errorf("%d IDs where %d were requested", n, r.n)
	}
	if errors.Is(err, ledger.ErrClosed) {
		return // the violation is reported already
	}
	if err != nil {
		l.invalidate(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits {
		now := time.Now()
		l.gaps[r.kind] = max(l.gaps[r.kind], now.Sub(l.lastOK[r.kind]))
		l.lastOK[r.kind] = now
		if l.unnoticed && now.Sub(r.at) > noticed {
			l.failures = append(l.failures, failure{r.kind, slowly, r.at.Sub(l.start)})
		}
	}
}

// add adds the IDs of an answer to the ledger of a kind, and returns their number.
func (l *load) add(body []byte, k kind, began begun) (n int64, err error) {
	runs, err := subjects.ParseRuns(body)
	if err != nil {
		return 0, err
	}
	for _, run := range runs {
		first, last := int64(run.First), int64(run.Last)
		if err := l.keep(k, first, last); err != nil {
			return n, err
		}
		if k == strict {
			l.inOrder(began, first, last)
		}
		l.days.saw(k, l.start.Add(began.at), time.Now(), first)
		n += run.Len()
	}
	return n, nil
}

// keep records IDs that were issued, from first to last.
func (l *load) keep(k kind, first, last int64) error {
	if err := l.ledgers[k].Add(first, last); err != nil {
		return err
	}
	if int64(l.now()) < l.settled.Load() {
		_ = l.early[k].Add(first, last) // errors show in the other ledger
	}
	l.ids.Add(last - first + 1)
	return nil
}

func (l *load) fail(r request, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, failure{r.kind, outcome, r.at.Sub(l.start)})
	if r.kind == strict && outcome == "503" {
		l.refused = append(l.refused, span{r.at.Sub(l.start), l.now()})
	}
}

// invalidate records that an answer was not natsid's, or that the load itself does not work. It keeps the first error,
// but none about slowness if there is another.
func (l *load) invalidate(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == nil || errors.Is(l.fault, nats.ErrSlowConsumer) {
		l.fault = err
	}
}

// err returns why the figures of the load are void, nil if they are not.
func (l *load) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// failed returns the requests without IDs.
func (l *load) failed() []failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

// refusals returns the spans of requests for the strict tag that were refused with 503, from sending to answer.
func (l *load) refusals() []span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.refused)
}

// stoodStill records that this process, or its own connections, stood still.
func (l *load) stoodStill(stalled time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = max(l.stalled, stalled)
}

// extend extends all deadlines: this process stood still, and answers may have arrived unread.
func (l *load) extend(stalled time.Duration) {
	l.stoodStill(stalled)
	l.mu.Lock()
	defer l.mu.Unlock()
	for seq, r := range l.pending {
		r.until = r.until.Add(stalled)
		l.pending[seq] = r
	}
}

// expire ends the requests whose deadline has passed. They are due in order, except those whose deadline was
// extended, which only delays the others.
func (l *load) expire(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.order) > 0 {
		seq := l.order[0]
		r, waits := l.pending[seq]
		if waits && now.Before(r.until) {
			return
		}
		l.order = l.order[1:]
		if !waits {
			continue
		}
		delete(l.pending, seq)
		outcome := timeout
		if r.link.epoch.Load() != r.epoch {
			outcome = disconnected
		}
		l.failures = append(l.failures, failure{r.kind, outcome, r.at.Sub(l.start)})
	}
}

// finish also counts the time since the last answer as a gap.
func (l *load) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := time.Now().Add(-callerWaits)
	for k, last := range l.lastOK {
		l.gaps[k] = max(l.gaps[k], end.Sub(last))
	}
}

func (l *load) alarmed(m *nats.Msg) {
	var e wire.AlarmEvent
	if err := json.Unmarshal(m.Data, &e); err != nil {
		l.invalidate(fmt.Errorf("an alarm on %s: %w", m.Subject, err))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarms[fmt.Sprint(e.Kind, e.Instance, e.Time.UnixNano())] = e
}

// now returns the time since the load began.
func (l *load) now() time.Duration { return time.Since(l.start) }
