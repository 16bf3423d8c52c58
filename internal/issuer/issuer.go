// Package issuer queues requests for snowflakes that must wait until the clock advances: where a burst, or a clock that
// was set back by a few ms, can delay a request but must not refuse it.
package issuer

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/snowflake"
)

var (
	// ErrWait is returned by [Issuer.Next] when the request must wait for the clock, but can be served within the
	// deadline: call [Issuer.Park].
	ErrWait = errors.New("issuer: the clock must advance first")
	// ErrTooMany is returned by [Issuer.Park] when too many requests are parked: as many as the issuer allows, or
	// more than it can serve in time.
	ErrTooMany = errors.New("issuer: too many requests wait for the clock")
	// ErrExpired is the answer to a parked request whose turn came after the deadline.
	ErrExpired = errors.New("issuer: the request has waited for too long")
)

// An Issuer issues the IDs of the generator in use, and parks (queues) the requests that must wait for the clock.
// Parked requests are answered in order of arrival and within the deadline. A refused request uses up no IDs.
//
// All methods are safe for concurrent use.
type Issuer struct {
	now      func() int64 // wall clock, Unix ms; deadlines are monotonic time
	deadline time.Duration
	limit    int
	current  atomic.Pointer[snowflake.Generator]
	waiting  atomic.Int32 // len(parked), readable without mu

	mu     sync.Mutex
	parked []parked // in order of arrival, and so of expiry
	ids    int64    // sum of the IDs that parked requests wait for
	issued int64    // IDs ever issued to parked requests
	pace   float64  // IDs/s while the last answered request waited; 0 if it waited less than short
	timer  *time.Timer
}

type parked struct {
	n      int
	came   time.Time
	issued int64 // Issuer.issued when the request was parked
	done   func(snowflake.Runs, error)
}

// patience returns how long a request may wait for the clock. The rest of the deadline is a reserve for a process that
// gets little CPU time.
func (i *Issuer) patience() time.Duration { return i.deadline - i.deadline/8 }

// short is the length of a queue that is accepted even if this process issues slowly at present. It is counted in the
// time that the queue takes at the full rate of the layout.
func (i *Issuer) short() time.Duration { return i.deadline / 8 }

// New returns an issuer without a generator. It answers each parked request within the deadline, and parks at
// most limit requests at once. now reads the wall clock in Unix ms.
func New(deadline time.Duration, limit int, now func() int64) *Issuer {
	return &Issuer{now: now, deadline: deadline, limit: limit}
}

// Use makes g the generator in use; nil means none. Parked requests are served by g, or refused at once without
// one.
func (i *Issuer) Use(g *snowflake.Generator) {
	i.current.Store(g)
	i.serve()
}

// Generator returns the generator in use, or nil.
func (i *Issuer) Generator() *snowflake.Generator { return i.current.Load() }

// Waiting returns the number of parked requests.
func (i *Issuer) Waiting() int { return int(i.waiting.Load()) }

// Next issues n IDs, n at least 1, without waiting. The error is [ErrWait] if the request should be parked. Any
// other error, [snowflake.ErrNoNumber] or one of [snowflake.Generator.NextAt], means that the request cannot be
// served within the deadline.
func (i *Issuer) Next(n int) (snowflake.Runs, error) { return i.NextAt(i.now(), n) }

// Now reads the wall clock in Unix ms.
func (i *Issuer) Now() int64 { return i.now() }

// NextAt is [Issuer.Next] at the time now, which the caller has just read with [Issuer.Now].
//
// Law: uniqueness does not depend on the time now, which only dates the IDs: the generator never goes back, and
// issues only ticks of its window. If the time now is old, the IDs are dated too early by its age. If it looks as
// if the clock was set back, the clock is read again.
func (i *Issuer) NextAt(now int64, n int) (snowflake.Runs, error) {
	if i.waiting.Load() > 0 {
		return snowflake.Runs{}, ErrWait
	}
	runs, err := i.nextAt(now, n)
	if err == nil {
		return runs, nil
	}
	if _, ok := waits(err, i.patience()); ok {
		return snowflake.Runs{}, ErrWait
	}
	return runs, err
}

// waits reports whether the clock, as it advances, will end the cause of err within the time left, and after how
// long. It reports false if the clock was set back: then another worker should answer.
func waits(err error, left time.Duration) (by time.Duration, ok bool) {
	b, ok := errors.AsType[*snowflake.BehindError](err)
	if !ok || b.SetBack || b.By >= left {
		return 0, false
	}
	return b.By, true
}

