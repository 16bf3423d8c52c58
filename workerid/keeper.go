package workerid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/snowflake"
)

// Config is the settings of a keeper. Registry, Layout, Now, Use and Alarm must be set. A window is the time span in
// which a process owns its worker number, as the number's record in the registry says.
type Config struct {
	// Registry keeps the record and the heartbeat of each worker number.
	Registry Registry
	// Layout is the layout of the IDs. All workers of a registry must have the same one.
	Layout snowflake.Layout
	// Site is the site of this worker. Numbers limits which worker numbers this worker may take; nil means those of
	// its site that are not set aside for programs (see Program). IDs are unique whatever both say, since each
	// number is claimed in the registry.
	Site    int
	Numbers *Span
	// Program is set for a program that draws its own snowflakes: the name of its host; "" means a worker. A
	// program answers no requests, creates no deployment, and takes only the numbers set aside for programs.
	//
	// Law: a program acquires its windows as a worker does, so that they overlap those of no other owner.
	Program string
	// Instance is the name of this worker for operators; "" takes the name in the state file, or else a new name.
	Instance string
	// StateDir is the directory of the state file, which the caller has locked; "" keeps no local state.
	StateDir string
	// Horizon is how far ahead of the clock a renewal puts the end of the window; 5 min if 0. While the registry is
	// out of reach, snowflakes are issued for at least two thirds of the horizon.
	Horizon time.Duration
	// Rest is a time at the end of each window, beyond the horizon, in which this process issues nothing and nobody
	// else takes the number; 0 means none. So a user of the number that was paused may issue up to Rest too late. A
	// number with a Rest is released at a clean stop alone.
	Rest time.Duration
	// MaxClockSkew is how far the clocks of two workers may differ; 1 s if 0. A worker whose clock is farther off
	// issues nothing; that check allows at least 1 s, since it cannot distinguish a smaller skew from a slow
	// network. MaxClockSkew is also part of the margin, for which a number is not used if its last owner may be
	// alive.
	MaxClockSkew time.Duration
	// MaxAhead is how far the times of IDs may be ahead of the clock: see [snowflake.NewGenerator].
	MaxAhead time.Duration
	// MayFound is called before and after this worker creates the deployment, the entry with the layout, in a
	// registry without records. An error forbids that. Records may have been lost, so MayFound asks live workers
	// whether they have another layout. nil always allows.
	MayFound func(ctx context.Context) error
	// AtStop returns how long releasing the number may take, given the usual limit; nil keeps that limit. A number
	// that is not released stays blocked until its window ends.
	AtStop func(usual time.Duration) time.Duration
	// Now reads the wall clock, in Unix ms.
	Now func() int64
	// Use is called with each generator to issue from, and with nil when nothing may be issued.
	Use func(*snowflake.Generator)
	// Alarm is called, once per event, with a condition that an operator must look at. It must not block.
	Alarm func(kind Alarm, message string)
	// Granted is called with each window, after the write of the window was acknowledged and before an ID of the
	// window is issued; nil discards. It must not block.
	Granted func(Window)
	// Log receives changes of the number's state; nil discards.
	Log *slog.Logger
}

// DefaultHorizon is how far ahead a renewal puts the end of a window by default.
const DefaultHorizon = 5 * time.Minute

// A Span is worker numbers from First to Last, both included.
type Span struct{ First, Last int }

// ParseSpan reads the first and the last worker number, such as 512-1023.
func ParseSpan(text string) (s Span, err error) {
	_, err = fmt.Sscanf(text, "%d-%d", &s.First, &s.Last)
	if err != nil || text != fmt.Sprintf("%d-%d", s.First, s.Last) {
		return Span{}, errors.New("want the first and the last number, such as 512-1023")
	}
	return s, nil
}

// String returns the span as [ParseSpan] reads it, or the word none if the span is empty.
func (s Span) String() string {
	if s.First > s.Last {
		return "none"
	}
	return fmt.Sprintf("%d-%d", s.First, s.Last)
}

// NumbersOf returns all numbers of a site.
func NumbersOf(l snowflake.Layout, site int) Span {
	first, count := l.Numbers(site)
	return Span{first, first + count - 1}
}

func (s Span) count() int { return s.Last - s.First + 1 }

func (s Span) has(w int) bool { return s.First <= w && w <= s.Last }

// Within returns nil if the span is not empty and the site has all its numbers; otherwise an error.
func (s Span) Within(l snowflake.Layout, site int) error {
	if all := NumbersOf(l, site); s.First > s.Last || !all.has(s.First) || !all.has(s.Last) {
		return fmt.Errorf("%d-%d: want numbers of layout %s, site %d: %s at most", s.First, s.Last, l, site, all)
	}
	return nil
}

