package workerid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/natsid/natsid/snowflake"
)

// Config says how a keeper works. Registry, Layout, Now and Use must be set.
type Config struct {
	// Registry keeps the records and heartbeats.
	Registry Registry
	// Layout is that of the IDs; all workers of a registry must have the same.
	Layout snowflake.Layout
	// Site is this worker's, of a layout with site bits: it takes only numbers of
	// its own site.
	Site int
	// Instance names this worker to people; "" takes the one in the state
	// file, or makes one.
	Instance string
	// StateDir is the directory of the state file; "" keeps no local state.
	// Whoever runs the keeper has locked it against other processes.
	StateDir string
	// Horizon is how long a window reaches ahead, and so how long IDs are
	// issued without the registry; 5 min if 0.
	Horizon time.Duration
	// Heartbeat is the time between two reports; 3 s if 0, as Leaf's.
	Heartbeat time.Duration
	// MaxClockSkew is how far the clocks of two workers may differ: a worker
	// whose clock is farther from the others' does not issue; but less than 1 s
	// is not told from a slow network and counts as 1 s there. A number whose
	// record is absent or unreadable is used from that much later on, since a
	// bucket may have been lost with its owner still alive; 1 s if 0.
	MaxClockSkew time.Duration
	// MaxAhead is the generators'; see [snowflake.NewGenerator].
	MaxAhead time.Duration
	// Deadline is how long requests may wait for a clock that was set back; a
	// clock farther back counts as behind. 1.5 s if 0.
	Deadline time.Duration
	// Reclaim takes another number when the clock is behind what was issued or
	// reported and is found right; otherwise the keeper waits until the clock has
	// caught up, a day at most.
	Reclaim bool
	// Now reads the wall clock, in Unix ms.
	Now func() int64
	// Use is told which generator to issue from; nil while there is none.
	Use func(*snowflake.Generator)
	// Alarm is told, once per event, what an operator should look at; nil
	// discards. It must not block.
	Alarm func(kind Alarm, message string)
	// Log receives what happens to the number; nil discards.
	Log *slog.Logger
}

// A Keeper wins a worker number, renews its window, reports it to the others,
// and gives it back in the end.
type Keeper struct {
	cfg      Config
	process  string // random, names this process to the others
	instance string

	// The rest is of the goroutine of Run, but for what says otherwise.
	file      *stateFile // nil: no local state
	unread    error      // why the state file was ignored
	clock     *clock
	alarms    alarms
	rand      *rand.Rand
	checked   int64                // the own clock when it was last compared with the others', Unix ms
	checkedAt time.Time            // when that was, for its monotonic reading
	watch     time.Duration        // how often the clock is looked at
	another   bool                 // the own number was given up for another
	doubtful  *claim               // may have been won: its write was not acknowledged
	awaySince time.Time            // since when every attempt to reach the registry failed; zero if none did
	used      *snowflake.Generator // what is issued from
	suspended atomic.Bool          // the number is held, but nothing is issued; any goroutine may read it

	mu     sync.Mutex
	status Status // under mu
}

// Status is what a keeper can tell of itself at a moment.
type Status struct {
	Instance string
	Held     bool  // whether there is a number
	Number   int   // 0 unless Held
	Since    int64 // when it was won, Unix ms; 0 unless Held
	Until    int64 // acknowledged end of its window, Unix ms; 0 without one
	Registry string
	// Offset is the own clock's distance from the registry's, as of the last
	// comparison; 0 before the first.
	Offset time.Duration
	// Trouble is why there is no number, why nothing is issued under it, or
	// why the last renewal or report failed; nil if all is well.
	Trouble error
}

