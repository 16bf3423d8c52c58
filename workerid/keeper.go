package workerid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/natsid/natsid/snowflake"
)

// Config is the settings of a keeper. Registry, Layout, Now and Use must be set.
type Config struct {
	// Registry keeps the records and heartbeats.
	Registry Registry
	// Layout is the layout of the IDs; all workers of a registry must have the same.
	Layout snowflake.Layout
	// Site is this worker's site, in a layout with site bits: the worker acquires only numbers of its own site.
	Site int
	// Numbers are the numbers of its site that this worker may take; nil means all. Uniqueness does not depend on
	// them: they restrict which numbers this worker acquires, and nothing else.
	Numbers *Span
	// Instance names this worker to people; "" takes the name in the state file, or a new one.
	Instance string
	// StateDir is the directory of the state file; "" keeps no local state.
	// The caller must have locked it against other processes.
	StateDir string
	// Horizon is how far ahead a renewal puts the end of the window, and so how long snowflakes outlast the registry;
	// 5 min if 0.
	Horizon time.Duration
	// Heartbeat is the time between two heartbeats; 3 s if 0, as Leaf's.
	Heartbeat time.Duration
	// MaxClockSkew is how far the clocks of two workers may differ; 1 s if 0. A worker whose clock is farther from
	// the others' does not issue; for that check less than 1 s counts as 1 s, since it cannot be distinguished from a
	// slow network. A number whose record is absent or unreadable is used only that much later, since a bucket may
	// have been lost while the owner of the number is alive.
	MaxClockSkew time.Duration
	// MaxAhead is passed to the generators; see [snowflake.NewGenerator].
	MaxAhead time.Duration
	// MayFound is called before and after this worker creates the deployment of a registry that has none; an error
	// refuses. It finds workers that issue under another layout, whose deployment that registry has lost. nil allows.
	MayFound func(ctx context.Context) error
	// AtStop returns how long releasing the number may take, given the usual limit; nil returns that limit. A number
	// that is not released stays blocked until its window ends.
	AtStop func(usual time.Duration) time.Duration
	// Now reads the wall clock, in Unix ms.
	Now func() int64
	// Use is called with the generator to issue from; nil while there is none.
	Use func(*snowflake.Generator)
	// Alarm is called, once per event, with a condition that an operator must look at; nil discards. It must not
	// block.
	Alarm func(kind Alarm, message string)
	// Granted is called with each window, after its write was acknowledged and before an ID of it is issued; nil
	// discards. It must not block. Uniqueness does not depend on it.
	Granted func(Window)
	// Log receives changes of the number's state; nil discards.
	Log *slog.Logger
}

// A Span is worker numbers from First to Last, both included.
type Span struct{ First, Last int }

func (s Span) count() int { return s.Last - s.First + 1 }

func (s Span) has(w int) bool { return s.First <= w && w <= s.Last }

// Within returns an error unless a worker of a site may be limited to these numbers.
func (s Span) Within(l snowflake.Layout, site int) error {
	first, count := l.Numbers(site)
	if all := (Span{first, first + count - 1}); s.First > s.Last || !all.has(s.First) || !all.has(s.Last) {
		return fmt.Errorf("%d-%d: want numbers of layout %s, site %d: %d-%d at most",
			s.First, s.Last, l, site, all.First, all.Last)
	}
	return nil
}

// numbers returns the numbers that this worker may take.
func (cfg Config) numbers() Span {
	if cfg.Numbers != nil {
		return *cfg.Numbers
	}
	first, count := cfg.Layout.Numbers(cfg.Site)
	return Span{first, first + count - 1}
}

