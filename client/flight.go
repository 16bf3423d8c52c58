package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A flight is one request for IDs with its copies, the messages in which it is sent: the first, and further ones by
// the laws Hedging and Retries of docs/client-laws.md. The first answer counts; IDs of later answers are never used.
type flight struct {
	target *target
	n      int
	// header is the header of each copy; nil means none.
	header nats.Header
	// wanted reports whether a caller still waits.
	wanted func() bool
	done   func(answer) // not called before launch has returned

	mu     sync.Mutex
	began  time.Time
	timer  *time.Timer
	step   func()        // what the flight does when its timer fires
	copies int           // number of copies sent
	open   []trip        // copies without an answer
	pause  time.Duration // before the next copy, after a refusal; 0 before the first refusal
	ended  bool
}

// An answer is the outcome of a flight.
type answer struct {
	runs subjects.Runs
	err  error
	most int // the worker's limit of IDs if the request exceeded it, else 0
}

// A trip is one copy of a request, under way.
type trip struct {
	token      uint64
	sent       time.Time
	reconnects uint64 // how often the connection had reconnected before
	spent      bool   // [spare.spend] has counted this copy
}

const (
	// hedgedMost is the largest request, in IDs, that is sent again after a usual time without an answer: see
	// patience. A larger one is sent again only after lostAfter.
	hedgedMost = 10_000
	// lostAfter is the time after which the answer to a large request counts as lost: workers answer or refuse within
	// 1.5 s. From then on copies are sent as for small requests. A copy on a lost connection is replaced at once.
	lostAfter = 2 * time.Second
	// Pauses after refusals double from pauseFirst to pauseLongest; after the first refusal a copy is sent at once.
	pauseFirst   = 20 * time.Millisecond
	pauseLongest = 500 * time.Millisecond
)

func (f *flight) launch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = time.Now()
	f.target.spare.earn(time.Now())
	f.target.counts.requests.Add(1)
	f.timer = time.AfterFunc(time.Hour, f.tick)
	f.sendNow()
}

// after lets the timer call step after d. f.mu is held.
func (f *flight) after(d time.Duration, step func()) {
	f.step = step
	f.timer.Reset(d)
}

// send sends a copy of the request, and reports whether it is under way. The parameter spent says that the copy was
// counted in the budget of copies. f.mu is held.
func (f *flight) send(spent bool) bool {
	reply, token, err := f.target.client.inbox.expect(f.receive)
	if err != nil {
		f.failSoon(err)
		return false
	}
	c := f.target.client
	nc := c.nc
	msg := &nats.Msg{Subject: f.target.subject, Reply: reply, Header: f.header}
	if f.n != 1 { // an empty body requests one ID
		msg.Data = strconv.AppendInt(nil, int64(f.n), 10)
	}
	f.copies++
	f.open = append(f.open, trip{token, time.Now(), nc.Stats().Reconnects, spent})
	err = nc.PublishMsg(msg)
	switch {
	case err == nil:
		return true
	case isClosed(err):
		f.failSoon(fmt.Errorf("%w: %w", ErrClosed, err))
	default:
		f.drop(token)
		f.after(busyPause, f.askAgain)
		f.retry(fmt.Errorf("client: request on %s: %w", f.target.subject, err), 0)
	}
	return false
}

// failSoon ends the flight with an error, from the goroutine of the timer. f.mu is held.
func (f *flight) failSoon(err error) {
	f.after(0, func() { f.end(answer{err: err}) })
}

// drop forgets a copy. f.mu is held.
func (f *flight) drop(token uint64) {
	f.open = slices.DeleteFunc(f.open, func(t trip) bool { return t.token == token })
	f.target.client.inbox.forget(token)
}

// end ends the flight with an answer. f.mu is held, and released while done runs.
func (f *flight) end(a answer) {
	f.ended = true
	f.timer.Stop()
	for _, t := range f.open {
		f.target.client.inbox.forget(t.token)
	}
	if a.err == nil {
		f.target.counts.ids.Add(int64(f.n))
	} else {
		f.target.counts.failures.Add(1)
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	f.done(a)
}

func (f *flight) receive(token uint64, m *nats.Msg, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.open, func(t trip) bool { return t.token == token })
	if f.ended || i < 0 {
		return
	}
	t := f.open[i]
	f.open = slices.Delete(f.open, i, i+1)
	if err != nil {
		f.end(answer{err: err})
		return
	}
	if err := f.target.refusalIn(m); err != nil {
		if t.spent && errors.Is(err, ErrNotServed) {
			f.target.spare.refund()
		}
		f.refused(err)
		return
	}
	runs, err := parseRuns(m.Data, f.n)
	if err != nil {
		f.end(answer{err: f.target.client.notNatsid(f.target.subject, err)})
		return
	}
	f.target.learn(time.Since(t.sent))
	f.target.note(nil)
	f.end(answer{runs: runs})
}