// New returns a keeper. It reads the state file and starts nothing. A state
// file that is damaged, or that was copied here from another place, is
// reported and ignored.
func New(cfg Config) *Keeper {
	if cfg.Horizon == 0 {
		cfg.Horizon = 5 * time.Minute
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 3 * time.Second
	}
	if cfg.MaxClockSkew == 0 {
		cfg.MaxClockSkew = time.Second
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = 1500 * time.Millisecond
	}
	if cfg.Alarm == nil {
		cfg.Alarm = func(Alarm, string) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{
		cfg: cfg, process: newToken(), instance: cfg.Instance,
		alarms: alarms{raise: cfg.Alarm, on: make(map[Alarm]bool)},
		rand:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		watch:  100 * time.Millisecond,
	}
	if cfg.StateDir != "" {
		k.file, k.unread = openState(filepath.Join(cfg.StateDir, "worker.json"), cfg.Layout.Unit)
		if k.instance == "" {
			k.instance = k.file.Instance
		}
	}
	if k.instance == "" {
		k.instance = newInstance()
	}
	k.status = Status{Instance: k.instance, Trouble: errors.New("workerid: not started")}
	return k
}

// newInstance makes a name that says where the worker runs, and differs from
// all others there.
func newInstance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%s", host, newToken()[:6])
}

// Status returns how the keeper is. It is safe for concurrent use.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Who returns what this worker answers when it is asked who it is, and whether
// it holds a number at all. It is safe for concurrent use.
func (k *Keeper) Who() (who Who, held bool) {
	s := k.Status()
	return Who{Instance: s.Instance, Process: k.process, Number: s.Number, Time: k.cfg.Now(), Until: s.Until, Registry: s.Registry}, s.Held
}

// Run keeps a worker number until ctx ends, and gives it back then. If the
// number is lost it takes another. It returns nil after a clean stop, an error
// that wraps [ErrDeployment] if this worker must not join the registry at
// its start, or what hindered it from giving the number back, which then stays
// blocked for the horizon.
func (k *Keeper) Run(ctx context.Context) error {
	k.clock = newClock(k.cfg.Now)
	if k.unread != nil {
		k.cfg.Alarm(StateFile, fmt.Sprintf("%v: it is ignored, and another worker number taken", k.unread))
	}
	for first := true; ; first = false {
		c, err := k.claim(ctx, first)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		k.begin(c)
		err = k.hold(ctx, c)
		k.close(c, err)
		if errors.Is(err, errLost) {
			k.cfg.Alarm(NumberLost, err.Error())
			k.linger(ctx) //mutant:linger
		}
		k.end()
		k.another = errors.Is(err, errBehind)
		switch {
		case errors.Is(err, errLost):
			if err := c.forget(); err != nil {
				k.dropFile(err)
			}
		case ctx.Err() != nil:
			return k.release(ctx, c)
		case errors.Is(err, ErrStateFile):
			k.dropFile(err)
		case errors.Is(err, errBehind):
			if err := k.release(ctx, c); errors.Is(err, ErrStateFile) {
				k.dropFile(err)
			} else if err != nil {
				k.cfg.Log.Warn("a number was not given back", "error", err)
			}
		}
	}
}

// linger goes on answering for a number that was lost, until no clock within
// the skew is behind its last ID: if the registry lost its state the number
// looks free, and whoever takes it must not begin before that.
func (k *Keeper) linger(ctx context.Context) {
	select {
	case <-time.After(k.margin()):
	case <-ctx.Done():
	}
}

// margin returns how far the IDs of somebody whose clock is right may be ahead
// of the own clock: the skew, and what IDs may run ahead of a clock.
func (k *Keeper) margin() time.Duration {
	unit := time.Duration(k.cfg.Layout.Unit) * time.Millisecond
	return k.cfg.MaxClockSkew + max(k.cfg.MaxAhead, unit) + unit
}

// dropFile goes on without a state file: better issue without local state than
// not at all. After a crash another number is taken.
func (k *Keeper) dropFile(why error) {
	if k.file != nil {
		k.file = nil
		k.cfg.Alarm(StateFile, fmt.Sprintf("%v: going on without one, with another number; mend the disk and start this worker anew", why))
	}
}

func (k *Keeper) begin(c *claim) {
	k.doubtful = nil // what was tried before this may lie before what this issues
	k.mu.Lock()
	k.status.Held, k.status.Number, k.status.Since, k.status.Trouble = true, c.number, c.since, nil
	k.mu.Unlock()
	k.suspended.Store(false)
	k.cfg.Log.Info("worker number taken", "number", c.number, "instance", k.instance)
}

