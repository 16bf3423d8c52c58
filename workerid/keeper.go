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

// Config is the settings of a keeper. Registry, Layout, Now and Use must be set.
type Config struct {
	// Registry keeps the records and heartbeats.
	Registry Registry
	// Layout is the layout of the IDs; all workers of a registry must have the same.
	Layout snowflake.Layout
	// Site is the site of this worker, and Numbers are the worker numbers that it may take; nil means those of its site
	// that the deployment leaves to workers. Uniqueness does not depend on them.
	Site    int
	Numbers *Span
	// Program is the host of a program that draws its own snowflakes; "" for a worker. A program answers no requests,
	// founds no deployment, and takes only numbers that the deployment leaves to programs.
	//
	// Law: none is new. Its windows are those of a worker, by rules (1) to (4) of docs/uniqueness.md. Which numbers it
	// takes has no part in them.
	Program string
	// Instance names this worker to people; "" takes the name in the state file, or a new one.
	Instance string
	// StateDir is the directory of the state file; "" keeps no local state.
	// The caller must have locked it against other processes.
	StateDir string
	// Horizon is how far ahead a renewal puts the end of the window, and so how long snowflakes outlast the registry;
	// 5 min if 0.
	Horizon time.Duration
	// Rest is how long a number rests at the end of each window, beyond the horizon: nothing is issued then. So nobody
	// takes the number before its user, which may be paused, has had that time to learn that it is over. 0 is none.
	Rest time.Duration
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

// String returns the span as [ParseSpan] reads it, or none.
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

// Within returns an error unless a worker of a site may be limited to these numbers.
func (s Span) Within(l snowflake.Layout, site int) error {
	if all := NumbersOf(l, site); s.First > s.Last || !all.has(s.First) || !all.has(s.Last) {
		return fmt.Errorf("%d-%d: want numbers of layout %s, site %d: %s at most", s.First, s.Last, l, site, all)
	}
	return nil
}

// withDefaults returns the settings with a value for every optional field but the name.
func (cfg Config) withDefaults() Config {
	cfg.Horizon = cmp.Or(cfg.Horizon, DefaultHorizon)
	cfg.MaxClockSkew = cmp.Or(cfg.MaxClockSkew, time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Alarm == nil {
		cfg.Alarm = func(Alarm, string) {}
	}
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

// margin returns how far the last ID of a worker with a correct clock may be ahead of this clock: the skew, and how
// far IDs may run ahead of a clock.
func (cfg Config) margin() time.Duration {
	return cfg.MaxClockSkew + max(cfg.MaxAhead, cfg.unit()) + cfg.unit()
}

// heartbeatEvery is the time between two heartbeats, as Leaf's.
const heartbeatEvery = 3 * time.Second

// interval returns the time between two heartbeats: six come within a horizon.
func (cfg Config) interval() time.Duration { return min(heartbeatEvery, cfg.Horizon/6) }

// A Keeper acquires a worker number, renews its window, sends heartbeats for it,
// and releases it in the end. If the number is lost it acquires another.
type Keeper struct {
	cfg     Config
	process string // random, identifies this process to other workers
	life    *life

	// Only the goroutine of Run uses these.
	file      *stateFile
	unread    error // why the state file was ignored
	clock     *clock
	alarms    *alarms
	rand      *rand.Rand
	watch     time.Duration // interval between readings of the clock
	early     int64         // see maxEarly
	founder   founder
	numbers   numbers
	pending   *claim    // the claim whose first write was not acknowledged
	ended     *claim    // the claim whose window has passed; nil once its record was read
	awaySince time.Time // since when no attempt reached the registry; zero if the last one did
}

const (
	// watchEvery is the interval between checks of the clock for steps. It bounds how long a clock that was set far
	// may go into IDs, up to the fence. The checks cost an idle worker more than its heartbeats do. A clock that is
	// slewed by 2 % moves by less than MaxAhead in that time.
	watchEvery = 200 * time.Millisecond
	// A renewal comes up to horizon / maxEarly sooner than it must, by a random time per worker. Otherwise workers
	// that started at once would renew at once: each write is synced to disk, and all other calls would wait behind
	// the writes.
	maxEarly = 12
	// releaseTimeout bounds releasing a number.
	releaseTimeout = 6 * time.Second
)

// New returns a keeper. It reads the state file and starts nothing. A state file that is damaged, or was copied from
// another place, is ignored and reported by Run.
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
	k.founder.cfg = &k.cfg
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

// Who returns this worker's answer to the question who it is, and reports whether the worker holds a number. It is
// safe for concurrent use.
func (k *Keeper) Who() (who Who, held bool) { return k.whoAt(k.cfg.Now()) }

// whoAt is Who at a time on this worker's clock, Unix ms.
func (k *Keeper) whoAt(now int64) (who Who, held bool) {
	s, d := k.Status(), DeploymentOf(k.cfg.Layout)
	return Who{
		Instance: s.Instance, Process: k.process, Registry: s.Registry, Layout: d.Layout, Epoch: d.Epoch,
		Unit: d.Unit, Number: s.Number, Time: now, Until: s.Until, Program: k.cfg.Program,
	}, s.Held
}

// Run keeps a worker number until ctx ends, and then releases it. It returns nil after a clean stop, an error that
// wraps [ErrDeployment] if this worker must not join the registry at its start, or why the number could not be
// released: such a number stays blocked until its window ends.
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

// search finds a claim. It retries until ctx ends or, at the first search, the worker is refused.
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

// about returns a random time of half to one and a half of d, so that the workers of a fleet do not all call at once.
func about(r *rand.Rand, d time.Duration) time.Duration {
	return d/2 + time.Duration(r.Int64N(int64(d)))
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

// giveUp disposes of a closed claim, depending on why it ended; nil means that ctx ended. The error says why the number
// was not released.
//
// This worker answers for a lost number until no clock within the skew is behind its last ID: if the registry lost its
// state the number looks free, and its next owner must not begin before that time. Then it removes its heartbeat, as
// there may be no more numbers than workers.
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
	default:
		k.life.becomeSearching()
		if err = k.release(ctx, c); errors.Is(err, ErrStateFile) {
			k.dropFile(err)
		} else if err != nil {
			k.cfg.Log.Warn("a worker number was not released; it stays blocked until its window ends", "error", err)
		}
	}
	k.life.becomeSearching()
	return err
}

func (k *Keeper) raiseLost(why error) {
	k.cfg.Alarm(NumberLost, fmt.Sprintf("%v: this worker issues nothing more under it and acquires another; "+
		"find out who wrote the record, or whether the bucket was lost or restored", why))
}

// dropFile makes this worker continue without a state file: issuing without local state is better than not issuing.
// After a crash another number is acquired. The file keeps what it had: its fence is beyond all IDs under its claim,
// whose generator is closed.
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
	err := c.release(ctx)
	for err != nil && !isOver(err) && jitter.Sleep(ctx, 100*time.Millisecond) == nil {
		err = c.release(ctx)
	}
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
	if step.Abs().Milliseconds() > k.clock.tolerance {
		k.life.becomeSuspended(fmt.Sprintf("the clock was set by %v", step))
	}
}
