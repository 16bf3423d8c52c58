package workerid

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/snowflake"
)

const (
	// callTimeout bounds one call to the registry: a round trip of a second, and as much again for a busy machine.
	callTimeout = 2500 * time.Millisecond
	// listTimeout bounds a call that lists all records or heartbeats.
	listTimeout = 10 * time.Second
	// askTimeout bounds the question who has a number. A holder that hangs, and a subscriber that never answers, cost
	// all of it.
	askTimeout = 2 * time.Second
	// A renewal comes up to horizon / maxEarly sooner than it must, by a random time per claim. Otherwise workers
	// that started at once would renew at once: each write is synced to disk, and all other calls would wait behind
	// the writes.
	maxEarly = 12
)

// terms are the settings that all claims of one worker share.
type terms struct {
	registry Registry
	file     *stateFile
	instance string
	process  string // random, identifies this process to other workers
	layout   snowflake.Layout
	horizon  time.Duration
	margin   time.Duration
	maxAhead time.Duration
	now      func() int64 // wall clock, Unix ms
	granted  func(Window)
}

// A claim is one worker number with its window, from the first write of its record until it is released or lost:
// acquired by a compare-and-set of this process, or resumed from its predecessor.
//
// An acknowledged write extends the window, and nothing else does. The generator issues within the window and below
// the fence. Only the goroutine of Keeper.Run uses a claim, except for until and the generator.
type claim struct {
	terms
	number      int
	from        int64        // begin of the window, Unix ms
	until       atomic.Int64 // its end as last acknowledged, Unix ms; 0 before the first write
	since       int64        // when it was acquired, Unix ms
	deployment  Deployment   // the deployment of the window
	doubtful    bool         // another worker may have had the number until a moment ago
	unheard     bool         // silence about the number proves nothing
	asked       int          // how often the question was asked before the first write
	begins      time.Time    // when the clock reaches from, unless it is set
	compared    reading      // the clock at the last comparison
	resumed     bool         // it continues the window of an earlier process
	resumedAway bool         // it was resumed while the registry was out of reach
	rechecked   bool         // the record was read again after the number was acquired
	early       int64        // ms by which renewal precedes the end of a third of the horizon, see maxEarly

	revision uint64    // of the record
	token    string    // of the last acknowledged write
	series   series    // of the tokens of this claim
	released *released // set by the first attempt to release it
	gen      *snowflake.Generator
}

// A series is the tokens of one claim: a random base, and the number of the write. No two writes share a token, and
// the claim recognizes its own tokens however many writes are unacknowledged. The zero value has made none.
type series struct {
	base  string
	wrote int // writes so far
	acked int // number of the last acknowledged write
}

// begin returns the common base of all tokens of the series.
func (s *series) begin() string {
	if s.base == "" {
		s.base = newToken() + "-"
	}
	return s.base
}

// next returns the token of another write.
func (s *series) next() string {
	s.wrote++
	return s.begin() + strconv.Itoa(s.wrote)
}

// isOpen reports whether token is of a write since the last acknowledged one.
func (s *series) isOpen(token string) bool {
	number, mine := strings.CutPrefix(token, s.base)
	if !mine || s.base == "" {
		return false
	}
	n, err := strconv.Atoi(number)
	return err == nil && s.acked < n && n <= s.wrote
}

// write sets the end of the record's window to until, at the time now, both Unix ms. It returns errLost if the number
// belongs to another worker.
//
// Where the outcome is in doubt the record is read again. If it bears a token of this claim, its revision (not its
// window) is adopted and the write repeated. If no write of this claim was ever acknowledged, and the record is as it
// was before, the write was not made, or will land later: its error is returned. Otherwise the number is lost.
func (c *claim) write(ctx context.Context, now, until int64) error {
	err := c.tryWrite(ctx, now, until)
	for tries := 0; err != nil && tries < 3; tries++ {
		r, rerr := c.read(ctx)
		if rerr != nil {
			return fmt.Errorf("%w; reading the record: %w", err, rerr)
		}
		if c.token == "" && r.Revision == c.revision && !c.wrote(r) && !errors.Is(err, ErrConflict) {
			break
		}
		if !c.wrote(r) { //mutant:foreign-token
			return c.lostTo(r)
		}
		c.revision = r.Revision
		err = c.tryWrite(ctx, now, until) //mutant:write-again
	}
	if err != nil {
		err = fmt.Errorf("workerid: the record of number %d was not written: %w; check the storage of JetStream, "+
			"and whether this worker may write to the bucket of the records", c.number, err)
	}
	return err
}

// lostTo returns errLost with the owner of record r.
func (c *claim) lostTo(r Record) error {
	if r.Token == "" {
		return fmt.Errorf("%w: the record of number %d is gone or unreadable", errLost, c.number)
	}
	return fmt.Errorf("%w: number %d belongs to %q now", errLost, c.number, r.Instance)
}

// wrote reports whether record r was written by this claim.
func (c *claim) wrote(r Record) bool {
	return r.Token != "" && (r.Token == c.token || c.series.isOpen(r.Token))
}

func (c *claim) tryWrite(ctx context.Context, now, until int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token := c.series.next() //mutant:token
	revision, err := c.registry.Write(ctx, c.number, Record{
		Instance: c.instance, Token: token, Reported: now, Until: until, Deployment: c.deployment, Revision: c.revision,
	})
	//mutant:unacknowledged
	if err != nil {
		return err
	}
	c.revision, c.token, c.series.acked = revision, token, c.series.wrote
	c.until.Store(until)
	return nil
}

