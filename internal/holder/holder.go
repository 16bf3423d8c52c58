// Package holder holds a worker number for a program that draws its own snowflakes; it is internal to natsid and may
// change.
package holder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// A Config is the settings of a [Holder]; package number describes them. A zero field is its default.
type Config struct {
	Namespace subjects.Namespace
	JSDomain  string
	JSPrefix  string
	Layout    snowflake.Layout
	Site      int
	Dir       string
	Name      string
	// Fit returns which of the numbers set aside for programs this program can take; nil takes all.
	Fit          func(l snowflake.Layout, programs workerid.Span) (workerid.Span, error)
	Rest         time.Duration // see workerid.Config
	Horizon      time.Duration
	MaxClockSkew time.Duration
	OnChange     func(error)
	Log          *slog.Logger
}

// A Holder keeps a worker number as a worker does, with the same keeper and the same registry, but answers no
// requests for IDs. It is safe for concurrent use.
//
// Law: no other process issues the same IDs. The keeper's windows overlap no other owner's, and the generator issues
// each position of a window once, as rules (1) to (4) of docs/uniqueness.md demand. Before its first ID a holder
// answers on the subject of its number, so that no worker takes the number for free. It creates no registry. It issues
// nothing while the workers of its registry report that they have stopped because a second registry serves the same
// subjects.
type Holder struct {
	cfg    Config
	nc     *nats.Conn // the holder's own
	keeper *workerid.Keeper
	layout snowflake.Layout
	issuer *issuer.Issuer // has no generator while nothing may be issued

	mu       sync.Mutex
	offered  *snowflake.Generator // the keeper's; nil while the keeper has none
	answered int                  // the number on whose subject this holder answers, confirmed by the server; -1: none
	stopped  error                // why the workers of the registry allow no IDs; nil if they do

	stop   func()        // makes keep end, and does not wait
	ended  chan struct{} // closed when keep has ended; err is set before
	err    error         // of the keeper
	unlock func()        // unlocks Dir
}

const (
	// patience bounds Open if its context has no deadline. A first ID may have to wait for seconds: until the owner
	// before cannot issue any more or, after a crash, until the clock is past all that may have been issued.
	patience = 15 * time.Second
	// askTimeout bounds a question to the server or to JetStream. A server before 2.10 does not say what a user may do.
	askTimeout = 2 * time.Second
	// maxName bounds a name, in bytes: each record and heartbeat contains it.
	maxName = 128
)