func (cfg Config) withDefaults() Config {
	cfg.Horizon = cmp.Or(cfg.Horizon, DefaultHorizon)
	cfg.MaxClockSkew = cmp.Or(cfg.MaxClockSkew, time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.AtStop == nil {
		cfg.AtStop = func(usual time.Duration) time.Duration { return usual }
	}
	if cfg.MayFound == nil {
		cfg.MayFound = func(context.Context) error { return nil }
	}
	if cfg.Granted == nil {
		cfg.Granted = func(Window) {}
	}
	return cfg
}

// unit returns the length of a tick.
func (cfg Config) unit() time.Duration { return time.Duration(cfg.Layout.Unit) * time.Millisecond }

// margin returns how far the last ID of another worker, whose clock is right, may be ahead of this clock: the skew
// of the clocks, plus how far IDs may run ahead of a clock.
func (cfg Config) margin() time.Duration {
	return cfg.MaxClockSkew + max(cfg.MaxAhead, cfg.unit()) + cfg.unit()
}

// heartbeatEvery is the longest time between two heartbeats, the same as Leaf's.
const heartbeatEvery = 3 * time.Second

// interval returns the time between two heartbeats. At least six fit into a horizon.
func (cfg Config) interval() time.Duration { return min(heartbeatEvery, cfg.Horizon/6) }

// A Keeper acquires a worker number, renews its window (the time span in which this process owns the number), sends
// heartbeats, and releases the number in the end. If the number is lost, the keeper acquires another.
type Keeper struct {
	cfg     Config
	process string // random; identifies this process to other workers
	life    *life

	// Only the goroutine of Run uses these.
	file      *stateFile
	unread    error // why the state file was ignored
	clock     *clock
	alarms    *alarms
	rand      *rand.Rand
	watch     time.Duration // interval between checks of whether the clock was set
	early     int64         // how much sooner this worker renews, ms: see maxEarly
	founding  bool          // this worker has created the deployment, and MayFound must allow that once more
	numbers   numbers
	pending   *claim    // a claim whose first write was not acknowledged; nil if there is none
	ended     *claim    // a claim whose window has passed; nil once its record was read
	awaySince time.Time // when the registry stopped answering; zero while it answers
}

const (
	// watchEvery is the interval between checks of whether the clock was set. If it was set far ahead, IDs may have
	// its time until the next check, up to the fence (the time in the state file below which IDs may be issued).
	// More frequent checks would cost too much: these cost an idle worker more than its heartbeats do. A clock that
	// is slewed by 2 % moves by less than MaxAhead in watchEvery.
	watchEvery = 200 * time.Millisecond
	// maxEarly is the part of the horizon, horizon / maxEarly, by which a renewal may come sooner than it must;
	// each worker takes a random time up to that. Otherwise workers that started together would renew together, and
	// all other calls would wait while JetStream syncs each write to disk.
	maxEarly = 12
	// releaseTimeout bounds releasing a number.
	releaseTimeout = 6 * time.Second
)

// New returns a keeper, which acquires a worker number once it runs. New reads the state file. One that is damaged, or
// was written on another machine or in another directory, is ignored, and Run raises an alarm.
func New(cfg Config) *Keeper {
	cfg = cfg.withDefaults()
	file, unread := openState(cfg.StateDir, cfg.Layout.Unit, cfg.Now)
	if cfg.Instance == "" {
		cfg.Instance = instanceOf(file)
	}
	k := &Keeper{
		cfg: cfg, process: newToken(), file: file, unread: unread, watch: watchEvery,
		life: newLife(cfg.Instance, cfg.Use, cfg.Log), numbers: numbersOf(cfg),
		alarms: &alarms{raise: cfg.Alarm, on: make(map[Alarm]bool)},
	}
	k.clock = &clock{
		cfg: &k.cfg, onStep: k.stepped, tolerance: max(cfg.MaxClockSkew, precision).Milliseconds(),
	}
	k.clock.slack = min(max(cfg.MaxAhead, cfg.unit()).Milliseconds(), k.clock.tolerance)
	k.chooseBy(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	return k
}

// chooseBy makes r the source of all random choices.
func (k *Keeper) chooseBy(r *rand.Rand) {
	k.rand, k.clock.rand = r, r
	k.early = r.Int64N(k.cfg.Horizon.Milliseconds()/maxEarly + 1)
}

// instanceOf returns the name in the state file, else a new one that contains the host's name and a random part.
func instanceOf(file *stateFile) string {
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

// Who returns how this worker answers on the subject of its number. It is safe for concurrent use.
func (k *Keeper) Who() Who { return Who{k.cfg.Instance, k.process} }

// Run keeps a worker number until ctx ends, and then releases it. It returns nil after a clean stop. If the
// registry has another layout at the start, the error wraps [ErrDeployment]. If the number could not be released,
// the error says why: the number then stays blocked until its window ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.clock.start(k.file.isIn)
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
		k.life.becomeHolding(c)
		why := k.hold(ctx, c)
		c.grant(Closed, k.life.becomeClosed(c, why))
		if err := k.giveUp(ctx, c, why); ctx.Err() != nil {
			return err
		}
	}
}

// search finds a claim: a worker number with its window. It retries until ctx ends or, if first is true, the registry
// has another layout.
func (k *Keeper) search(ctx context.Context, first bool) (*claim, error) {
	wait := 100 * time.Millisecond
	k.awaySince = time.Time{}
	var logged time.Time
	for {
		c, err := k.find(ctx)
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
		if err := jitter.Sleep(ctx, about(k.rand, wait)); err != nil {
			return nil, err
		}
		wait = min(wait*3/2, 5*time.Second)
	}
}

// about returns a random time of half to one and a half of d, so that workers do not all call at once.
func about(r *rand.Rand, d time.Duration) time.Duration {
	return d/2 + time.Duration(r.Int64N(int64(d)))
}

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

// giveUp ends the use of a claim whose generator is closed. The parameter why is the reason; nil means that ctx
// ended. The error says why the number was not released.
//
// A lost number looks free to others if the registry lost its state. So this worker answers for a lost number until the
// clocks of all workers, within the skew, have passed its last ID. Then it removes its heartbeat, so that the number
// can be acquired: all other numbers may be in use.
func (k *Keeper) giveUp(ctx context.Context, c *claim, why error) (err error) {
	switch {
	case errors.Is(why, errLost):
		k.raiseLost(why)
		if err := k.file.forget(nil); err != nil { //mutant:forget-lost
			k.dropFile(err)
		}
		if jitter.Sleep(ctx, k.cfg.margin()) == nil {
			_ = c.leave(ctx) // otherwise it expires
		}
	case errors.Is(why, ErrStateFile):
		k.dropFile(why)
	case errors.Is(why, errEnded):
		k.ended = c
	case why != nil && k.cfg.Rest > 0: //mutant:rests
		// The number stays blocked until its window ends: its user may be paused, and issue an ID under it later.
	default:
		k.life.becomeSearching()
		if err = k.release(ctx, c); errors.Is(err, ErrStateFile) {
			k.dropFile(err)
		} else if err != nil {
			k.cfg.Log.Warn("a worker number was not released; nothing to do: others get other numbers", "error", err)
		}
	}
	k.life.becomeSearching()
	return err
}

func (k *Keeper) raiseLost(why error) {
	k.cfg.Alarm(NumberLost, fmt.Sprintf("%v: this worker issues nothing more under it and acquires another; "+
		"find out who wrote the record, or whether the bucket was lost or restored", why))
}

// dropFile makes this worker continue without its state file, so that a bad disk does not stop it. After a crash the
// next process then acquires another number. The file is left as it is, which is safe: the fence in it, from which a
// later process may issue, is above all IDs issued under its number, and this process issues none there any more.
func (k *Keeper) dropFile(why error) {
	if !k.file.absent {
		k.file.absent = true
		k.cfg.Alarm(StateFile, fmt.Sprintf("%v: this worker continues without it, under another number, "+
			"and cannot resume that after a crash; fix the disk and restart the worker", why))
	}
}

func (k *Keeper) release(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.AtStop(releaseTimeout))
	defer cancel()
	until := time.UnixMilli(c.until.Load()).UTC().Format(time.RFC3339) // c.release lowers c.until at once
	err := c.release(ctx)
	for err != nil && !isOver(err) && jitter.Sleep(ctx, 100*time.Millisecond) == nil {
		err = c.release(ctx)
	}
	if err != nil {
		return fmt.Errorf("workerid: number %d was not released and stays blocked until %s: %w", c.number, until, err)
	}
	k.cfg.Log.Info("worker number released", "number", c.number)
	return nil
}

// stepped handles a step of the clock: the clock was set. After a step beyond the tolerance nothing is issued until
// the clock was compared with the other workers': otherwise IDs would have a wrong time until the next heartbeat.
func (k *Keeper) stepped(step time.Duration) {
	k.alarms.set(ClockStep, fmt.Sprintf("the clock was set by %v, or the machine slept: "+
		"it is compared with the other workers' at once; find out what set it", step))
	if step.Abs().Milliseconds() > k.clock.tolerance {
		k.life.becomeSuspended(fmt.Sprintf("the clock was set by %v", step))
	}
}
