package client

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A source is the target of a handle's requests, with its measurements and limits. It is safe for concurrent use.
type source struct {
	client  *Client
	subject string
	most    int64        // how many calls share a request
	limit   atomic.Int64 // a worker's limit, if lower
	counts  counts

	mu     sync.Mutex
	usual  time.Duration // smoothed response time; 0 before the first answer
	spread time.Duration // smoothed deviation from it
	hold   time.Time     // no request is sent before it: a worker demanded so
	spare  spare
	// trouble is the reason why the latest copy got no IDs; nil if it got some, or before the first answer.
	trouble error
}

// learn takes in a response time. The weights are those of TCP's smoothed round trip (RFC 6298).
func (s *source) learn(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usual == 0 {
		s.usual, s.spread = took, took/2
		return
	}
	s.spread += (max(took-s.usual, s.usual-took) - s.spread) / 4
	s.usual += (took - s.usual) / 8
}

// Bounds of the response time after which another worker is asked: within them it is [RFC 6298]'s time-out, a
// smoothed time and four deviations.
const (
	hedgeSoonest = 100 * time.Millisecond
	hedgeLatest  = 500 * time.Millisecond
	// hedgeAgain bounds the wait before a further copy, unless answers take longer: for seconds after a server hangs,
	// other servers route half of the copies to it.
	hedgeAgain = 250 * time.Millisecond
)

// patience returns the response time after which another worker is asked.
func (s *source) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(s.usual+4*s.spread, hedgeSoonest), hedgeLatest)
}

// slowAfter returns how long the calls of a batch wait for the answer alone.
func (s *source) slowAfter() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(4*s.usual, slowSoonest), slowAfter)
}

// Bounds of the gap between two batches, unless the answer to the first comes earlier: within them the gap is a
// quarter of the usual time, so that four batches under way, [mostUnderWay], cover that time, and a call waits for a
// quarter of it at most.
const (
	gapLeast = time.Millisecond
	gapMost  = 100 * time.Millisecond
)

func (s *source) gap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(s.usual/mostUnderWay, gapLeast), gapMost)
}

// earn counts a request that is not a copy.
func (s *source) earn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare.earn(time.Now())
}

// spend reports whether one more copy of a request may be sent, and counts it.
func (s *source) spend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spare.spend(time.Now())
}

// refund takes back the count of a copy that reached no worker.
func (s *source) refund() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare.used = max(0, s.spare.used-1)
}

// held returns for how long no request may be sent.
func (s *source) held() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold.IsZero() {
		return 0
	}
	return max(0, time.Until(s.hold))
}

// holdMost bounds how long a reply can stop a handle's requests.
const holdMost = 30 * time.Second

// holdFor stops the handle's requests for d.
func (s *source) holdFor(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(min(d, holdMost)); until.After(s.hold) {
		s.hold = until
	}
}

// A spare bounds the copies of requests to a tenth of the requests, so that an overloaded service does not get twice
// the load. Requests of the last minute or so count, too: while one of three workers hangs, half as many copies as
// requests are needed for the 6 s until NATS notices that. At least four copies a second, and 200 at once, are
// allowed, since a handle that is new or seldom used must be able to retry.
type spare struct {
	used   float64
	recent float64 // requests, decaying with recentFor
	at     time.Time
}

const (
	sparePerRequest = 0.1
	sparePerSecond  = 4
	spareLeast      = 200
	// recentFor is the time in which the weight of a request falls by a factor of e.
	recentFor = time.Minute
)

// pass applies the time that has passed.
func (s *spare) pass(now time.Time) {
	passed := now.Sub(s.at).Seconds()
	s.used = max(0, s.used-passed*sparePerSecond)
	s.recent *= math.Exp(-passed / recentFor.Seconds())
	s.at = now
}

func (s *spare) earn(now time.Time) {
	s.pass(now)
	s.used = max(0, s.used-sparePerRequest)
	s.recent++
}

func (s *spare) spend(now time.Time) bool {
	s.pass(now)
	if s.used+1 > spareLeast+s.recent*sparePerRequest {
		return false
	}
	s.used++
	return true
}

// gaveUp returns the error of a call whose context has ended without an answer.
func (s *source) gaveUp(err error) error {
	s.mu.Lock()
	trouble := s.trouble
	s.mu.Unlock()
	if trouble == nil {
		return fmt.Errorf("client: no answer on %s yet; ask again: %w", s.subject, err)
	}
	return fmt.Errorf("client: no ID from %s in time: %w: %w", s.subject, err, trouble)
}

// note records why the latest copy got no IDs; nil if it got some.
func (s *source) note(trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = trouble
}
