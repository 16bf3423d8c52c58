package workerid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// callTimeout bounds one call to the registry.
const callTimeout = time.Second

// errLost says that a number belongs to somebody else, or to nobody known.
var errLost = errors.New("workerid: the number was lost")

// A claim is one worker number, held until it is released or lost: won by a
// compare-and-set of this process, or inherited from its last life. Only the
// goroutine of Keeper.Run uses it, but for its generator.
type claim struct {
	k      *Keeper
	number int
	from   int64     // begin of the window, Unix ms
	until  int64     // its end as last acknowledged, Unix ms; 0 before the first
	since  int64     // Unix ms
	bare   bool      // there was no record before
	begins time.Time // when the clock reaches from, unless it is set

	looked   bool // at the record, after it was won
	revision uint64
	token    string   // of the last acknowledged write
	tokens   []string // of all writes whose fate is not known, besides
	gen      *snowflake.Generator
}

// write sets the end of the record's window to until, at the time now, both
// Unix ms. The law: the window this process may use grows by an acknowledged
// write only, never by a read.
//
// Where the outcome is in doubt the record is read again: if it bears a token
// of an own write, its revision (not its window) is adopted and the write is
// done again; otherwise the number is lost, and write returns errLost.
func (c *claim) write(ctx context.Context, now, until int64) error {
	err := c.tryWrite(ctx, now, until)
	for tries := 0; err != nil && tries < 3; tries++ {
		r, rerr := c.read(ctx)
		if rerr != nil {
			return errors.Join(err, rerr)
		}
		if !c.owns(r) { //mutant:foreign-token
			return c.lostTo(r)
		}
		c.revision = r.Revision
		err = c.tryWrite(ctx, now, until) //mutant:write-again
	}
	return err
}

// lostTo returns errLost with who has the number now.
func (c *claim) lostTo(r Record) error {
	if r.Token == "" {
		return fmt.Errorf("%w: the record of number %d is gone or cannot be read", errLost, c.number)
	}
	return fmt.Errorf("%w: number %d belongs to %q now", errLost, c.number, r.Instance)
}

// owns reports whether a record bears the token of an own write.
func (c *claim) owns(r Record) bool {
	return r.Token != "" && (r.Token == c.token || slices.Contains(c.tokens, r.Token))
}

func (c *claim) tryWrite(ctx context.Context, now, until int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token := newToken() //mutant:token
	c.tokens = append(c.tokens, token)
	revision, err := c.k.cfg.Registry.Write(ctx, c.number, Record{
		Instance: c.k.instance, Token: token, Reported: now, Until: until, Revision: c.revision,
	})
	//mutant:unacknowledged
	if err != nil {
		return err
	}
	c.revision, c.token, c.tokens, c.until = revision, token, nil, until
	return nil
}

// read returns the record; a zero one if there is none.
func (c *claim) read(ctx context.Context) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.k.cfg.Registry.Record(ctx, c.number)
	if errors.Is(err, ErrNoRecord) {
		return Record{}, nil
	}
	return r, err
}

// open remembers the claim in the state file. Then, and not before, it makes
// the generator.
func (c *claim) open(now int64) error {
	c.since, c.begins = now, time.Now().Add(time.Duration(c.from-now)*time.Millisecond)
	limit, err := c.remember()
	if err != nil {
		return err
	}
	c.gen, err = snowflake.NewGenerator(c.k.cfg.Layout, c.number, c.from, limit, c.k.cfg.MaxAhead)
	return err
}

// renew extends the window once a third of the horizon is used, and at once
// if the record does not look like this claim's: then the write tells whether
// the number is lost. now is a reading of the clock that has been compared
// with the others'.
func (c *claim) renew(ctx context.Context, now int64) error {
	horizon := c.k.cfg.Horizon.Milliseconds()
	if c.until-now > horizon*2/3 {
		r, err := c.read(ctx)
		if err != nil || r.Token == c.token {
			return err
		}
	}
	until := max(c.until, now+horizon) //mutant:renewed-until
	if err := c.write(ctx, now, until); err != nil {
		return err
	}
	limit, err := c.remember()
	if err == nil {
		c.gen.Extend(limit)
	}
	return err
}

// remember puts the window as last acknowledged into the state file, and
// returns how far IDs may be issued after that.
func (c *claim) remember() (limit int64, err error) {
	c.k.setUntil(c.until)
	if c.k.file == nil {
		return c.until, nil
	}
	return c.k.file.fence(c.k.cfg.Now, c.until, func(s *state) {
		fence := c.from
		if s.Claim != nil && s.Number != nil && *s.Number == c.number {
			fence = max(fence, s.Claim.Fence)
		}
		s.Number = &c.number
		s.Claim = &stateClaim{Token: c.token, Revision: c.revision, Until: c.until, Fence: fence}
	})
}

// forget takes the claim out of the state file, so that no later life trusts
// it.
func (c *claim) forget() error {
	return c.k.file.change(func(s *state) { s.Claim = nil })
}

// release gives the number back after a clean stop. The order is part of the
// law: close the generator for good; forget the claim; then lower until to
// what was really used, which only the owner may. It may be called again
// after an error.
func (c *claim) release(ctx context.Context) error {
	free := c.gen.Close() //mutant:free
	//mutant:forget
	if err := c.forget(); err != nil {
		return err
	}
	if err := c.write(ctx, c.k.checked, free); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.k.cfg.Registry.Leave(ctx, c.number)
}