// read returns the record; a zero one if there is none.
func (c *claim) read(ctx context.Context) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.registry.Record(ctx, c.number)
	if errors.Is(err, ErrNoRecord) {
		return Record{}, nil
	}
	return r, err
}

// firstUntil returns the end of a first window written at now, Unix ms. For a doubtful claim it is not before the
// claim's first ID: the next owner then sees that the number may have been in use a moment ago.
func (c *claim) firstUntil(now int64) int64 {
	ahead := c.horizon
	if c.doubtful {
		ahead = max(ahead, c.caution())
	}
	return now + ahead.Milliseconds()
}

// caution returns how long a doubtful claim issues nothing after its write was acknowledged.
func (c *claim) caution() time.Duration {
	if c.unheard {
		return c.margin + unheardFor //mutant:unheard-wait
	}
	return c.margin
}

// open puts the claim into the state file at the time now, Unix ms, and only then creates the generator.
func (c *claim) open(now int64) error {
	c.since, c.begins = now, time.Now().Add(time.Duration(c.from-now)*time.Millisecond)
	limit, err := c.remember()
	if err != nil {
		return err
	}
	if c.gen, err = snowflake.NewGenerator(c.layout, c.number, c.from, limit, c.maxAhead); err != nil {
		return err
	}
	c.gen.Within(c.until.Load())
	c.report(c.opened(), c.until.Load())
	return nil
}

// renew reads the record, and extends the window once a third of the horizon is used, or a little sooner. So a worker
// detects within a heartbeat that its record was taken, wiped or set back. While the registry is out of reach,
// snowflakes continue for at least two thirds of the horizon.
//
// A window that has passed is not extended: another worker may have had the number since, and a restored registry
// shows this claim's token again. Then the error is errEnded, also if the window passed during the write.
func (c *claim) renew(ctx context.Context) error {
	//mutant:renewed-at
	now, horizon, acknowledged := c.compared.now, c.horizon.Milliseconds(), c.until.Load()
	if acknowledged <= now { //mutant:ended
		return c.ended(ctx)
	}
	token, err := c.recheck(ctx) //mutant:reread
	if err != nil || token == c.token && !c.isDue(now) {
		return err
	}
	until := max(acknowledged, now+horizon) //mutant:renewed-until
	if err := c.write(ctx, now, until); err != nil {
		return err
	}
	if acknowledged <= max(c.now(), c.compared.elapsed()) { //mutant:ended-meanwhile
		return errEnded
	}
	limit, err := c.remember()
	if err != nil {
		return err
	}
	c.report(Renewed, until)
	c.gen.Within(until)
	c.gen.Extend(limit)
	return nil
}

// isDue reports whether the window is to be extended at the time now, Unix ms.
func (c *claim) isDue(now int64) bool {
	return c.until.Load()-now <= c.horizon.Milliseconds()*2/3+c.early
}

// recheck reads the record, and returns its token and adopts its revision if the token is of this claim. Otherwise
// the number is lost, or the read was old: so the read is repeated, three reads at most. Every write but the first
// needs recheck: a restored registry gives its revisions again, and the revision of this claim's last write may now
// be that of another worker's record.
func (c *claim) recheck(ctx context.Context) (token string, err error) {
	var r Record
	for range 3 {
		if r, err = c.read(ctx); err != nil {
			return "", err
		}
		if c.wrote(r) {
			c.revision = r.Revision
			return r.Token, nil
		}
	}
	return "", c.lostTo(r)
}

// ended returns why a claim whose window has passed is over: errEnded, or errLost if the record is another worker's.
func (c *claim) ended(ctx context.Context) error {
	r, err := c.read(ctx)
	if err == nil && !c.wrote(r) {
		return c.lostTo(r)
	}
	return errEnded
}

// remember puts the acknowledged window into the state file, and returns the limit of IDs that this allows.
func (c *claim) remember() (limit int64, err error) {
	until := c.until.Load()
	return c.file.remember(c.number, c.from, stateClaim{Token: c.token, Revision: c.revision, Until: until})
}

// retryFile puts the acknowledged window into a state file whose write had failed, if a retry is due, and reports
// whether the file holds the window.
func (c *claim) retryFile() (back bool, err error) {
	window := stateClaim{Token: c.token, Revision: c.revision, Until: c.until.Load()}
	return c.file.retry(c.instance, c.deployment, c.number, window)
}

// heartbeat puts the heartbeat. Its time continues the compared reading of the clock: a step of the clock since must
// not count against the other workers.
func (c *claim) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.registry.Report(ctx, c.number, Heartbeat{Instance: c.instance, Time: c.compared.elapsed(), Since: c.since})
}

// sent reports whether h is a heartbeat of this claim.
func (c *claim) sent(h Heartbeat) bool { return h.Instance == c.instance && h.Since == c.since }

// release gives the number back at a clean stop. The order is part of the law: close the generator for good; forget
// the claim; lower until to the end of the last tick used, which only the owner may do. It may be called again after
// an error.
func (c *claim) release(ctx context.Context) error {
	free := c.gen.Close() //mutant:free
	if c.released == nil {
		c.released = &released{Base: c.series.begin(), Writes: c.series.wrote, Free: free}
	}
	//mutant:forget
	if err := c.file.forget(c.released); err != nil {
		return err
	}
	if _, err := c.recheck(ctx); err != nil { //mutant:release-read
		return err
	}
	if err := c.write(ctx, c.compared.now, free); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.registry.Leave(ctx, c.number)
}
