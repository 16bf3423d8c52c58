// Package measure makes calls from many goroutines for a time, and reports how many succeeded, how long they took,
// and which errors the others returned.
package measure

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Load describes how calls are made.
type Load struct {
	// Callers is how many goroutines call. Each waits for the end of its call before it makes another.
	Callers int
	// Rate is how many calls fall due per second, of all callers together. A call is timed from when it was due, even
	// if no caller was free then: so the calls that a stalled service held up are counted against it. At 0 each
	// caller calls again at once; a call is timed from its beginning.
	Rate float64
	// Sample times one call in so many, for calls that take no longer than reading the clock. 0 times all calls, and
	// so does a Rate.
	Sample int
	// Limit is the most calls of a Run; 0 means any number.
	Limit int64
	// Name returns the name under which an error is counted.
	Name func(error) string
}

// afterError is how long a caller waits after a failed call, unless calls fall due at a rate: refusals are fast, and
// are not the subject of the measurement.
const afterError = 10 * time.Millisecond

// Run makes calls for length, until the limit is reached, or until ctx ends, and waits for calls under way. A call
// that fails after ctx has ended is not counted.
func (l *Load) Run(ctx context.Context, length time.Duration, call func(context.Context) error) *Figures {
	turn, end := context.WithTimeout(ctx, length)
	defer end()
	r := &run{Load: l, call: call, began: time.Now(), length: length, until: turn.Done()}
	defer context.AfterFunc(turn, func() { r.over.Store(true) })()
	all := make([]caller, l.Callers)
	var callers sync.WaitGroup
	for i := range all {
		all[i] = caller{run: r, number: i}
		callers.Go(func() { all[i].loop(ctx) })
	}
	callers.Wait()
	f := &Figures{Took: time.Since(r.began)}
	f.latency = *r.latency.sum()
	for i := range all {
		f.Made += all[i].made
		f.Calls += all[i].succeeded
		f.addErrors(all[i].errors)
	}
	if ctx.Err() == nil && (l.Limit == 0 || f.Made < l.Limit) {
		f.NotMade = max(0, l.Due(length)-f.Made)
	}
	return f
}

// Due returns how many calls fall due within length.
func (l *Load) Due(length time.Duration) int64 {
	n := int64(math.Ceil(l.Rate * length.Seconds()))
	for n > 0 && l.due(n-1) >= length { // floating-point numbers are rounded
		n--
	}
	return n
}

// due returns the time after the start at which call n falls due, counted from 0.
func (l *Load) due(n int64) time.Duration { return time.Duration(min(float64(n)/l.Rate*1e9, 1<<62)) }

// A run is one Run.
type run struct {
	*Load
	call    func(context.Context) error
	began   time.Time
	length  time.Duration
	until   <-chan struct{}
	over    atomic.Bool
	next    atomic.Int64 // the call that falls due next, with a Rate
	taken   atomic.Int64 // calls of the limit
	latency shards
}

// A caller is one goroutine of a run.
type caller struct {
	*run
	number          int
	allowed         int64 // calls taken of the limit, and not made yet
	made, succeeded int64
	errors          map[string]*Failure
	_               [64]byte // keeps callers on separate cache lines
}

func (c *caller) loop(ctx context.Context) {
	for n := 0; (n == 0 || !c.over.Load()) && c.take(); n++ { // even in a short run each caller makes a call
		from, ok := c.begin(n)
		if !ok {
			return
		}
		c.made++
		if err := c.call(ctx); err != nil {
			if !c.failed(ctx, err) {
				return
			}
			continue
		}
		c.succeeded++
		if !from.IsZero() {
			c.latency.note(c.number, time.Since(from))
		}
	}
}

// begin waits until the caller's call n may be made, and returns the time from which it is timed, zero if it is not
// timed. It returns false if the run ends before.
func (c *caller) begin(n int) (time.Time, bool) {
	switch {
	case c.Rate > 0:
		return c.awaitDue()
	case c.Sample < 2 || n%c.Sample == 0:
		return time.Now(), true
	}
	return time.Time{}, true
}

// take takes a call of the limit, and reports whether one was left.
func (c *caller) take() bool {
	if c.Limit == 0 {
		return true
	}
	if c.allowed == 0 {
		// Callers take several at a time, since all of them contend for this word.
		want := min(1000, max(1, (c.Limit-c.taken.Load())/int64(8*c.Callers)))
		c.allowed = min(want, c.Limit-(c.taken.Add(want)-want))
	}
	c.allowed--
	return c.allowed >= 0
}

// awaitDue waits until the next call is due, and returns that time. It returns false if the run ends before.
func (c *caller) awaitDue() (time.Time, bool) {
	after := c.due(c.next.Add(1) - 1)
	if after >= c.length {
		<-c.until
		return time.Time{}, false
	}
	due := c.began.Add(after)
	if d := time.Until(due); d > 0 {
		return due, c.wait(d)
	}
	return due, true
}

// failed counts an error, and reports whether the caller continues.
func (c *caller) failed(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if c.errors == nil {
		c.errors = make(map[string]*Failure)
	}
	name := c.Name(err)
	if c.errors[name] == nil {
		c.errors[name] = &Failure{First: err}
	}
	c.errors[name].Count++
	return c.Rate > 0 || c.wait(afterError)
}

// wait waits for d, and returns false if the run ends before.
func (c *caller) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return !c.over.Load()
	case <-c.until:
		return false
	}
}