// refusalIn returns why a message holds no IDs, or nil.
func (t *target) refusalIn(m *nats.Msg) error {
	if m.Header == nil {
		return nil
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return notServed(t.subject)
	}
	return refused(m)
}

// refused ends the flight after a refusal, or schedules a copy. f.mu is held.
func (f *flight) refused(err error) {
	var e subjects.Error // zero unless a worker sent the refusal
	if said, ok := errors.AsType[*subjects.Error](err); ok {
		e = *said
	}
	isStopped := errors.Is(err, ErrUnavailable) && e.RetryAfter > 0
	switch {
	case len(f.open) == 0 && (isStopped || errors.Is(err, ErrNotServed) && f.target.client.cfg.FailFast):
		f.end(answer{err: err})
	case errors.Is(err, ErrNotServed), errors.Is(err, ErrUnavailable):
		f.retry(err, 0)
	case errors.Is(err, ErrThrottled):
		f.target.holdFor(e.RetryAfter)
		f.retry(err, pauseFirst)
	default:
		f.end(answer{err: err, most: e.MaxBatch})
	}
}

// retry schedules a copy after a refusal. The copy is sent after the next pause, which is 0 for the first refusal, but
// not before the time least has passed. f.mu is held.
func (f *flight) retry(why error, least time.Duration) {
	f.target.note(why)
	if len(f.open) > 0 {
		return // another copy may be answered, or retried
	}
	pause := f.pause
	f.pause = min(max(2*pause, pauseFirst), pauseLongest)
	if pause > 0 {
		pause = pause/2 + rand.N(pause/2) // callers must not come back together
	}
	f.after(max(pause, least), f.sendNow)
}

func (f *flight) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if !f.wanted() {
		f.end(answer{err: errUnwanted})
		return
	}
	if err := f.target.client.inbox.check(); err != nil {
		f.end(answer{err: err})
		return
	}
	f.step()
}

// silence returns how long to wait for an answer before the next copy is sent. The wait doubles with each copy, up to
// 4 times the first wait or hedgeAgain, so that a flight does not use up the budget of copies while the service is out
// of reach for seconds. f.mu is held.
func (f *flight) silence() time.Duration {
	usual := f.target.patience()
	return max(usual, min(usual<<min(f.copies-1, 2), hedgeAgain))
}

// busyPause is the pause before the next attempt to send a copy when the connection is down, a worker has demanded a
// wait, the budget of copies is used up, or a large request may still be answered.
const busyPause = 50 * time.Millisecond

// askAgain sends a copy since no answer came, or tries later if no copy may be sent now.
func (f *flight) askAgain() {
	nc := f.target.client.nc
	if !nc.IsConnected() || f.target.held() > 0 {
		f.after(busyPause, f.askAgain)
		return
	}
	// Copies that were sent before a reconnect are lost.
	for _, t := range slices.Clone(f.open) {
		if t.reconnects != nc.Stats().Reconnects {
			f.drop(t.token)
			if t.spent {
				f.target.spare.refund()
			}
		}
	}
	if f.n > hedgedMost && len(f.open) > 0 && time.Since(f.began) < lostAfter {
		f.after(busyPause, f.askAgain)
		return
	}
	f.target.note(nil)
	if spent := len(f.open) > 0; !spent || f.target.spare.spend(time.Now()) {
		f.target.counts.hedges.Add(1)
		if f.send(spent) {
			f.after(f.silence(), f.askAgain)
		}
		return
	}
	f.after(busyPause, f.askAgain)
}

// sendNow sends the first copy, or one after a refusal.
func (f *flight) sendNow() {
	switch wait := f.target.held(); {
	case wait > 0:
		f.after(min(wait, pauseLongest), f.sendNow) // not longer: the request may become unwanted
	case f.copies > 0 && !f.target.spare.spend(time.Now()):
		f.after(busyPause, f.sendNow)
	default:
		if f.copies > 0 {
			f.target.counts.retries.Add(1)
		} else {
			f.target.note(nil)
		}
		if f.send(f.copies > 0) {
			f.after(f.silence(), f.askAgain)
		}
	}
}
