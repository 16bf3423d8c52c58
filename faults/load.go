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
	"github.com/natsid/natsid/subjects"
)

// A kind is what is asked for. Each is judged by itself.
type kind int

const (
	snowflake kind = iota
	long           // a tag whose ranges outlast every fault
	short          // a tag whose ranges last a second or two: it needs its store all the time
	kinds
)

func (k kind) String() string { return [...]string{"snowflake", "long", "short"}[k] }

// The tags, and how patient callers are.
const (
	namespace = subjects.DefaultNamespace
	longTag   = "faults.long"
	shortTag  = "faults.short"
	shortStep = 50

	// callerWaits is how long a caller waits: workers answer within 1.5 s.
	callerWaits = 2 * time.Second
)

// What can become of a request but its IDs. An error code stands for itself.
const (
	silent = "silent" // no answer, though the caller's connection lived
	cutOff = "cut"    // no answer, and the caller's own connection was lost meanwhile
	nobody = "nobody" // NATS knew of no worker
)

// A load asks for IDs at a steady rate, whether or not answers come, and keeps
// what became of every request. All its methods are safe for concurrent use.
type load struct {
	start   time.Time
	quit    time.Duration // when the last was asked, since start
	links   []*link
	ledgers [kinds]*ledger.Ledger

	mu       sync.Mutex
	seq      uint64
	pending  map[uint64]request
	order    []uint64 // of pending, the oldest first; answered ones stay until they are due
	asked    [kinds]int64
	ids      int64
	failures []failure
	lastOK   [kinds]time.Time
	gaps     [kinds]time.Duration
	stood    time.Duration                  // the longest that this process itself stood still
	alarms   map[string]subjects.AlarmEvent // each event once
	fault    error                          // of the load itself: its figures are void
}

// A request is one that waits for its answer.
type request struct {
	kind  kind
	n     int
	at    time.Time
	until time.Time // how long its caller waits
	link  *link
	epoch int64 // of the link
}

// A failure is a request without IDs.
type failure struct {
	kind kind
	what string
	at   time.Duration // when it was asked, since the start of the load
}

// A link is a connection of callers to one nats-server.
type link struct {
	nc    *nats.Conn
	inbox string       // its answers come to inbox.<kind>.<sequence number>
	epoch atomic.Int64 // how often it was lost
	quits atomic.Bool  // its server is about to stop
}

// newLoad connects to each of the servers.
func newLoad(dir string, urls []string) (*load, error) {
	l := &load{pending: make(map[uint64]request), alarms: make(map[string]subjects.AlarmEvent)}
	for k := range l.ledgers {
		l.ledgers[k] = ledger.New(dir)
	}
	for i, url := range urls {
		// Callers on a server that is down go to another, each to one of its own.
		pool := slices.Concat([]string{url}, urls[:i], urls[i+1:])
		if err := l.connect(strings.Join(pool, ",")); err != nil {
			l.disconnect()
			return nil, err
		}
	}
	return l, nil
}

func (l *load) connect(urls string) error {
	k := &link{inbox: nats.NewInbox()}
	nc, err := nats.Connect(urls, nats.Name("faults"), nats.DontRandomize(),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				l.broken(err) // answers were dropped here, and their IDs with them
			}
		}), // what all else costs is counted
		nats.DisconnectErrHandler(func(*nats.Conn, error) { k.epoch.Add(1) }),
		nats.ReconnectHandler(func(*nats.Conn) { k.quits.Store(false) }),
		nats.LameDuckModeHandler(func(*nats.Conn) { go l.moveOn(k) }))
	if err != nil {
		return err
	}
	k.nc = nc
	l.links = append(l.links, k)
	if _, err := nc.Subscribe(k.inbox+".*.*", l.answered); err != nil {
		return err
	}
	_, err = nc.Subscribe(string(namespace)+".alarm.*", l.alarmed)
	return err
}

// moveOn does what a caller does whose server is about to stop: asks no more
// there, waits for what it asked, and goes to another.
func (l *load) moveOn(k *link) {
	k.quits.Store(true)
	epoch := k.epoch.Load()
	for late := time.Now().Add(callerWaits); l.waitsOn(k) && time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond)
	}
	if k.epoch.Load() == epoch { // else the server has sent it away by now
		_ = k.nc.ForceReconnect() // fails only on a connection that is closed
	}
}

func (l *load) waitsOn(k *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.pending {
		if r.link == k {
			return true
		}
	}
	return false
}

func (l *load) disconnect() {
	for _, k := range l.links {
		k.nc.Close()
	}
}