// withDefaults returns the settings with a value for every optional field.
func (cfg Config) withDefaults() Config {
	if cfg.Horizon == 0 {
		cfg.Horizon = 5 * time.Minute
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 3 * time.Second
	}
	if cfg.MaxClockSkew == 0 {
		cfg.MaxClockSkew = time.Second
	}
	if cfg.Alarm == nil {
		cfg.Alarm = func(Alarm, string) {}
	}
	if cfg.AtStop == nil {
		cfg.AtStop = func(usual time.Duration) time.Duration { return usual }
	}
	if cfg.MayFound == nil {
		cfg.MayFound = func(context.Context) error { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// margin returns how far the last ID of a worker with a correct clock may be ahead of this clock: the skew, and how
// far IDs may run ahead of a clock.
func (cfg Config) margin() time.Duration {
	unit := time.Duration(cfg.Layout.Unit) * time.Millisecond
	return cfg.MaxClockSkew + max(cfg.MaxAhead, unit) + unit
}

// tolerance returns how far the clock may be from the others', in ms. A call takes a while, and heartbeats are dated
// when they arrive: a comparison is not more precise than that.
func (cfg Config) tolerance() int64 { return max(cfg.MaxClockSkew, precision).Milliseconds() }

// A Keeper acquires a worker number, renews its window, sends heartbeats for it,
// and releases it in the end. If the number is lost it acquires another.
type Keeper struct {
	cfg   Config
	terms terms
	life  *lifecycle
	joins Deployment // the deployment of its IDs; without the registry's ID

	// Only the goroutine of Run uses these.
	unread  error // why the state file was ignored
	clock   *clock
	alarms  *alarms
	chooser *chooser
	rand    *rand.Rand
	watch   time.Duration // interval between readings of the clock
	answers time.Time     // until when this worker answers for a lost number
}

// watchEvery is the interval between checks of the clock for steps. It bounds how long a clock that was set far may
// go into IDs, up to the fence. The checks cost an idle worker more than its heartbeats do. A clock that is slewed by
// 2 % moves by less than MaxAhead in that time.
const watchEvery = 200 * time.Millisecond

// New returns a keeper. It reads the state file and starts nothing. A state file that is damaged, or was copied from
// another place, is ignored and reported by Run.
func New(cfg Config) *Keeper {
	cfg = cfg.withDefaults()
	file, unread := openState(cfg.StateDir, cfg.Layout.Unit, cfg.Now)
	k := &Keeper{
		cfg: cfg, joins: DeploymentOf(cfg.Layout), unread: unread, watch: watchEvery,
		alarms: newAlarms(cfg.Alarm),
		rand:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		terms: terms{
			registry: cfg.Registry, file: file, instance: instanceOf(cfg.Instance, file), process: newToken(),
			layout: cfg.Layout, horizon: cfg.Horizon, margin: cfg.margin(), maxAhead: cfg.MaxAhead, now: cfg.Now,
			granted: cfg.Granted,
		},
	}
	k.life = newLifecycle(k.terms.instance, cfg.Use, cfg.Log)
	k.clock = &clock{
		now: cfg.Now, registry: cfg.Registry, self: k.terms.instance, tolerance: cfg.tolerance(),
		slack:  min(max(cfg.MaxAhead.Milliseconds(), cfg.Layout.Unit), cfg.tolerance()),
		onStep: k.stepped, rand: k.rand,
	}
	k.chooser = &chooser{
		terms: k.terms, mine: cfg.numbers(), clock: k.clock, alarms: k.alarms,
		rand: k.rand, log: cfg.Log,
		founder: founder{registry: cfg.Registry, layout: cfg.Layout, rand: k.rand, mayFound: cfg.MayFound},
		joined: func(registry string, offset time.Duration) {
			k.life.note(func(s *Status) { s.Registry, s.Offset = registry, offset })
		},
	}
	return k
}

// instanceOf returns the name that was set, else the name in the state file, else a new one that contains the host's
// name and a random part.
func instanceOf(set string, file *stateFile) string {
	if set != "" {
		return set
	}
	if file.Instance != "" {
		return file.Instance
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%s", host, newToken()[:6])
}

// Status returns the present status of the keeper. It is safe for concurrent use.
func (k *Keeper) Status() Status { return k.life.current() }

// Who returns this worker's answer to the question who it is, and reports whether the worker holds a number. It is
// safe for concurrent use.
func (k *Keeper) Who() (who Who, held bool) { return k.whoAt(k.cfg.Now()) }

// whoAt is Who at a time on this worker's clock, Unix ms.
func (k *Keeper) whoAt(now int64) (who Who, held bool) {
	s, d := k.Status(), &k.joins
	return Who{
		Instance: s.Instance, Process: k.terms.process, Registry: s.Registry, Layout: d.Layout, Epoch: d.Epoch,
		Unit: d.Unit, Number: s.Number, Time: now, Until: s.Until,
	}, s.Held
}

// Run keeps a worker number until ctx ends, and then releases it. It returns nil after a clean stop, an error that
// wraps [ErrDeployment] if this worker must not join the registry at its start, or why the number could not be
// released: such a number stays blocked until its window ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.clock.start(k.terms.file.isIn)
	if k.unread != nil {
		k.cfg.Alarm(StateFile, fmt.Sprintf("%v: it is ignored, and another worker number acquired; "+
			"nothing to do unless it recurs: then check the disk, and whether the data directory is copied", k.unread))
	}
	for first := true; ; first = false {
		c, err := k.search(ctx, first)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		why := k.awaitLinger(ctx, c)
		if why != nil && ctx.Err() != nil {
			return k.abandon(ctx, c)
		}
		if why == nil {
			k.life.becomeHolding(c)
			// A remembered claim may end before the times that this claim issues: it must not be continued.
			k.chooser.unconfirmed, k.chooser.ended, k.chooser.lost = nil, nil, nil //mutant:begin
			why = k.holder(c).hold(ctx)
		}
		c.report(Closed, k.life.becomeClosed(c, why))
		if stop, err := k.giveUp(ctx, c, why); stop {
			return err
		}
	}
}

// abandon releases, at the stop, a claim that was never held.
func (k *Keeper) abandon(ctx context.Context, c *claim) error {
	c.report(Closed, c.gen.Close())
	k.life.becomeReleasing()
	return k.release(ctx, c)
}

// search finds a claim. It retries until ctx ends or, at the first search, the worker is refused.
func (k *Keeper) search(ctx context.Context, first bool) (*claim, error) {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithRandomizationFactor(0), // pause adds randomness
		backoff.WithMaxElapsedTime(0))
	k.chooser.awaySince, k.chooser.exhausted = time.Time{}, 0
	var logged time.Time
	late := 0 // consecutive attempts without an answer in time
	for {
		if !time.Now().Before(k.answers) {
			k.life.becomeSearching()
		}
		c, err := k.chooser.find(ctx)
		if err == nil {
			k.alarms.clear(ClockSkew)
			k.alarms.clear(NumbersExhausted)
			return c, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrDeployment) && first {
			return nil, err
		}
		k.notFound(err)
		if time.Since(logged) > time.Minute { // the first failure, and one each minute
			logged = time.Now()
			k.cfg.Log.Warn("no snowflakes: there is no worker number yet; this worker keeps trying", "error", err)
		}
		next := pauses.NextBackOff()
		if late++; !errors.Is(err, context.DeadlineExceeded) {
			late = 0
		}
		if late > 0 { // hundreds of workers that retry at once keep a busy registry from answering any
			next = max(next, min(time.Second<<min(late-1, 16), maxLate))
		}
		pause := k.pause(next, err)
		if left := time.Until(k.answers); left > 0 {
			pause = min(pause, left)
		}
		if !k.wait(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// wait waits for d and reports whether ctx has not ended.
func (k *Keeper) wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// notFound records why an attempt to find a claim failed.
func (k *Keeper) notFound(err error) {
	switch {
	case errors.Is(err, ErrStateFile):
		k.dropFile(err)
	case errors.Is(err, errClock):
		k.alarms.set(ClockSkew, err.Error())
	case errors.Is(err, ErrExhausted):
		k.alarms.set(NumbersExhausted, err.Error())
	case isRefused(err):
		k.alarms.set(RegistryConflict, err.Error())
	}
	k.life.note(func(s *Status) { s.Trouble = err })
}

// pause returns how long to wait after a failed attempt: a random time of half to one and a half of d, within the
// bounds of the error if that is a *waitError.
func (k *Keeper) pause(d time.Duration, err error) time.Duration {
	about := func(d time.Duration) time.Duration { return d/2 + time.Duration(k.rand.Int64N(int64(d))) }
	w, ok := errors.AsType[*waitError](err)
	if !ok {
		return about(d)
	}
	return min(about(max(d, w.atLeast)), w.atMost+about(min(w.atMost/4+1, 250*time.Millisecond)))
}

// holder returns a holder of c.
func (k *Keeper) holder(c *claim) *holder {
	c.early = k.rand.Int64N(k.cfg.Horizon.Milliseconds()/maxEarly + 1)
	return &holder{
		claim: c, clock: k.clock, alarms: k.alarms, life: k.life, log: k.cfg.Log, watch: k.watch,
		interval: min(k.cfg.Heartbeat, k.cfg.Horizon/6),
	}
}

// giveUp disposes of a closed claim, depending on why, and reports whether the keeper stops.
func (k *Keeper) giveUp(ctx context.Context, c *claim, why error) (stop bool, err error) {
	taken := errors.Is(why, errTaken) || errors.Is(why, errUnknown)
	k.chooser.gaveUpOwn = taken || errors.Is(why, errBehind)
	switch {
	case errors.Is(why, errLost), errors.Is(why, ErrDeployment):
		k.cfg.Alarm(NumberLost, fmt.Sprintf("%v: this worker issues nothing more under it and acquires another; "+
			"find out who wrote the record, or whether the bucket was lost or restored", why))
		k.linger()
		k.chooser.lost = c
		if err := c.file.forget(nil); err != nil { //mutant:forget-lost
			k.dropFile(err)
		}
	case ctx.Err() != nil:
		k.life.becomeReleasing()
		return true, k.release(ctx, c)
	case errors.Is(why, errEnded):
		k.chooser.ended = c
		k.life.becomeSearching()
	case taken, errors.Is(why, errBehind):
		k.life.becomeReleasing()
		err := k.release(ctx, c)
		if errors.Is(err, ErrStateFile) {
			k.dropFile(err)
		} else if err != nil {
			k.cfg.Log.Warn("a worker number was not released; it stays blocked until its window ends", "error", err)
		}
		k.life.becomeSearching()
	default:
		k.life.becomeSearching()
		k.dropFile(why)
	}
	return false, nil
}

// dropFile makes this worker continue without a state file: issuing without local state is better than not issuing.
// After a crash another number is acquired. The file is retried: see holder.retryFile.
func (k *Keeper) dropFile(why error) {
	if !k.terms.file.absent {
		k.terms.file.drop()
		k.cfg.Alarm(StateFile, fmt.Sprintf("%v: this worker continues without it, under another number, "+
			"and cannot resume that after a crash; fix the disk: the file is tried again every minute", why))
	}
}

// releaseTimeout bounds releasing a number.
const releaseTimeout = 6 * time.Second

func (k *Keeper) release(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.AtStop(releaseTimeout))
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
		return fmt.Errorf("workerid: number %d was not released and stays blocked until %v: %w",
			c.number, time.UnixMilli(c.until.Load()).UTC(), err)
	}
	k.cfg.Log.Info("worker number released", "number", c.number)
	return nil
}

// stepped handles a step of the clock. After a step beyond the tolerance nothing is issued until the clock has been
// compared with the others': until the next heartbeat the wrong time would go into IDs.
func (k *Keeper) stepped(step time.Duration) {
	k.alarms.set(ClockStep, fmt.Sprintf("the clock was set by %v, or the machine slept: "+
		"it is compared with the other workers' at once; find out what set it", step))
	if step.Abs().Milliseconds() > k.cfg.tolerance() {
		k.life.becomeSuspended(fmt.Sprintf("the clock was set by %v", step))
	}
}