// Park queues a request that [Issuer.Next] answered with [ErrWait]. done is called exactly once, within the deadline,
// on any goroutine, with the IDs or an error; it must not block. Park returns [ErrTooMany], and never calls done, if
// too many requests are parked, or if at the present pace the queue would last for more than three quarters of the
// deadline: in a longer queue many requests would expire. A process that gets little CPU time issues at a lower pace
// than the layout allows.
func (i *Issuer) Park(n int, done func(snowflake.Runs, error)) error {
	i.mu.Lock()
	if len(i.parked) >= i.limit || i.isFullLocked(n) {
		i.mu.Unlock()
		return ErrTooMany
	}
	i.parked = append(i.parked, parked{n, time.Now(), i.issued, done})
	i.waiting.Add(1)
	i.ids += int64(n)
	first := len(i.parked) == 1
	i.mu.Unlock()
	if first {
		i.serve()
	}
	return nil
}

// isFullLocked reports whether the queue would be too long with n more IDs. The lock is held.
func (i *Issuer) isFullLocked(n int) bool {
	g := i.current.Load()
	if g == nil || i.ids == 0 {
		return false
	}
	longest := i.deadline * 3 / 4
	most := g.Layout().Yield(longest)
	if i.pace > 0 {
		most = min(most, max(g.Layout().Yield(i.short()), int64(i.pace*longest.Seconds())))
	}
	return i.ids+int64(n) > most
}

// Ready returns nil if one ID can be issued within patience, and the window does not end within the time ahead;
// otherwise an error of [Issuer.Next].
func (i *Issuer) Ready(patience, ahead time.Duration) error {
	g, patience := i.current.Load(), min(patience, i.patience())
	if g == nil {
		return snowflake.ErrNoNumber
	}
	for now, changed := i.now(), false; ; {
		err := g.CheckAt(now + ahead.Milliseconds())
		if !errors.Is(err, snowflake.ErrWindow) {
			err = g.CheckAt(now)
		}
		if now, changed = i.reread(now, err); changed {
			continue
		}
		if _, ok := waits(err, patience); ok {
			return nil
		}
		return err
	}
}

func (i *Issuer) nextAt(now int64, n int) (snowflake.Runs, error) {
	g := i.current.Load()
	if g == nil {
		return snowflake.Runs{}, snowflake.ErrNoNumber
	}
	for changed := false; ; {
		runs, err := g.NextAt(now, n)
		if err == nil {
			return runs, nil
		}
		if now, changed = i.reread(now, err); !changed {
			return runs, err
		}
	}
}

// reread reads the clock again after a [*snowflake.BehindError], and reports whether the clock has changed, so that
// a retry may succeed: this goroutine may have been descheduled after its reading, while others issued later ticks.
func (i *Issuer) reread(before int64, err error) (now int64, changed bool) {
	if _, behind := errors.AsType[*snowflake.BehindError](err); !behind {
		return before, false
	}
	now = i.now()
	return now, now != before
}

// serve answers as many parked requests as it can, from the head of the queue, and sets the timer for the rest.
func (i *Issuer) serve() {
	for {
		done, runs, err := i.serveHead()
		if done == nil {
			return
		}
		done(runs, err)
	}
}

// serveHead removes the first parked request if it can be answered now, and returns its answer; else done is nil.
func (i *Issuer) serveHead() (done func(snowflake.Runs, error), runs snowflake.Runs, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.parked) == 0 {
		return nil, snowflake.Runs{}, nil
	}
	head := i.parked[0]
	waited := time.Since(head.came)
	if err = ErrExpired; waited < i.deadline {
		runs, err = i.nextAt(i.now(), head.n)
	}
	if by, ok := waits(err, i.patience()-waited); ok {
		i.setTimer(by)
		return nil, snowflake.Runs{}, nil
	}
	i.parked[0].done = nil
	i.parked = i.parked[1:]
	i.waiting.Add(-1)
	i.ids -= int64(head.n)
	i.issued += int64(runs.Len())
	if i.pace = 0; waited >= i.short() {
		i.pace = float64(i.issued-head.issued) / waited.Seconds()
	}
	return head.done, runs, err
}

func (i *Issuer) setTimer(d time.Duration) {
	if i.timer == nil {
		i.timer = time.AfterFunc(d, i.serve)
		return
	}
	i.timer.Reset(d)
}