// run asks rate times a second until ctx ends, then waits for the last answers.
func (l *load) run(ctx context.Context, rate, batch int) {
	const tick = 5 * time.Millisecond
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var sent int64
	last := time.Now()
	for ctx.Err() == nil || l.waiting() {
		<-ticks.C
		now := time.Now()
		if stood := now.Sub(last); stood > 20*tick {
			l.forgive(stood)
		}
		last = now
		for due := int64(now.Sub(l.start).Seconds() * float64(rate)); ctx.Err() == nil && sent < due; sent++ {
			l.ask(sent, batch)
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

// mix is what ten requests in a row ask for: four snowflakes and four times
// the long tag, one of each in a batch, and twice the short tag.
var mix = [10]struct {
	kind  kind
	batch bool
}{{snowflake, false}, {long, false}, {short, false}, {snowflake, true}, {long, false}, {snowflake, false}, {long, true}, {short, false}, {snowflake, false}, {long, false}}

// ask sends the i-th request, by the next connection that is up.
func (l *load) ask(i int64, batch int) {
	for try := range len(l.links) {
		k := l.links[(int(i)+try)%len(l.links)]
		if k.quits.Load() || !k.nc.IsConnected() {
			continue
		}
		what, n, body := mix[i%10].kind, 1, []byte(nil)
		if mix[i%10].batch {
			n, body = batch, strconv.AppendInt(nil, int64(batch), 10)
		}
		seq := l.note(request{kind: what, n: n, link: k, epoch: k.epoch.Load()})
		reply := fmt.Sprintf("%s.%d.%d", k.inbox, what, seq)
		if err := k.nc.PublishRequest(subjectOf(what), reply, body); err != nil {
			l.unsent(seq) // the connection was lost this moment: it has not been asked
		}
		return
	}
}

func subjectOf(k kind) string {
	switch k {
	case long:
		return namespace.Segment(longTag)
	case short:
		return namespace.Segment(shortTag)
	}
	return namespace.Snowflake()
}

func (l *load) note(r request) (seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	r.at = time.Now()
	r.until = r.at.Add(callerWaits)
	l.pending[l.seq] = r
	l.order = append(l.order, l.seq)
	l.asked[r.kind]++
	return l.seq
}

func (l *load) unsent(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[l.pending[seq].kind]--
	delete(l.pending, seq)
}

// answered books an answer. One that comes after its caller has given up may
// hold IDs all the same, and they must not come twice either.
func (l *load) answered(m *nats.Msg) {
	tokens := strings.Split(m.Subject, ".")
	what, err1 := strconv.Atoi(tokens[len(tokens)-2])
	seq, err2 := strconv.ParseUint(tokens[len(tokens)-1], 10, 64)
	if err1 != nil || err2 != nil {
		l.broken(fmt.Errorf("an answer on %s", m.Subject))
		return
	}
	l.mu.Lock()
	r, waits := l.pending[seq]
	delete(l.pending, seq)
	if !waits {
		r.kind = kind(what)
	}
	l.mu.Unlock()
	if code := refusal(m); code != "" {
		if waits {
			l.fail(r, code)
		}
		return
	}
	l.keep(m.Data, r, waits)
}

// refusal returns why an answer holds no IDs, "" if it does.
func refusal(m *nats.Msg) string {
	if m.Header.Get("Status") == "503" {
		return nobody
	}
	return m.Header.Get(subjects.HeaderErrorCode)
}

// keep books the IDs of an answer.
func (l *load) keep(body []byte, r request, waits bool) {
	runs, err := subjects.ParseRuns(body)
	var n int64
	for _, run := range runs {
		n += run.Len()
		if err == nil {
			err = l.ledgers[r.kind].Add(run.First, run.Last)
		}
	}
	if err == nil && waits && n != int64(r.n) {
		err = fmt.Errorf("%d IDs where %d were asked", n, r.n)
	}
	if errors.Is(err, ledger.ErrClosed) {
		return // the report is made
	}
	if err != nil {
		l.broken(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids += n
	if waits {
		now := time.Now()
		l.gaps[r.kind] = max(l.gaps[r.kind], now.Sub(l.lastOK[r.kind]))
		l.lastOK[r.kind] = now
	}
}

func (l *load) fail(r request, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, failure{r.kind, what, r.at.Sub(l.start)})
}

// broken notes that something answered that is not natsid, or that the load
// itself does not work.
func (l *load) broken(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == nil {
		l.fault = err
	}
}

// err returns what the load was broken by, nil if it was not.
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

// forgive gives all callers more time: this process stood still for so long,
// and the answers may be there unread.
func (l *load) forgive(stood time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stood = max(l.stood, stood)
	for seq, r := range l.pending {
		r.until = r.until.Add(stood)
		l.pending[seq] = r
	}
}

// expire makes callers give up whose time has come. They come in order but for
// those that were forgiven, which only delays the others.
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
		what := silent
		if r.link.epoch.Load() != r.epoch {
			what = cutOff
		}
		l.failures = append(l.failures, failure{r.kind, what, r.at.Sub(l.start)})
	}
}

// finish counts the time since the last answer as a gap, too.
func (l *load) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := time.Now().Add(-callerWaits)
	for k, last := range l.lastOK {
		l.gaps[k] = max(l.gaps[k], end.Sub(last))
	}
}

func (l *load) alarmed(m *nats.Msg) {
	var e subjects.AlarmEvent
	if err := json.Unmarshal(m.Data, &e); err != nil {
		l.broken(fmt.Errorf("an alarm on %s: %w", m.Subject, err))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarms[fmt.Sprint(e.Kind, e.Instance, e.Time.UnixNano())] = e
}

// now returns the time since the load began.
func (l *load) now() time.Duration { return time.Since(l.start) }
