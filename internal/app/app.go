package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path"
	"time"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/loglimit"
	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

var (
	// ErrDataInUse is returned when another process uses the data directory.
	ErrDataInUse = errors.New("the data directory is in use")
	// ErrListenTaken is returned when the embedded server's address is in use.
	ErrListenTaken = errors.New("the address is in use")
)

// Run runs a whole natsid until ctx ends, and stops it cleanly: it answers all requests that it took, then releases the
// worker number. It returns nil if it stopped because ctx ended, even before natsid was ready.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	defer loglimit.Flush(cfg.Log)
	living, quit := context.WithCancelCause(ctx)
	defer quit(nil)
	live(living, quit, cfg.Log, newProgram(cfg, quit).steps())
	if why := context.Cause(living); why != context.Cause(ctx) {
		return why
	}
	return nil
}

// A program is a running natsid. The steps of its start set each field once, before other goroutines read the field.
type program struct {
	cfg     Config
	quit    context.CancelCauseFunc // begins the stop of the program; Run returns the given cause
	metrics *metrics.Metrics
	alarms  *alarms

	unlock   func() // unlocks the data directory, if it is locked
	links    links
	storage  storage
	registry registry
	http     httpDoor

	cores
	peers
	reasons worker.Reasons
	lack    lack
	views   viewer
	grants  grantLog
}

// The cores are the parts that issue IDs, and the worker, which serves the IDs over NATS.
type cores struct {
	segments *segment.Allocator
	issuer   *issuer.Issuer
	keeper   *workerid.Keeper
	worker   *worker.Worker
}

// The peers are the parts that exchange messages about tags with other workers.
type peers struct {
	watch  *worker.Watch // knows whether this worker can load
	limits *worker.Limits
	strict *fleet.StrictTags // has one worker load a strict tag for the others
}

// maxNewTags is how many tags a minute this worker creates on first use: enough where hundreds of tags are new, and few
// enough that an operator notices a caller that mistakes its own keys for tags before the store is full.
const maxNewTags = 6000

// preload is how recently a tag must have been used or changed for the start to load its first range, so that its first
// request does not wait. A day covers the tags of nightly jobs.
const preload = 24 * time.Hour

func newProgram(cfg Config, quit context.CancelCauseFunc) *program {
	m := metrics.New()
	p := &program{
		cfg: cfg, quit: quit, metrics: m, alarms: newAlarms(cfg.Log, m.Alarmed, m.AlarmHeldBack), unlock: func() {},
	}
	p.links.program, p.registry.program, p.storage.program = p, p, p
	p.grants.program, p.views.program, p.http.program = p, p, p
	return p
}

