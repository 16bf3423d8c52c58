package workerid

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/snowflake"
)

const (
	// callTimeout bounds one call to the registry: a round trip of a second, and the time that a busy machine needs.
	callTimeout = 2500 * time.Millisecond
	// listTimeout bounds a call that lists all records or heartbeats.
	listTimeout = 10 * time.Second
	// askTimeout bounds the question who has a number. The question lasts that long if the holder hangs, or if a
	// subscriber that does not answer receives it, too.
	askTimeout = 2 * time.Second
)

// A claim is this process's hold of one worker number, with its window: the time span in which the process owns the
// number. A claim lasts from the first write of the number's record until the number is released or lost. It is
// acquired by a compare-and-set of this process, or resumed from a previous process.
//
// Only an acknowledged write extends the window. The generator issues within the window and below the fence, a time
// in the state file. Only the goroutine of Keeper.Run uses a claim, except for the field until and the generator.
type claim struct {
	k          *Keeper
	number     int
	from       int64        // begin of the window, Unix ms
	until      atomic.Int64 // acknowledged end of the window, Unix ms; 0 before the first write
	since      int64        // when it was acquired, Unix ms
	begins     time.Time    // when the clock reaches the begin of the window, unless the clock is set
	deployment Deployment   // of the record
	how        How          // Acquired, or Resumed if it continues the window of a previous process
	away       bool         // it was resumed while the registry was out of reach
	// caution is how long nothing is issued after the first write was acknowledged, in case another worker has just
	// had the number; 0 if none can have had it.
	caution time.Duration

	token    string // random; in all writes of this claim, and in no other
	former   string // if away: the previous process's token, until the first write; otherwise ""
	revision uint64 // of the record
	gen      *snowflake.Generator
	behind   bool // the clock was behind the last ID at the last heartbeat
}