// close closes the generator of a claim, before anything else happens to it.
func (k *Keeper) close(c *claim, why error) {
	c.gen.Close() //mutant:close
	k.use(nil)    //mutant:unuse
	k.mu.Lock()
	k.status.Trouble = why
	k.mu.Unlock()
	if why != nil {
		k.cfg.Log.Error("worker number given up", "number", c.number, "error", why)
	}
}

// end says that no number is held any more.
func (k *Keeper) end() {
	k.mu.Lock()
	k.status.Held, k.status.Number, k.status.Since, k.status.Until = false, 0, 0, 0
	k.mu.Unlock()
}

// suspend stops the issuing, but keeps the number.
func (k *Keeper) suspend(why string) {
	if !k.suspended.Swap(true) {
		k.use(nil)
		k.cfg.Log.Error("no snowflakes for now", "reason", why)
	}
}

// use issues from g from now on; nil is nothing.
func (k *Keeper) use(g *snowflake.Generator) {
	if k.used != g {
		k.used = g
		k.cfg.Use(g)
	}
}

// releaseTimeout bounds giving the number back at the end.
const releaseTimeout = 3 * time.Second

func (k *Keeper) release(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	pauses := backoff.WithContext(backoff.NewConstantBackOff(100*time.Millisecond), ctx)
	err := backoff.Retry(func() error {
		err := c.release(ctx)
		if errors.Is(err, errLost) || errors.Is(err, ErrStateFile) {
			return backoff.Permanent(err)
		}
		return err
	}, pauses)
	if err != nil {
		return fmt.Errorf("workerid: number %d stays blocked until %v: %w", c.number, time.UnixMilli(c.until).UTC(), err)
	}
	k.cfg.Log.Info("worker number given back", "number", c.number)
	return nil
}

// hold renews and reports the claim until ctx ends or the number must be
// given up.
func (k *Keeper) hold(ctx context.Context, c *claim) error {
	ctx, stop := context.WithCancelCause(ctx)
	var fencing sync.WaitGroup
	if k.file != nil {
		fencing.Go(func() {
			if err := k.keepFence(ctx, c); err != nil {
				stop(err)
			}
		})
	}
	defer fencing.Wait()
	defer stop(nil)
	for ctx.Err() == nil {
		if err := k.beat(ctx, c); err != nil {
			return err
		}
		k.rest(ctx, c)
	}
	if err := context.Cause(ctx); errors.Is(err, ErrStateFile) {
		return err
	}
	return nil
}

// keepFence keeps the fence of the state file ahead of the clock until ctx
// ends. It shares nothing with the registry's calls, which may hang. The
// error is [ErrStateFile].
func (k *Keeper) keepFence(ctx context.Context, c *claim) error {
	tick := time.NewTicker(fenceReach / 3)
	defer tick.Stop()
	for wait(ctx, tick) {
		if k.suspended.Load() {
			continue
		}
		limit, err := k.file.fence(k.cfg.Now, k.Status().Until, func(*state) {})
		if err != nil {
			return err
		}
		c.gen.Extend(limit)
	}
	return nil
}

// rest waits until the next heartbeat is due; it ends early if the clock was
// set, since that must be looked into at once.
func (k *Keeper) rest(ctx context.Context, c *claim) {
	due := time.Now().Add(min(k.cfg.Heartbeat, k.cfg.Horizon/6))
	tick := time.NewTicker(k.watch)
	defer tick.Stop()
	for time.Now().Before(due) && wait(ctx, tick) && !k.stepped() {
		k.behind(c)
	}
}

