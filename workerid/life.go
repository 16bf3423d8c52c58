package workerid

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// A phase is the state of a keeper's worker number:
//
//	searching -> holding -> issuing <-> suspended
//	    ^           |          |            |
//	    |           +----------+------------+
//	    |                      v
//	    +------------------- closed
type phase int32

const (
	// searching: no number is held. Nothing is issued, and this worker answers for no number.
	searching phase = iota
	// holding: there is a claim, and nothing is issued until its record is read once more: the process may have stood
	// still since the claim was written.
	holding
	// issuing: the claim's generator is in use.
	issuing
	// suspended: there is a claim, but the clock is wrong or was set far. Until the clock was compared, nothing is
	// issued, and the fence (the time on disk below which IDs may be issued) does not move.
	suspended
	// closed: the claim's generator is closed for good. The worker still answers for its number.
	closed
)

// Status describes a keeper, and the worker number that it holds, at one moment.
type Status struct {
	Instance string
	Held     bool   // this worker answers for a number
	Number   int    // 0 unless Held
	Since    int64  // when the number was acquired, Unix ms; 0 unless Held
	Until    int64  // acknowledged end of its window, Unix ms; 0 unless Held
	Registry string // ID of the deployment; "" until it is read
	// Offset is this machine's clock minus the registry's at the last comparison; 0 before the first one.
	Offset time.Duration
	// Trouble is why there is no number, why nothing is issued under the number, or why the last renewal or heartbeat
	// failed; nil if all is well.
	Trouble error
}

// A life is the phase of a keeper, with the generator in use and the status, which change together with the phase.
// Only the methods named become… change a phase; only the goroutine of Keeper.Run calls these. The methods phase
// and current are safe for concurrent use.
type life struct {
	use  func(*snowflake.Generator)
	log  *slog.Logger
	at   atomic.Int32         // the phase
	used *snowflake.Generator // argument of the last call of use

	mu     sync.Mutex
	status Status
	early  error     // why the number is not used before the time begins
	begins time.Time // when the clock reaches the window, unless the clock is set
}

func newLife(instance string, use func(*snowflake.Generator), log *slog.Logger) *life {
	status := Status{Instance: instance, Trouble: errors.New("workerid: the first search for a number has not ended")}
	return &life{use: use, log: log, status: status}
}

func (l *life) phase() phase { return phase(l.at.Load()) }

func (l *life) current() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	if s.Trouble == nil && time.Now().Before(l.begins) {
		s.Trouble = l.early
	}
	return s
}

func (l *life) note(change func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.status)
}

// setInUse makes g the generator in use; nil means none.
func (l *life) setInUse(g *snowflake.Generator) {
	if l.used != g {
		l.used = g
		l.use(g)
	}
}

// becomeHolding begins to hold the number of c, the claim to it.
//
// Before: searching. The window of c is acknowledged, the state file has the claim and its fence, and c has a
// generator. After: the worker answers for the number; nothing is issued.
func (l *life) becomeHolding(c *claim) {
	l.at.Store(int32(holding))
	l.note(func(s *Status) {
		s.Held, s.Number, s.Since, s.Until, s.Trouble = true, c.number, c.since, c.until.Load(), nil
		l.begins, l.early = c.begins, c.earlyError()
	})
	l.log.Info("worker number acquired", "number", c.number, "instance", l.current().Instance)
}

// becomeIssuing puts the generator of c, the claim to the number, to use.
//
// Before: holding, issuing or suspended. The record was read since holding began, and has the token of c; and the
// clock was compared since it was last set. Or c was resumed without the registry. After: the generator is in use.
func (l *life) becomeIssuing(c *claim) {
	if l.phase() == suspended {
		l.log.Info("the clock is right: snowflakes are issued again", "number", c.number)
	}
	l.at.Store(int32(issuing))
	l.setInUse(c.gen)
}

// becomeSuspended stops issuing, and keeps the number.
//
// Before: any phase; without a claim, or with a closed one, nothing changes. After: no generator is in use. The claim's
// generator stays open for the time after the next comparison of the clock.
func (l *life) becomeSuspended(why string) {
	if p := l.phase(); p != holding && p != issuing {
		return
	}
	l.at.Store(int32(suspended))
	l.setInUse(nil)
	l.log.Error("no snowflakes until this machine's clock is found right; the worker number is kept; check NTP",
		"reason", why)
}

// becomeClosed ends c for the reason why, nil at a clean stop. It returns the end of the last tick issued, Unix ms.
//
// Before: holding, issuing or suspended; nothing else was done to end c. After: the generator is closed; the worker
// still answers for its number.
func (l *life) becomeClosed(c *claim, why error) (free int64) {
	free = c.gen.Close() //mutant:close
	l.at.Store(int32(closed))
	l.setInUse(nil) //mutant:unuse
	l.note(func(s *Status) { s.Trouble = why })
	if why != nil {
		l.log.Error("worker number given up; this worker searches for another", "number", c.number, "error", why)
	}
	return free
}

// becomeSearching makes this worker answer for no number.
//
// Before: closed. After: the status has no number.
func (l *life) becomeSearching() {
	l.at.Store(int32(searching))
	l.note(func(s *Status) { s.Held, s.Number, s.Since, s.Until, l.begins = false, 0, 0, 0, time.Time{} })
}

// earlyError returns errEarly with the time at which the number will be used.
func (c *claim) earlyError() error {
	why := "when no worker that had it before can issue"
	if c.how == Resumed {
		why = "since this worker, which did not stop cleanly, may have issued up to then"
	}
	return fmt.Errorf("%w: number %d is used from %s on, %s", errEarly,
		c.number, time.UnixMilli(c.from).UTC().Format(time.TimeOnly), why)
}
