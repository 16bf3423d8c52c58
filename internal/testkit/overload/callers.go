package overload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// An outcome is how a request ended: an error code as on the wire, or one of the constants below.
type outcome int16

const (
	open         outcome = iota // no answer yet
	issued                      // an ID
	noResponders                // the server knew of no worker
)

// A request is one ID asked for.
type request struct {
	sent, took time.Duration // since the callers began; until the answer
	outcome
}

// callers send requests and record what becomes of each. Their methods are safe for concurrent use.
type callers struct {
	trial Trial
	began time.Time
	conns []*wire

	reading sync.WaitGroup

	mu       sync.Mutex
	requests []request
	waiting  int           // requests that are open
	last     time.Duration // when the last answer came
	lag      time.Duration // the longest that a message to the callers themselves took
	places   chan struct{} // while the capacity is measured: a request takes one
	fault    error         // of the callers themselves, or an answer that is not natsid's
}

// conns is how many connections the callers share, so that the server reads and writes
// several at a time, as it does for many callers.
const conns = 4

// lagToken begins the last token of messages that callers send to themselves.
const lagToken = "lag"

func connect(t Trial) (*callers, error) {
	c := &callers{trial: t, began: time.Now()}
	for i := range conns {
		w, err := dial(t.URLs[i%len(t.URLs)], nats.NewInbox())
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, w)
		c.reading.Go(func() {
			if err := w.read(c.take); !errors.Is(err, net.ErrClosed) {
				c.fail(fmt.Errorf("a connection of the callers: %w", err))
			}
		})
	}
	return c, nil
}

func (c *callers) close() {
	for _, w := range c.conns {
		w.Close()
	}
	c.reading.Wait()
}

func (c *callers) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == nil {
		c.fault = err
	}
}

func (c *callers) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// send sends n requests.
func (c *callers) send(n int) {
	c.mu.Lock()
	number, now := len(c.requests), time.Since(c.began)
	for range n {
		c.requests = append(c.requests, request{sent: now})
	}
	c.waiting += n
	c.mu.Unlock()
	w := c.conns[number%conns]
	for i := range n {
		w.publish(c.trial.Subject, number+i)
	}
	if err := w.flush(); err != nil {
		c.fail(err)
	}
}

// take records an answer: the outcome of its request, or how long a message of the callers to themselves took.
func (c *callers) take(a answer) {
	now := time.Since(c.began)
	if text, ok := bytes.CutPrefix(a.token, []byte(lagToken)); ok {
		sent, _ := strconv.ParseInt(string(text), 10, 64)
		c.mu.Lock()
		c.lag = max(c.lag, now-time.Duration(sent))
		c.mu.Unlock()
		return
	}
	number, err := strconv.Atoi(string(a.token))
	if err != nil {
		c.fail(err)
		return
	}
	what := c.judge(a)
	c.mu.Lock()
	r := &c.requests[number]
	if r.outcome == open {
		r.outcome, r.took = what, now-r.sent
		c.waiting--
	}
	c.last = now
	places := c.places
	c.mu.Unlock()
	switch {
	case places == nil:
	case what == issued:
		places <- struct{}{}
	default: // whoever measures a capacity does not hammer
		time.AfterFunc(pause, func() { places <- struct{}{} })
	}
}

// pause is how long a place stays empty after a refusal while the capacity is measured.
const pause = 10 * time.Millisecond

// judge returns what an answer is, and records its ID.
func (c *callers) judge(a answer) outcome {
	switch {
	case bytes.HasPrefix(a.header, []byte("NATS/1.0 503")):
		return noResponders
	case len(a.header) > 0:
		header, err := nats.DecodeHeadersMsg(a.header)
		code := 0
		if err == nil {
			code, err = strconv.Atoi(header.Get(subjects.HeaderErrorCode))
		}
		if err != nil {
			c.fail(err)
		}
		return outcome(code)
	}
	runs, err := subjects.ParseRuns(a.body)
	for _, run := range runs {
		if err == nil {
			err = c.trial.Ledger.Add(int64(run.First), int64(run.Last))
		}
	}
	if err != nil {
		c.fail(err)
	}
	return issued
}

// capacity returns how many IDs per second are issued while outstanding requests are always under way. It waits for the
// time after, and then measures for the time lasts.
func (c *callers) capacity(ctx context.Context, outstanding int, after, lasts time.Duration) (float64, error) {
	places := make(chan struct{}, outstanding)
	for range outstanding {
		places <- struct{}{}
	}
	c.mu.Lock()
	c.places = places
	c.mu.Unlock()
	end := time.After(after + lasts)
	for ended := false; !ended; {
		select {
		case <-places:
			n := 1
			for n < outstanding/conns && len(places) > 0 {
				<-places
				n++
			}
			c.send(n)
		case <-end:
			ended = true
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	c.wait(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places = nil
	ids := 0
	for _, r := range c.requests {
		if at := r.sent + r.took - c.requests[0].sent; r.outcome == issued && after <= at && at < after+lasts {
			ids++
		}
	}
	return float64(ids) / lasts.Seconds(), c.fault
}

// offer sends perSecond requests per second. Requests that are due while this process stands still are left out, not
// sent later in a burst.
func (c *callers) offer(ctx context.Context, perSecond float64, length time.Duration) {
	const tick, most = time.Millisecond, 20 * time.Millisecond
	c.mu.Lock()
	c.requests = slices.Grow(c.requests, int(perSecond*length.Seconds())) // growing takes a while
	c.mu.Unlock()
	began, sent, skipped := time.Now(), 0, time.Duration(0)
	last := began
	for ctx.Err() == nil {
		time.Sleep(tick)
		now := time.Now()
		if now.Sub(began) > length {
			return
		}
		skipped += max(0, now.Sub(last)-most)
		last = now
		if due := int((now.Sub(began)-skipped).Seconds()*perSecond) - sent; due > 0 {
			c.send(due)
			sent += due
		}
	}
}

// watchLag sends a message to each connection's own inbox ten times per second, until ctx or the connection ends. The
// time until it arrives is the delay by callers and the server; workers have no part in it.
func (c *callers) watchLag(ctx context.Context) {
	for _, w := range c.conns {
		c.reading.Go(func() {
			for ctx.Err() == nil {
				now := int64(time.Since(c.began))
				w.publish(w.inbox+lagToken+strconv.FormatInt(now, 10), -1)
				if w.flush() != nil {
					return // who reads from the connection knows more
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// wait waits until every request is answered, or no answer has come for a while.
func (c *callers) wait(ctx context.Context) {
	for began := time.Since(c.began); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		c.mu.Lock()
		waiting, quiet := c.waiting, time.Since(c.began)-max(c.last, began)
		c.mu.Unlock()
		if waiting == 0 || quiet > silence {
			return
		}
	}
}
