package client

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A target is the subject to which a handle sends requests, with measurements and limits. It is safe for concurrent
// use.
type target struct {
	client  *Client
	subject string
	most    int64        // most calls that share a request
	limit   atomic.Int64 // a worker's limit of IDs per request
	counts  counts
	spare   spare

	mu     sync.Mutex
	usual  time.Duration // smoothed response time; 0 before the first answer
	spread time.Duration // smoothed deviation from usual
	hold   time.Time     // no request is sent before this time, as a worker demanded
	// trouble is why the latest copy of a request got no IDs; nil if it got some, or has no answer yet.
	trouble error
}

func newTarget(c *Client, subject string, most int64) *target {
	t := &target{client: c, subject: subject, most: most}
	t.limit.Store(math.MaxInt64) // until a worker refuses more
	return t
}

// learn updates usual and spread with a response time. The weights are those of TCP's smoothed round trip (RFC 6298).
func (t *target) learn(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.usual == 0 {
		t.usual, t.spread = took, took/2
		return
	}
	t.spread += (max(took-t.usual, t.usual-took) - t.spread) / 4
	t.usual += (took - t.usual) / 8
}

// Bounds of the silence after which another worker is asked, by the law Hedging of docs/client-laws.md.
const (
	hedgeSoonest = 100 * time.Millisecond
	hedgeLatest  = 500 * time.Millisecond
	// hedgeAgain is the longest pause before a further copy, unless answers usually take longer. It is short since
	// after a server hangs, other servers still send half of the copies to that server for seconds.
	hedgeAgain = 250 * time.Millisecond
)

// patience returns the time without an answer after which another worker is asked.
func (t *target) patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(max(t.usual+4*t.spread, hedgeSoonest), hedgeLatest)
}

// Bounds of the gap between two batches, which are calls that share a request. Within them the gap is a quarter of the
// usual response time, so that [mostUnderWay] batches cover that time. An answer lets the next batch leave sooner.
const (
	gapLeast = time.Millisecond
	gapMost  = 100 * time.Millisecond
)

func (t *target) gap() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(max(t.usual/mostUnderWay, gapLeast), gapMost)
}

// A call does not watch its context at first, since watching costs a third of the throughput. These bounds limit how
// long, and so how late a call may notice that its context has ended.
const (
	slowSoonest = 20 * time.Millisecond
	slowLatest  = 100 * time.Millisecond
)

func (t *target) slowAfter() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(max(4*t.usual, slowSoonest), slowLatest)
}

// held returns for how long no request may be sent, since a worker has asked for a pause; 0 if one may.
func (t *target) held() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hold.IsZero() {
		return 0
	}
	return max(0, time.Until(t.hold))
}

// holdMost bounds the time for which a reply of a worker can stop a handle's requests.
const holdMost = 30 * time.Second

// holdFor stops the handle's requests for d.
func (t *target) holdFor(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until := time.Now().Add(min(d, holdMost)); until.After(t.hold) {
		t.hold = until
	}
}

// A spare is the budget of copies, requests that are sent again (docs/client-laws.md). It keeps copies from doubling
// the load of an overloaded service. The budget grows with the requests of about the last minute: while one of three
// workers hangs, half as many copies as requests are needed for the 6 s until NATS notices. spareLeast lets a new or
// rarely used handle retry. A spare is safe for concurrent use.
type spare struct {
	mu     sync.Mutex
	used   float64 // copies sent, minus what requests and time have earned
	recent float64 // requests, whose weights fall with time: see recentFor
	at     time.Time
}

const (
	sparePerRequest = 0.1 // copies that each request earns
	sparePerSecond  = 4   // copies that each second earns
	spareLeast      = 200 // copies that need no request
	// recentFor is the time in which the weight of a request falls by a factor of e.
	recentFor = time.Minute
)

// pass lowers used and recent for the time that has passed since the last call. s.mu is held.
func (s *spare) pass(now time.Time) {
	passed := now.Sub(s.at).Seconds()
	s.used = max(0, s.used-passed*sparePerSecond)
	s.recent *= math.Exp(-passed / recentFor.Seconds())
	s.at = now
}

// earn counts a request, which allows further copies.
func (s *spare) earn(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(now)
	s.used = max(0, s.used-sparePerRequest)
	s.recent++
}

// spend reports whether one more copy of a request may be sent, and counts it.
func (s *spare) spend(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(now)
	if s.used+1 > spareLeast+s.recent*sparePerRequest {
		return false
	}
	s.used++
	return true
}

// refund uncounts a copy that reached no worker.
func (s *spare) refund() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = max(0, s.used-1)
}

// ended returns the error of a call whose context had ended before the call began.
func ended(subject string, err error) error { return fmt.Errorf("client: %s: %w", subject, err) }

// gaveUp returns the error of a call whose context has ended without an answer.
func (t *target) gaveUp(err error) error {
	t.mu.Lock()
	trouble := t.trouble
	t.mu.Unlock()
	if !t.client.nc.IsConnected() {
		trouble = nats.ErrDisconnected
	}
	if trouble == nil {
		return fmt.Errorf("client: no answer on %s yet; ask again: %w", t.subject, err)
	}
	return fmt.Errorf("client: no ID from %s in time: %w: %w", t.subject, err, trouble)
}

// note records why the latest copy of a request got no IDs; nil if it got some, or has no answer yet.
func (t *target) note(trouble error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trouble = trouble
}