// Open acquires a number. It returns once an ID can be issued, or with the reason why none can.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Holder, error) {
	if nc == nil {
		return nil, errors.New("no connection: did nats.Connect return an error?")
	}
	cfg.Namespace = cmp.Or(cfg.Namespace, subjects.DefaultNamespace)
	cfg.Horizon = cmp.Or(cfg.Horizon, workerid.DefaultHorizon)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if err := cfg.Namespace.Check(); err != nil {
		return nil, err
	}
	if s := cfg.MaxClockSkew; s < 0 || s > time.Minute {
		return nil, fmt.Errorf("a clock skew of %v: want 1ms to 1m, as the workers' --max-clock-skew", s)
	}
	if cfg.JSDomain != "" && cfg.JSPrefix != "" {
		return nil, errors.New("JSDomain and JSPrefix exclude each other: give one")
	}
	if len(cfg.Name) > maxName {
		return nil, fmt.Errorf("a name of %d bytes: want at most %d", len(cfg.Name), maxName)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	h := &Holder{
		cfg: cfg, answered: -1, stopped: errNotAsked, stop: func() {}, ended: make(chan struct{}), unlock: func() {},
	}
	if err := h.start(ctx, nc); err != nil {
		h.nc.Close()
		h.unlock()
		return nil, err
	}
	for {
		issues, err := h.state()
		if issues {
			return h, nil
		}
		select {
		case <-h.ended:
			return nil, h.err
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%w: %w", ctx.Err(), err), h.Close())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// start starts the keeper, which acquires the worker number and keeps it.
func (h *Holder) start(ctx context.Context, nc *nats.Conn) (err error) {
	cfg := h.cfg
	if cfg.Dir != "" {
		unlock, err := durable.Lock(cfg.Dir)
		if err != nil {
			return fmt.Errorf("directory %s: %w; give each process one of its own", cfg.Dir, err)
		}
		h.unlock = unlock
	}
	if h.nc, err = h.dial(ctx, nc.Opts); err != nil {
		return fmt.Errorf("connecting as the given connection: %w", err)
	}
	if err := h.checkRights(ctx); err != nil {
		return err
	}
	js, err := buckets.Connect(h.nc, cfg.JSDomain, cfg.JSPrefix)
	if err != nil {
		return err
	}
	registry := kvregistry.New(js, kvregistry.Config{
		History: wire.HistoryBucket(cfg.Namespace), Workers: wire.WorkerBucket(cfg.Namespace), Existing: true,
		WorkerSubject: func(w int) string { return wire.Worker(cfg.Namespace, w) }, Log: cfg.Log,
	})
	fits, err := h.findLayout(ctx, registry)
	if err != nil {
		return err
	}
	h.issuer = issuer.New(3*max(snowflake.DefaultMaxAhead, h.tick()), 0, now)
	host, _ := os.Hostname()
	h.keeper = workerid.New(workerid.Config{
		Registry: registry, Layout: h.layout, Site: cfg.Site, Numbers: fits, Instance: cfg.Name,
		Program: cmp.Or(host, "unknown host"), StateDir: cfg.Dir, Horizon: cfg.Horizon,
		Rest: cfg.Rest, MaxClockSkew: cfg.MaxClockSkew, MaxAhead: snowflake.DefaultMaxAhead,
		Now: now, Use: func(g *snowflake.Generator) { h.settle(func() { h.offered = g }) }, Log: cfg.Log,
		Alarm: func(kind workerid.Alarm, message string) { cfg.Log.Error(message, "alarm", kind) },
	})
	keeping, stop := context.WithCancel(context.Background())
	h.stop = stop
	go h.keep(keeping)
	return nil
}

// keep runs the keeper until ctx ends.
//
// Law: the keeper closes the generator, and then lowers the end of the window, from which the next owner issues. Until
// the generator is closed this holder answers for the number, so that no other process takes it.
func (h *Holder) keep(ctx context.Context) {
	defer close(h.ended)
	living, quit := context.WithCancel(context.Background())
	var rest sync.WaitGroup
	rest.Go(func() { h.live(living) })
	h.err = h.keeper.Run(ctx)
	quit()
	rest.Wait()
	h.nc.Close()
	h.unlock()
}

// dial makes the holder's own connection with the options of the given one: writes of the keeper must not wait
// behind the program's messages, nor in a buffer while the connection is lost (see [kvregistry.Options]). The NATS
// library tries one server after the other, and takes no context. So a late attempt ends in the background.
func (h *Holder) dial(ctx context.Context, opts nats.Options) (*nats.Conn, error) {
	opts.Verbose, opts.Pedantic = false, false // a pedantic server may close the connection for good
	opts.Name, opts.NoEcho, opts.AllowReconnect, opts.IgnoreAuthErrorAbort = "natsid number", false, true, true
	opts.ClosedCB, opts.DisconnectedCB, opts.DisconnectedErrCB, opts.ReconnectedCB = nil, nil, nil, nil
	opts.ConnectedCB, opts.DiscoveredServersCB, opts.LameDuckModeHandler, opts.ReconnectErrCB = nil, nil, nil, nil
	opts.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if missing := buckets.MissingRight(err); missing != nil {
			err = missing
		}
		h.cfg.Log.Error("NATS reports an error", "error", err)
	}
	for _, o := range kvregistry.Options() {
		if err := o(&opts); err != nil {
			return nil, err
		}
	}
	var nc *nats.Conn
	made := make(chan error, 1)
	go func() {
		var err error
		nc, err = opts.Connect()
		made <- err
	}()
	select {
	case err := <-made:
		return nc, err
	case <-ctx.Done():
		go func() { <-made; nc.Close() }()
		return nil, fmt.Errorf("no server answers: %w", ctx.Err())
	}
}

// checkRights returns an error that lists the rights that the NATS user lacks; nil if the server reports no rights.
func (h *Holder) checkRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	held, err := rights.Ask(ctx, h.nc)
	if err != nil {
		return nil
	}
	missing := rights.Of(rights.Holder, rights.Deployment{
		Namespace: h.cfg.Namespace, InboxPrefix: h.nc.Opts.InboxPrefix, JSDomain: h.cfg.JSDomain,
		JSPrefix: h.cfg.JSPrefix,
	}).Missing(held).String()
	if missing == "" {
		return nil
	}
	return fmt.Errorf("this user of NATS may not %s: `natsid permissions holder` prints all that it needs", missing)
}

// findLayout sets the layout: that of Config, or else the registry's or, while the registry does not answer, that of
// the state file. It returns the numbers that Fit allows; nil means all numbers of programs. The keeper later refuses a
// layout that is not the registry's.
func (h *Holder) findLayout(ctx context.Context, registry workerid.Registry) (fits *workerid.Span, err error) {
	d := workerid.DeploymentIn(h.cfg.Dir)
	for {
		attempt, cancel := context.WithTimeout(ctx, askTimeout)
		have, err := registry.Deployment(attempt)
		cancel()
		switch {
		case err == nil:
			d = have
		case errors.Is(err, buckets.ErrNoBucket), errors.Is(err, workerid.ErrNoDeployment):
			return nil, fmt.Errorf("no natsid worker has started in this namespace (%s): start one first, or check "+
				"the connection and the namespace", h.cfg.Namespace)
		case errors.Is(err, workerid.ErrDamaged), errors.Is(err, buckets.ErrUnfit):
			return nil, err
		case d.ID == "":
			if jitter.Sleep(ctx, jitter.Around(200*time.Millisecond)) != nil {
				return nil, err
			}
			continue
		}
		break
	}
	l, err := d.SnowflakeLayout()
	h.layout = cmp.Or(h.cfg.Layout, l)
	if err = cmp.Or(err, h.layout.Validate()); err != nil {
		return nil, err
	}
	if s := h.cfg.Site; s < 0 || s >= l.Sites() {
		return nil, fmt.Errorf("site %d: want 0 to %d, since layout %s has %d site bits", s, l.Sites()-1, l, l.Site)
	}
	if h.cfg.Fit == nil || h.layout != l {
		return nil, nil
	}
	programs, err := d.Holders.Of(l, h.cfg.Site)
	if err != nil {
		return nil, err
	}
	span, err := h.cfg.Fit(l, programs)
	return &span, err
}

// Number returns the worker number that is held, and reports whether one is.
func (h *Holder) Number() (number int, held bool) {
	s := h.keeper.Status()
	return s.Number, s.Held
}

// Until returns the end of the window.
func (h *Holder) Until() time.Time { return time.UnixMilli(h.keeper.Status().Until) }

// Layout returns the layout of the IDs.
func (h *Holder) Layout() snowflake.Layout { return h.layout }

// tick returns the length of a tick.
func (h *Holder) tick() time.Duration { return time.Duration(h.layout.Unit) * time.Millisecond }

// Close ends issuing for good and gives the number back. The error says why the number was not released: then the
// number stays blocked until its window ends. Closing again changes nothing.
func (h *Holder) Close() error {
	h.stop()
	<-h.ended
	return h.err
}

func now() int64 { return time.Now().UnixMilli() }