// steps returns the steps of the program: it starts from top to bottom and stops from bottom to top. Only in this order
// are IDs unique, and does a restart lose no request. The comments say what each stop does, and what must have stopped
// before.
func (p *program) steps() []step {
	const soon = time.Second // for steps that end as soon as ctx ends
	answered := answers(&p.cfg)
	return []step{
		// Stops once no step writes into the directory.
		{name: "lock of the data directory", start: p.lockData, stop: func() { p.unlock() }, within: soon},
		// Stops after the connections, which are its clients, are closed.
		{name: "embedded NATS server", start: p.links.startServer, stop: p.links.stopServer, within: 10 * time.Second},
		during("disk of the embedded server", 10*time.Second, p.links.tendServer),
		// The start waits for NATS. The control connection closes after the last write.
		{name: "NATS connections", start: p.links.connect, stop: p.links.disconnect, within: soon},
		{name: "messages about registries", start: p.registry.makeBus},
		// The start waits for MySQL. The table closes once no load is under way.
		{name: "table", start: p.storage.openTable, stop: p.storage.closeTable, within: soon},
		{name: "allocator, issuer and keeper", start: p.assemble},
		// The start does not wait for JetStream: see storage.openLate.
		{name: "buckets", start: p.storage.openBuckets},
		// Stops once no step can raise an alarm.
		until("alarms", 2*time.Second, func(ctx context.Context) {
			p.alarms.publish(ctx, p.links.control, p.cfg.Namespace, p.instance())
		}),
		// Stops once no load is under way and no worker number is held.
		until("grants", 2*time.Second, p.grants.run),
		{name: "HTTP", start: p.http.listen},
		{name: "state of this worker, for other workers", start: p.views.answer},
		during("last hour", soon, p.views.keepHour),
		during("health, readiness, metrics and the page", soon, p.http.serve),
		during("comparison of tags with the store", p.cfg.Deadline, p.follow),
		during("who shares rates", soon, func(ctx context.Context) {
			p.limits.Share(ctx, p.links.control, p.cfg.Namespace)
		}),
		during("settings of the buckets", soon, p.storage.watch),
		during("buckets that were not open at the start", soon, p.storage.openLate),
		during("announcement", soon, p.announce),
		// Starts before any request is served: workers on other buckets may serve the same subjects and repeat IDs.
		{name: "question which registries there are", start: p.registry.ask},
		// Stops once all requests are answered: it releases the worker number, so no ID may be issued under it then.
		until("worker number", 5*time.Second, p.keepNumber),
		// Stops once no load is under way: it records in JetStream that this worker has made its last load.
		until("watch of the registry", 5*time.Second, p.registry.watch),
		// If NATS is silent while requests are answered, this step makes the two steps above stop faster.
		during("question whether NATS still answers", answered+3*time.Second, p.links.askNATS),
		// The stop refuses requests that still wait, and waits for loads under way. It drops the IDs left in memory.
		{name: "allocator", stop: func() { p.segments.Close() }, within: p.cfg.Deadline},
		// The stop leaves the queue groups, answers all requests that were taken, and drains the serving connection, so
		// that the last replies are sent.
		during("requests", answered+5*time.Second, func(ctx context.Context) { p.worker.Run(ctx) }),
		during("who can load", soon, func(ctx context.Context) { p.watch.Run(ctx) }),
		// After this stop other workers load strict tags for themselves.
		during("loads for other workers", soon, func(ctx context.Context) { p.strict.Run(ctx) }),
	}
}

// parkedSnowflakes is how many requests for snowflakes may wait at once until the clock has advanced.
const parkedSnowflakes = 4096

// assemble makes the stores, the cores and the peers, and connects them. It starts and sends nothing.
func (p *program) assemble(context.Context) (err error) {
	cfg := p.cfg
	now := func() int64 { return cfg.Now().UnixMilli() }
	if err = p.storage.assemble(); err != nil {
		return err
	}
	p.issuer = issuer.New(cfg.Deadline, parkedSnowflakes, now)
	p.keeper = workerid.New(workerid.Config{
		Registry: p.storage.numbers, Layout: cfg.Layout, Site: cfg.Site, Numbers: cfg.Numbers,
		Instance: cfg.Name, StateDir: cfg.Data,
		Horizon: cfg.Horizon, MaxClockSkew: cfg.MaxClockSkew, MaxAhead: snowflake.DefaultMaxAhead,
		MayFound: p.registry.mayMake, Now: now, Use: p.use, Log: cfg.Log,
		AtStop: p.links.atStop, Granted: func(w workerid.Window) { p.grants.log.Window(w) },
		Alarm: func(kind workerid.Alarm, message string) { p.alarms.raise(wire.Alarm(kind), message) },
	})
	if err = p.registry.assemble(); err != nil {
		return err
	}
	p.strict = fleet.NewStrictTags(fleet.StrictConfig{
		Namespace: cfg.Namespace, Conn: p.links.control, Marks: p.registry.marksInUse, Loads: p.canLoad,
		Segments: func() *segment.Allocator { return p.segments },
	})
	p.watch = worker.NewWatch(worker.WatchConfig{
		Probe: p.probe, Find: func(ctx context.Context) error { return p.worker.FindRelay(ctx) },
		Change: p.turnAway, Log: cfg.Log,
	})
	p.segments = segment.New(p.segmentConfig())
	p.limits = worker.NewLimits(p.segments.RulesOf, p.registry.member.Throttle)
	p.registry.member.Use(p.segments)
	p.worker = worker.New(p.workerConfig())
	p.metrics.Watch(metrics.Sources{
		Segments: p.segments, Snowflakes: p.issuer, Keeper: p.keeper,
		Layout: cfg.Layout, Lag: p.worker.Lag, Outs: p.worker.Outs, Ready: p.modes, Version: cfg.Version,
		Second: p.registry.hasSecond,
	})
	return nil
}

