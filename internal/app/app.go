package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/metrics"
	"github.com/natsid/natsid/internal/monitor"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
	"github.com/natsid/natsid/segment/mysqlstore"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

var (
	// ErrDataInUse is returned when another process works in the data directory.
	ErrDataInUse = errors.New("the data directory is in use")
	// ErrListenTaken is returned when the embedded server's address is taken.
	ErrListenTaken = errors.New("the address is taken")
)

// Run runs a whole natsid until ctx ends, and stops it cleanly: what has been
// asked is answered, then the worker number is given back. It returns nil after
// a clean stop, also if ctx ended before anything was ready.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	unlock, err := lockData(cfg.Data)
	if err != nil {
		return err
	}
	defer unlock()

	var embedded *natsembed.Server
	if cfg.NATS == "" {
		if embedded, err = startServer(cfg); err != nil {
			return err
		}
		defer embedded.WaitForShutdown()
		defer embedded.Shutdown()
		cfg.NATS = embedded.ClientURL()
	}
	err = join(ctx, cfg, embedded)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// lockData makes the data directory and keeps other processes out of it.
func lockData(dir string) (unlock func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the data directory cannot be made: %w", err)
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("the data directory %s cannot be locked: %w; make it writable, or choose another with --data DIR (with --nats, --data '' keeps no local state)", dir, err)
	}
	if !got {
		return nil, fmt.Errorf("%w: another natsid runs in %s; stop it, or give this one a directory of its own with --data DIR", ErrDataInUse, dir)
	}
	// Unlocking can only fail for a lock that is not held.
	return func() { _ = lock.Unlock() }, nil
}

func startServer(cfg Config) (*natsembed.Server, error) {
	s, err := natsembed.Start(natsembed.Config{Listen: cfg.Listen, StoreDir: filepath.Join(cfg.Data, "nats"), Log: cfg.Log})
	if errors.Is(err, natsembed.ErrTaken) {
		return nil, fmt.Errorf("%w: something, most likely a NATS server, listens on %s already; join it with --nats nats://%s, or listen elsewhere with --listen HOST:PORT",
			ErrListenTaken, cfg.Listen, cfg.Listen)
	}
	return s, err
}

// A program is everything put together.
type program struct {
	cfg      Config
	segments *segment.Allocator
	issuer   *snowflake.Issuer
	keeper   *workerid.Keeper
	store    segment.Store
	links    links
	serving  atomic.Pointer[serving]
	metrics  *metrics.Metrics
	where    Where

	js       jetstream.JetStream
	registry *kvregistry.Registry
	marks    *kvstore.Store // nil if segments do without
	late     bool           // the buckets could not be opened at the start

	table *mysqlstore.Table // nil without MySQL

	alarms chan subjects.AlarmEvent // not published yet
}

// join connects to NATS, puts the program together, and runs it.
func join(ctx context.Context, cfg Config, embedded *natsembed.Server) error {
	l, err := connect(ctx, cfg, embedded)
	if err != nil {
		return err
	}
	defer l.close()
	p := &program{cfg: cfg, links: l, metrics: metrics.New(), alarms: make(chan subjects.AlarmEvent, keptAlarms)}
	p.where = Where{URL: Redact(cfg.NATS), Embedded: embedded != nil}
	defer p.close()
	if err := p.assemble(ctx); err != nil {
		return err
	}
	return p.run(ctx)
}

// parkedSnowflakes bounds the requests that wait for the clock at once.
const parkedSnowflakes = 4096