// write writes the record with a window that ends at the parameter until, at the time now, both Unix ms. It returns
// errLost if the number belongs to another worker.
//
// After an error the write may have landed, so the record is read again. If it has this claim's token, its revision
// (not its window) is adopted, and the write repeated. If the record is as before, and no write of this claim was
// ever acknowledged, this write may still land later: its error is returned. Otherwise the number is lost.
func (c *claim) write(ctx context.Context, now, until int64) error {
	err := c.tryWrite(ctx, now, until)
	for tries := 0; err != nil && tries < 3; tries++ {
		r, rerr := c.read(ctx)
		if rerr != nil {
			return fmt.Errorf("%w; reading the record: %w", err, rerr)
		}
		if c.until.Load() == 0 && r.Revision == c.revision && !c.wrote(r) && !errors.Is(err, ErrConflict) {
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

func (c *claim) lostTo(r Record) error {
	if r.Token == "" {
		return fmt.Errorf("%w: the record of number %d is gone or unreadable", errLost, c.number)
	}
	return fmt.Errorf("%w: number %d belongs to %q now", errLost, c.number, r.Instance)
}

// wrote reports whether this claim (this process's hold of the number) wrote record r, in its last acknowledged write
// or a later one. An earlier write, which a restored registry may show, does not count.
func (c *claim) wrote(r Record) bool {
	return r.Token != "" && (r.Token == c.token || r.Token == c.former) && r.Until >= c.until.Load()
}

func (c *claim) tryWrite(ctx context.Context, now, until int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	//mutant:token
	revision, err := c.k.cfg.Registry.Write(ctx, c.number, Record{
		Instance: c.k.cfg.Instance, Token: c.token, Reported: now, Until: until, Deployment: c.deployment,
		Program: c.k.cfg.Program, Revision: c.revision,
	})
	//mutant:unacknowledged
	if err != nil {
		return err
	}
	c.revision, c.former = revision, ""
	c.until.Store(until)
	return nil
}

// read returns the record of the claim's number; a zero one if there is none.
func (c *claim) read(ctx context.Context) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.k.cfg.Registry.Record(ctx, c.number)
	if errors.Is(err, ErrNoRecord) {
		return Record{}, nil
	}
	return r, err
}

// open puts the claim into the state file, and then creates its generator. now is the time of the clock, Unix ms.
func (c *claim) open(now int64) error {
	c.since, c.begins = now, time.Now().Add(time.Duration(c.from-now)*time.Millisecond)
	limit, err := c.remember()
	if err != nil {
		return err
	}
	if c.gen, err = snowflake.NewGenerator(c.k.cfg.Layout, c.number, c.from, limit, c.k.cfg.MaxAhead); err != nil {
		return err
	}
	c.grant(c.how, c.until.Load())
	return nil
}

// renew reads the record, and extends the window once a third of the horizon (the length of a new window) is used, or a
// little sooner. now is the time of a clock that was found right, Unix ms. Each heartbeat calls renew, so the read soon
// shows a record that was replaced, wiped or set back. Without the registry, two thirds of the horizon remain.
//
// A window that has passed is not extended, even if it passed during the write: the error is errEnded. Another
// worker may have had the number since, even if a restored registry shows this claim's token again.
func (c *claim) renew(ctx context.Context, now int64) error {
	//mutant:renewed-at
	horizon, acknowledged := c.k.cfg.Horizon.Milliseconds(), c.until.Load()
	r, err := c.recheck(ctx)                             //mutant:reread
	if acknowledged <= now && !errors.Is(err, errLost) { //mutant:ended
		return errEnded
	}
	if err != nil || r.Until == acknowledged && c.usable()-now > horizon*2/3+c.k.early {
		return err
	}
	until := max(acknowledged, now+horizon+c.k.cfg.Rest.Milliseconds()) //mutant:renewed-until
	if err := c.write(ctx, now, until); err != nil {
		return err
	}
	if acknowledged <= max(c.k.cfg.Now(), c.k.clock.last.elapsed()) { //mutant:ended-meanwhile
		return errEnded
	}
	limit, err := c.remember()
	if err != nil {
		return err
	}
	c.grant(Renewed, until)
	c.gen.Extend(limit)
	return nil
}

// recheck reads the record of the number, and adopts its revision if this claim wrote it. One read may be old; if three
// reads show another record, the number is lost. Every write but the first needs recheck: a restored registry gives its
// revisions again, so another worker's record may have the revision of this claim's last write.
func (c *claim) recheck(ctx context.Context) (r Record, err error) {
	for range 3 {
		if r, err = c.read(ctx); err != nil {
			return Record{}, err
		}
		if c.wrote(r) {
			c.revision = r.Revision
			return r, nil
		}
	}
	return Record{}, c.lostTo(r)
}

// usable returns the time, Unix ms, up to which IDs are issued: the end of the window less Config.Rest, so never later.
func (c *claim) usable() int64 { return c.until.Load() - c.k.cfg.Rest.Milliseconds() } //mutant:rest

// remember puts the acknowledged window, in which this process may issue, into the state file. IDs may then be issued
// below limit, Unix ms.
func (c *claim) remember() (limit int64, err error) {
	token := c.token
	if c.former != "" {
		token = c.former
	}
	limit, err = c.k.file.remember(c.number, c.from, stateClaim{Token: token, Until: c.until.Load()})
	return min(limit, c.usable()), err
}

// heartbeat puts the heartbeat, with whose time others compare their clocks. So it has the last compared reading of
// the clock plus the monotonic time since: if this clock is set later, the others' do not look wrong.
func (c *claim) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.k.cfg.Registry.Report(ctx, c.number, Heartbeat{
		Instance: c.k.cfg.Instance, Time: c.k.clock.last.elapsed(), Since: c.since,
	})
	if err != nil {
		err = fmt.Errorf("workerid: the heartbeat of number %d was not put, and its window continues: %w",
			c.number, err)
	}
	return err
}

// release gives the number back at a clean stop. It closes the generator for good, forgets the claim in the state
// file, and then lowers the end of the window to the end of the last tick issued. Uniqueness needs this order,
// since the next owner begins at the lowered end. release may be called again after an error.
func (c *claim) release(ctx context.Context) error {
	free := c.gen.Close() //mutant:free
	//mutant:forget
	if err := c.k.file.forget(&released{Token: c.token, Free: free}); err != nil {
		return err
	}
	c.until.Store(min(c.until.Load(), free))
	if _, err := c.recheck(ctx); err != nil { //mutant:release-read
		return err
	}
	if err := c.write(ctx, c.k.clock.last.now, free); err != nil {
		return err
	}
	return c.leave(ctx)
}

func (c *claim) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.k.cfg.Registry.Leave(ctx, c.number)
}

// A Window is the times [From, Until) that a process may put into IDs under a number, in Unix ms. From stays the
// same from the number's acquisition on. Each new window of the number replaces the previous one.
type Window struct {
	Number int   `json:"number"`
	From   int64 `json:"from"`
	Until  int64 `json:"until"`
	How    How   `json:"how"`
}

// How is the origin of a [Window]: how this process got it.
type How string

// Origins of windows.
const (
	Acquired How = "acquired"
	// Resumed windows are the rest of a window of this worker's previous process.
	Resumed How = "resumed"
	Renewed How = "renewed"
	// A Closed window ends with the last ID issued: nothing is issued in the rest of the window.
	Closed How = "closed"
)

// grant reports the window of the claim, whose end is the parameter until, to Config.Granted.
func (c *claim) grant(how How, until int64) {
	c.k.cfg.Granted(Window{Number: c.number, From: c.from, Until: until, How: how})
}