// clock returns the time that decides in which day or other period of a tag an ID is issued. isSure is false while no
// snowflakes can be issued: then the clock was set by much, or other workers' clocks contradict it.
func (p *program) clock() (now time.Time, isSure bool) {
	return p.cfg.Now(), p.issuer.Ready(time.Second, 0) == nil
}

func (p *program) instance() string { return p.keeper.Status().Instance }

// use makes g the generator of all snowflakes, and wakes the worker. Before the worker issues under g's worker number,
// it must be ready to answer questions about the number.
func (p *program) use(g *snowflake.Generator) {
	p.issuer.Use(g)
	p.worker.Wake()
}

func (p *program) workerConfig() worker.Config {
	cfg := p.cfg
	return worker.Config{
		Namespace: cfg.Namespace, Version: cfg.Version, JSPrefix: cfg.JSPrefix, Dial: p.links.dialServing,
		Ask: p.links.control, Rights: p.lacks,
		Segments: p.segments, Store: p.storage.tags, Snowflakes: p.issuer, Layout: cfg.Layout,
		Number: func() (int, bool, any) {
			s := p.keeper.Status()
			return s.Number, s.Held, p.keeper.Who()
		},
		Instance: p.instance, State: p.state,
		Limits: p.limits, SetThrottle: p.registry.member.SetThrottle,
		MaxBatch: cfg.MaxBatch, Deadline: cfg.Deadline,
		Reasons: &p.reasons, Overloaded: p.alarms.overloaded,
		CannotLoad: p.watch.Trouble, Registry: p.registryOfLoads,
		Observe: p.metrics.Answered, Intercept: cfg.Intercept, Log: cfg.Log,
	}
}

// creates reports whether the pattern of --auto-create-tags matches a tag. The pattern "" matches every tag.
func creates(pattern, tag string) bool {
	ok, err := path.Match(pattern, tag)
	return pattern == "" || ok && err == nil
}

func (p *program) segmentConfig() segment.Config {
	cfg := p.cfg
	c := segment.Config{
		Store: loads{p.strict.Over(p.registry.member.Gate(p.storage.tags)), p.watch, p.alarms},
		Clock: p.clock, Deadline: cfg.Deadline,
		MaxStep:    cfg.MaxStep,
		AutoCreate: func(tag string) bool { return creates(cfg.AutoCreatePattern, tag) },
		Ration:     worker.FirstUses(maxNewTags), OnCreate: p.links.announceTag,
		Servable: func(tag string) bool { return subjects.CheckTag(tag) == nil },
		Enough:   p.storage.tags.Enough,
		Poll:     cfg.TagPoll, Preload: preload, OnLoad: p.metrics.Loaded,
		Granted: p.grants.log.Load,
		Log:     cfg.Log,
	}
	if cfg.AutoCreateTags {
		c.AutoStep = DefaultStep
	}
	return c
}

// follow keeps the tags in memory equal to those in the store.
func (p *program) follow(ctx context.Context) {
	select {
	case <-p.registry.begun: // loads fail until the first check of the registry ends
		p.segments.Follow(ctx)
	case <-ctx.Done():
	}
}

// keepNumber holds a worker number until ctx ends, and then releases it. If the registry has another layout or epoch
// (workerid.ErrDeployment), keepNumber ends the program.
func (p *program) keepNumber(ctx context.Context) {
	if p.storage.late == nil { // a registry that never had a number gives way, in the first check, to one that serves
		select {
		case <-p.registry.begun:
		case <-ctx.Done():
		}
	}
	if err := p.keeper.Run(ctx); errors.Is(err, workerid.ErrDeployment) { // the keeper logs all others
		p.quit(err)
	}
}
