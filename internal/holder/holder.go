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
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/durable"
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
	// Fit returns which numbers the program can take, of those that are for programs; nil takes all.
	Fit          func(programs workerid.Span) (workerid.Span, error)
	Rest         time.Duration // see workerid.Config
	Horizon      time.Duration
	MaxClockSkew time.Duration
	OnChange     func(error)
	Log          *slog.Logger
}

// A Holder is a worker that answers no requests: the same keeper of a number, over the same registry. It is safe for
// concurrent use.
//
// Law: rules (1) to (4) of docs/uniqueness.md, by the keeper and the generator. As a worker does, it answers for its
// number on the number's subject before its first ID, founds no registry, and issues nothing while workers say that
// the registry is stopped for another one.
type Holder struct {
	cfg     Config
	nc      *nats.Conn // the holder's own
	keeper  *workerid.Keeper
	layout  snowflake.Layout
	fits    *workerid.Span // see Config.Fit
	longest time.Duration  // the longest that a call waits for the clock
	process string         // random; identifies this process where registries are asked for

	gen atomic.Pointer[snowflake.Generator] // to issue from; nil while nothing may be issued

	mu       sync.Mutex
	offered  *snowflake.Generator // the keeper's; nil while it has none
	answered int                  // the number for which the server knows this holder's subscription; -1 for none
	refused  error                // why the registry allows no IDs; nil if it does

	sub     *nats.Subscription // only answer uses it
	number  int                // of sub
	wake    chan struct{}      // the keeper has changed what it offers
	stop    func()             // ends the keeper
	quit    func()             // ends the rest
	running sync.WaitGroup
	ended   chan struct{} // closed once the keeper has ended, with err
	err     error
	unlock  func()
	closing sync.Once
	leased  atomic.Bool // see Lease
}

// ErrNoWorkers is returned where no worker has made the registry.
var ErrNoWorkers = errors.New("no natsid worker has started in this namespace")

const (
	// patience bounds Open if its context has no deadline: the margin before a first ID and the fence after a crash
	// are seconds.
	patience = 15 * time.Second
	// rightsTimeout bounds the question what the user may do. A server before 2.10 does not answer.
	rightsTimeout = 2 * time.Second
)

// Open acquires a number. It returns once an ID can be issued, or with the reason why none can.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (_ *Holder, err error) {
	if nc == nil {
		return nil, errors.New("no connection: did nats.Connect return an error?")
	}
	cfg.Namespace = cmp.Or(cfg.Namespace, subjects.DefaultNamespace)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if err := cfg.Namespace.Check(); err != nil {
		return nil, err
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	h := &Holder{
		cfg: cfg, answered: -1, refused: errNotAsked, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		unlock: func() {},
	}
	if cfg.Dir != "" {
		if h.unlock, err = durable.Lock(cfg.Dir); err != nil {
			return nil, fmt.Errorf("directory %s: %w; give each process one of its own", cfg.Dir, err)
		}
	}
	if err := h.start(ctx, nc); err != nil {
		h.end()
		return nil, err
	}
	if err := h.await(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	h.running.Go(h.watch)
	return h, nil
}

// start starts the keeper.
func (h *Holder) start(ctx context.Context, nc *nats.Conn) (err error) {
	cfg := h.cfg
	if h.nc, err = h.dial(nc.Opts); err != nil {
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
	if h.layout, err = h.findLayout(ctx, registry); err != nil {
		return err
	}
	h.longest = 2 * max(snowflake.DefaultMaxAhead, time.Duration(h.layout.Unit)*time.Millisecond)
	host, _ := os.Hostname()
	h.keeper = workerid.New(workerid.Config{
		Registry: registry, Layout: h.layout, Site: cfg.Site, Numbers: h.fits, Instance: cfg.Name,
		Program: cmp.Or(host, "unknown host"), StateDir: cfg.Dir, Horizon: cfg.Horizon,
		Rest: cfg.Rest, MaxClockSkew: cfg.MaxClockSkew, MaxAhead: snowflake.DefaultMaxAhead,
		AtStop: h.atStop, Now: now, Use: h.use, Log: cfg.Log,
		Alarm: func(kind workerid.Alarm, message string) {
			cfg.Log.Error(message, "alarm", kind)
		},
	})
	who, _ := h.keeper.Who()
	h.process = who.Process
	keeping, stop := context.WithCancel(context.Background())
	living, quit := context.WithCancel(context.Background())
	h.stop, h.quit = stop, quit
	go func() {
		h.err = h.keeper.Run(keeping)
		close(h.ended)
	}()
	h.running.Go(func() { h.answer(living) })
	h.running.Go(func() { h.ask(living) })
	return nil
}

// dial makes the holder's own connection, like the given one. Writes of the keeper must not wait behind the traffic of
// the program, nor in its buffer while the connection is lost: see [kvregistry.Options].
func (h *Holder) dial(opts nats.Options) (*nats.Conn, error) {
	opts.Name, opts.NoEcho, opts.AllowReconnect, opts.IgnoreAuthErrorAbort = "natsid number", false, true, true
	opts.ClosedCB, opts.DisconnectedCB, opts.DisconnectedErrCB, opts.ReconnectedCB = nil, nil, nil, nil
	opts.ConnectedCB, opts.DiscoveredServersCB, opts.LameDuckModeHandler, opts.ReconnectErrCB = nil, nil, nil, nil
	opts.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) {
		h.cfg.Log.Error("NATS reports an error", "error", err)
	}
	for _, o := range kvregistry.Options() {
		if err := o(&opts); err != nil {
			return nil, err
		}
	}
	return opts.Connect()
}

// checkRights returns an error that lists all rights that the user lacks.
func (h *Holder) checkRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	held, err := rights.Ask(ctx, h.nc)
	if err != nil {
		h.cfg.Log.Debug("it is not known what this user may do", "error", err)
		return nil
	}
	missing := rights.Of(rights.Holder, rights.Deployment{
		Namespace: h.cfg.Namespace, InboxPrefix: h.nc.Opts.InboxPrefix, JSDomain: h.cfg.JSDomain,
		JSPrefix: h.cfg.JSPrefix,
	}).Missing(held)
	if text := missing.String(); text != "" {
		return fmt.Errorf("this user of NATS may not %s: `natsid permissions holder` prints all that it needs", text)
	}
	return nil
}