// wait waits for a tick and reports whether ctx goes on.
func wait(ctx context.Context, tick *time.Ticker) bool {
	select {
	case <-tick.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// stepped reports whether the clock was set since it was last looked at. A
// clock that was set farther than the others' may differ issues nothing until
// it has been compared with them.
func (k *Keeper) stepped() bool {
	d := k.clock.step(min(max(k.cfg.MaxAhead.Milliseconds(), k.cfg.Layout.Unit), k.tolerance()))
	if d == 0 {
		return false
	}
	step := time.Duration(d) * time.Millisecond
	k.clock.proven = false
	k.alarms.set(ClockStep, fmt.Sprintf("the clock was set by %v, or the machine slept", step))
	if step.Abs().Milliseconds() > k.tolerance() {
		k.suspend(fmt.Sprintf("the clock was set by %v and must be compared with the others' first", step))
	}
	return true
}

// behind returns by how much the clock must advance before c's generator
// issues again; 0 if requests can wait for that. That a clock has yet to reach
// the window of a new claim does not count: it was not set back. Nor does one
// that is not trusted anyway.
func (k *Keeper) behind(c *claim) time.Duration {
	now := k.cfg.Now()
	if time.Now().Before(c.begins) {
		now = max(now, c.from)
	}
	b, ok := errors.AsType[*snowflake.BehindError](c.gen.CheckAt(now))
	burst := time.Duration(k.cfg.Layout.Unit) * time.Millisecond // puts the generator a tick ahead, and no more
	if k.suspended.Load() || !ok || b.By < k.cfg.Deadline || b.By <= burst {
		k.alarms.clear(ClockBehind)
		return 0
	}
	k.alarms.set(ClockBehind, fmt.Sprintf("the clock is %v behind the IDs issued under number %d: %s", b.By, c.number, k.remedy(b.By)))
	return b.By
}

// beat compares the clock, renews the window if it is time, and reports, in
// this order: nothing is written by a clock that has not been compared. It
// returns an error only if the number must be given up.
func (k *Keeper) beat(ctx context.Context, c *claim) error {
	now, offset, err := k.check(ctx)
	right := err == nil
	if right {
		k.checked, k.checkedAt = now, time.Now()
		k.alarms.clear(ClockSkew)
		k.alarms.clear(ClockStep)
		k.warnOfEnd(now)
		err = c.renew(ctx, now)
	}
	if errors.Is(err, errLost) || errors.Is(err, ErrStateFile) {
		return err
	}
	// Before the first ID the record is read once more; if the registry is away
	// the window must do.
	c.looked = c.looked || err == nil || !right
	if err == nil {
		err = k.report(ctx, c)
	}
	if errors.Is(err, errClock) {
		k.alarms.set(ClockSkew, err.Error())
		k.suspend(err.Error())
	}
	if right && k.suspended.Swap(false) {
		k.cfg.Log.Info("snowflakes again", "number", c.number)
	}
	if c.looked && !k.suspended.Load() {
		k.use(c.gen)
	}
	k.mu.Lock()
	known := k.status.Trouble != nil
	k.status.Trouble = err
	if right || errors.Is(err, errClock) {
		k.status.Offset = offset
	}
	k.mu.Unlock()
	if err != nil && !known && ctx.Err() == nil {
		k.cfg.Log.Warn("the number is neither renewed nor reported; IDs are issued until its window ends, if the clock is right",
			"number", c.number, "until", time.UnixMilli(c.until).UTC(), "error", err)
	}
	if d := k.behind(c); right && k.reclaims(d) {
		return fmt.Errorf("%w: by %v", errBehind, d)
	}
	return nil
}

// warnOfEnd tells of the end of the time field, years before.
func (k *Keeper) warnOfEnd(now int64) {
	if l := k.cfg.Layout; l.EndsSoon(time.UnixMilli(now)) {
		k.alarms.set(TimeEnds, fmt.Sprintf("the time field of layout %s is full on %s: no snowflakes from then on; plan a new layout in a namespace of its own, `natsid layout` helps",
			l, l.Ends().Format(time.DateTime)))
	}
}

// report puts the heartbeat. Its time is that of the clock as it was compared:
// one that was set since must not be held against the others.
func (k *Keeper) report(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.cfg.Registry.Report(ctx, c.number, Heartbeat{Instance: k.instance, Time: k.checked + time.Since(k.checkedAt).Milliseconds(), Since: c.since})
}

func (k *Keeper) setUntil(until int64) {
	k.mu.Lock()
	k.status.Until = until
	k.mu.Unlock()
}