func (p *program) assemble(ctx context.Context) error {
	if err := p.buckets(ctx); err != nil {
		return err
	}
	if err := p.openStore(ctx); err != nil {
		return err
	}
	cfg := p.cfg
	now := func() int64 { return cfg.Now().UnixMilli() }
	step := cfg.AutoStep
	if !cfg.AutoCreateTags {
		step = 0
	}
	p.segments = segment.New(segment.Config{
		Store: p.store, Deadline: cfg.Deadline, LoadTimeout: cfg.Deadline * 2 / 3, MaxStep: cfg.MaxStep, StepTime: cfg.StepTime,
		AutoStep: step, AutoMake: p.makes, OnMake: p.made, Servable: func(tag string) bool { return subjects.CheckTag(tag) == nil },
		Poll: cfg.TagPoll, Preload: cfg.Preload, OnLoad: p.metrics.Loaded, Log: cfg.Log,
	})
	p.issuer = snowflake.NewIssuer(cfg.Deadline, parkedSnowflakes, now)
	p.keeper = workerid.New(workerid.Config{
		Registry: p.registry, Layout: cfg.Layout, Site: cfg.Site, Instance: cfg.Name, StateDir: cfg.Data, Horizon: cfg.Horizon,
		MaxClockSkew: cfg.MaxClockSkew, MaxAhead: cfg.MaxAhead, Deadline: cfg.Deadline, Reclaim: cfg.ReclaimOnStep,
		Now: now, Use: p.issuer.Use, Alarm: func(kind workerid.Alarm, message string) { p.alarm(string(kind), message) }, Log: cfg.Log,
	})
	p.metrics.Watch(metrics.Sources{
		Segments: p.segments, Snowflakes: p.issuer, Keeper: p.keeper, Layout: cfg.Layout, Ready: p.ready, Version: cfg.Version,
	})
	return nil
}

// ready returns for each mode why it cannot issue, nil if it can.
func (p *program) ready() map[string]error {
	var link, flakes error
	if s := p.serving.Load(); s == nil || !s.conn.IsConnected() {
		link = errors.New("not connected to NATS")
		flakes = link
	} else {
		flakes = s.worker.SnowflakeTrouble()
	}
	if trouble := p.keeper.Status().Trouble; link == nil && flakes != nil && trouble != nil {
		flakes = fmt.Errorf("%w (%w)", flakes, trouble)
	}
	ranges := link
	if ranges == nil && p.marks != nil {
		ranges = p.marks.Trouble()
	}
	if ranges == nil {
		ranges = p.segments.Trouble()
	}
	return map[string]error{string(worker.Segment): ranges, string(worker.Snowflake): flakes}
}

// run serves until ctx ends. Then the order matters: first everything that was
// asked is answered, and the last ID issued; after that the number is given
// back, on the connection that is still there.
func (p *program) run(ctx context.Context) error {
	// First, since the others may raise alarms until they have ended.
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx))
	var publisher sync.WaitGroup
	publisher.Go(func() { p.publishAlarms(publishing) })
	defer publisher.Wait()
	defer stopPublishing()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var side sync.WaitGroup
	defer side.Wait()
	defer cancel()
	p.monitor(ctx, &side)
	side.Go(func() { p.segments.Follow(ctx) })
	if p.late {
		side.Go(func() { p.openLate(ctx) })
	}
	side.Go(func() { p.announce(ctx) })

	keeping, stopKeeper := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeper()
	kept := make(chan error, 1)
	go func() {
		err := p.keeper.Run(keeping)
		if keeping.Err() == nil {
			cancel() // it was refused; the rest must not go on as if it were well
		}
		kept <- err
	}()

	err := p.serve(ctx)
	p.segments.Close()
	stopKeeper()
	switch keeperErr := <-kept; {
	case errors.Is(keeperErr, workerid.ErrDeployment):
		err = errors.Join(err, keeperErr)
	case keeperErr != nil:
		p.cfg.Log.Warn("stopped, but the worker number could not be given back", "error", keeperErr)
	}
	return err
}

// monitor serves HTTP. An address that is taken is no reason not to serve IDs.
func (p *program) monitor(ctx context.Context, side *sync.WaitGroup) {
	if p.cfg.HTTP == "" {
		return
	}
	l, err := net.Listen("tcp", p.cfg.HTTP)
	if err != nil {
		p.cfg.Log.Warn("no health, readiness and metrics over HTTP: the address cannot be had; set --http ADDR, or --http '' for none", "error", err)
		return
	}
	p.where.HTTP = l.Addr().String()
	side.Go(func() {
		if err := monitor.Serve(ctx, l, monitor.Handler(p.ready, p.metrics.Handler())); err != nil {
			p.cfg.Log.Error("HTTP failed", "error", err)
		}
	})
}

// announce calls cfg.Ready once all modes can issue.
func (p *program) announce(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if m := p.ready(); m[string(worker.Segment)] == nil && m[string(worker.Snowflake)] == nil {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	s := p.keeper.Status()
	p.where.Instance, p.where.Number = s.Instance, s.Number
	if p.cfg.Ready != nil {
		p.cfg.Ready(p.where)
	}
}