// findLayout returns the layout of the registry, or, while the registry does not answer, that of the state file.
func (h *Holder) findLayout(ctx context.Context, registry workerid.Registry) (snowflake.Layout, error) {
	var d workerid.Deployment
	for {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		have, err := registry.Deployment(attempt)
		cancel()
		switch {
		case err == nil:
			d = have
		case errors.Is(err, buckets.ErrNoBucket), errors.Is(err, workerid.ErrNoDeployment):
			return snowflake.Layout{}, fmt.Errorf("%w (%s): start one first, or check the connection and the "+
				"namespace", ErrNoWorkers, h.cfg.Namespace)
		case errors.Is(err, workerid.ErrDamaged), errors.Is(err, buckets.ErrUnfit):
			return snowflake.Layout{}, err
		default:
			if d = workerid.DeploymentIn(h.cfg.Dir); d.ID == "" {
				if jitter.Sleep(ctx, jitter.Around(200*time.Millisecond)) != nil {
					return snowflake.Layout{}, err
				}
				continue
			}
		}
		break
	}
	l, err := d.SnowflakeLayout()
	if want := h.cfg.Layout; err == nil && want != (snowflake.Layout{}) && want != l {
		return l, fmt.Errorf("the registry has layout %s, epoch %d; this program was given layout %s, epoch %d: "+
			"leave it out, or choose another namespace", l, l.Epoch, want, want.Epoch)
	}
	if h.cfg.Fit == nil || err != nil {
		return l, err
	}
	programs, err := d.Holders.Of(l, h.cfg.Site)
	if err != nil {
		return l, err
	}
	fits, err := h.cfg.Fit(programs)
	h.fits = &fits
	return l, err
}

// await waits until an ID can be issued.
func (h *Holder) await(ctx context.Context) error {
	for {
		if g := h.gen.Load(); g != nil && g.CheckAt(now()) == nil {
			return nil
		}
		select {
		case <-h.ended:
			return h.err
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), h.trouble())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Number returns the worker number that is held, and reports whether one is.
func (h *Holder) Number() (number int, held bool) {
	who, held := h.keeper.Who()
	return who.Number, held
}

// Until returns the end of the window.
func (h *Holder) Until() time.Time { return time.UnixMilli(h.keeper.Status().Until) }

// Layout returns the layout of the IDs.
func (h *Holder) Layout() snowflake.Layout { return h.layout }

// Close ends issuing for good and gives the number back. The error says why the number was not released: it stays
// blocked until its window ends. Closing again changes nothing.
//
// Law: the keeper closes the generator before it lowers the end of the window, and this holder answers for the number
// until both are done.
func (h *Holder) Close() error {
	h.closing.Do(func() {
		h.stop()
		<-h.ended
		h.end()
	})
	return h.err
}

// end stops all but the keeper.
func (h *Holder) end() {
	if h.quit != nil {
		h.quit()
	}
	h.running.Wait()
	if h.nc != nil {
		h.nc.Close()
	}
	h.unlock()
}

func now() int64 { return time.Now().UnixMilli() }
