package workerid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
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
	// MaxClockSkew is how far the clocks of two workers may differ. A number
	// whose record is absent or unreadable is used from that much later on,
	// since a bucket may have been lost with its owner still alive; 1 s if 0.
	MaxClockSkew time.Duration
	// MaxAhead is the generators'; see [snowflake.NewGenerator].
	MaxAhead time.Duration
	// Now reads the wall clock, in Unix ms.
	Now func() int64
	// Use is told which generator to issue from; nil while there is none.
	Use func(*snowflake.Generator)
	// Log receives what happens to the number; nil discards.
	Log *slog.Logger
}

// A Keeper wins a worker number, renews its window, reports it to the others,
// and gives it back in the end.
type Keeper struct {
	cfg      Config
	process  string // random, names this process to the others
	instance string
	file     *stateFile // nil: no local state

	mu     sync.Mutex
	status Status
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
	// report; 0 before the first.
	Offset time.Duration
	// Trouble is why there is no number, or why the last renewal or report
	// failed; nil if all is well.
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{cfg: cfg, process: newToken(), instance: cfg.Instance}
	if cfg.StateDir != "" {
		k.file = &stateFile{path: filepath.Join(cfg.StateDir, "worker.json")}
		st, err := readState(k.file.path)
		if err != nil {
			cfg.Log.Error("the state file is ignored, another worker number will be taken", "error", err)
		}
		k.file.state = st
		if k.instance == "" {
			k.instance = st.Instance
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
		k.end(c, err)
		if ctx.Err() != nil && !errors.Is(err, errLost) {
			return k.release(ctx, c)
		}
	}
}

func (k *Keeper) begin(c *claim) {
	k.mu.Lock()
	k.status.Held, k.status.Number, k.status.Since, k.status.Trouble = true, c.number, c.since, nil
	k.mu.Unlock()
	k.cfg.Log.Info("worker number taken", "number", c.number, "instance", k.instance)
	k.cfg.Use(c.gen)
}

// end closes the generator of a claim, before anything else happens to it.
func (k *Keeper) end(c *claim, why error) {
	c.gen.Close()
	k.cfg.Use(nil)
	k.mu.Lock()
	k.status.Held, k.status.Number, k.status.Since, k.status.Until, k.status.Trouble = false, 0, 0, 0, why
	k.mu.Unlock()
	if why != nil {
		k.cfg.Log.Error("worker number given up", "number", c.number, "error", why)
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

// hold renews and reports the claim until ctx ends or the number is lost.
func (k *Keeper) hold(ctx context.Context, c *claim) error {
	ctx, stop := context.WithCancel(ctx)
	fenced := make(chan error, 1)
	var fencing sync.WaitGroup
	fencing.Go(func() { fenced <- k.keepFence(ctx, c) })
	defer fencing.Wait()
	defer stop()

	tick := time.NewTicker(min(k.cfg.Heartbeat, k.cfg.Horizon/6))
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := k.beat(ctx, c); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case err := <-fenced:
			if err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	return nil
}

// keepFence keeps the fence of the state file ahead of the clock. It shares
// nothing with the registry's calls, which may hang. An error, other than at
// the end of ctx, means that the file cannot be written.
func (k *Keeper) keepFence(ctx context.Context, c *claim) error {
	if k.file == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(fenceReach / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		limit, err := k.file.fence(k.cfg.Now(), k.Status().Until, nil)
		if err != nil {
			return err
		}
		c.gen.Extend(limit)
	}
}

// beat renews the window if it is time, and reports. It returns an error only
// if the number must be given up.
func (k *Keeper) beat(ctx context.Context, c *claim) error {
	err := c.renew(ctx)
	if errors.Is(err, errLost) || errors.Is(err, ErrStateFile) {
		return err
	}
	err = errors.Join(err, k.report(ctx, c))
	k.mu.Lock()
	known := k.status.Trouble != nil
	k.status.Trouble = err
	k.mu.Unlock()
	if err != nil && !known && ctx.Err() == nil {
		k.cfg.Log.Warn("the registry does not answer; IDs are issued until the window ends",
			"number", c.number, "until", time.UnixMilli(c.until).UTC(), "error", err)
	}
	return nil
}

// report puts the heartbeat and measures the clock's offset: against the
// middle of the call, when the registry's time was most likely read.
func (k *Keeper) report(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before := k.cfg.Now()
	at, err := k.cfg.Registry.Time(ctx)
	if err == nil {
		err = k.cfg.Registry.Report(ctx, c.number, Lease{Instance: k.instance, Time: k.cfg.Now(), Since: c.since})
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.status.Offset = time.Duration((before+k.cfg.Now())/2-at) * time.Millisecond
	k.mu.Unlock()
	return nil
}

func (k *Keeper) setUntil(until int64) {
	k.mu.Lock()
	k.status.Until = until
	k.mu.Unlock()
}
