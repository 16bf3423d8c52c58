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
// worker number. It returns nil after a clean stop, also if ctx ended before natsid was ready.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	defer loglimit.Flush(cfg.Log)
	living, quit := context.WithCancel(ctx)
	defer quit()
	p := newProgram(cfg, quit)
	err := live(living, quit, cfg.Log, p.steps())
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// A program is a running natsid. Each step sets its fields once; they do not change afterwards.
type program struct {
	cfg     Config
	quit    func() // begins the stop of the program
	metrics *metrics.Metrics
	alarms  *alarms

	unlock   func() // lets other processes into the data directory; nil before and without
	links    links
	storage  storage
	registry registry
	http     httpDoor

	cores
	peers
	reasons worker.Reasons // why modes are in no queue group
	lack    lack
	views   viewer
	grants  grantLog
}

// The cores issue IDs, and the worker serves them.
type cores struct {
	segments *segment.Allocator
	issuer   *issuer.Issuer
	keeper   *workerid.Keeper
	worker   *worker.Worker
}

// The peers are what this worker agrees on with other workers.
type peers struct {
	watch  *fleet.Watch // knows whether this worker can load
	limits *fleet.Limits
	strict *fleet.StrictTags
}

// maxNewTags is how many tags a minute this worker creates on first use: few enough that a caller that uses tags as
// keys by mistake does not fill the store before an operator reads the alarm, and enough for a deploy of hundreds of
// tags.
const maxNewTags = 6000

// preload is how recently a tag must have been used or changed for its first range to be loaded at the start, so that
// its first request does not wait. A day covers tags of nightly jobs.
const preload = 24 * time.Hour

func newProgram(cfg Config, quit func()) *program {
	m := metrics.New()
	p := &program{
		cfg: cfg, quit: quit, metrics: m, alarms: newAlarms(cfg.Log, m.Alarmed, m.AlarmHeldBack),
	}
	p.links.program, p.registry.program, p.storage.program = p, p, p
	p.grants.program, p.views.program, p.http.program = p, p, p
	return p
}

// steps returns the steps of the program: it starts from top to bottom and stops from bottom to top. IDs are unique,
// and a restart loses no request, only if it stops in this order. The comments say what each stop does, and what must
// have stopped before.
func (p *program) steps() []step {
	const soon = time.Second // for steps that end with ctx
	answered := answers(&p.cfg)
	return []step{
		// Stops once no step writes into the directory.
		{name: "lock of the data directory", start: p.lockData, stop: p.unlockData, within: soon},
		// Stops once its clients, the connections, are closed.
		{name: "embedded NATS server", start: p.links.startServer, stop: p.links.stopServer, within: 10 * time.Second},
		during("disk of the embedded server", 10*time.Second, p.links.tendServer),
		// The start waits for NATS. The control connection closes after the last write.
		{name: "NATS connections", start: p.links.connect, stop: p.links.disconnect, within: soon},
		{name: "messages about registries", start: p.registry.makeBus},
		// The start waits for MySQL. The table closes once no load is under way.
		{name: "table", start: p.storage.openTable, stop: p.storage.closeTable, within: soon},
		// The start does not wait for JetStream: see storage.openLate.
		{name: "buckets", start: p.storage.openBuckets},
		{name: "allocator, issuer and keeper", start: p.assemble},
		// Stops once no step can raise an alarm.
		until("alarms", 2*time.Second, p.alarms.publish),
		// Stops once no load is under way and no worker number is held.
		until("grants", 2*time.Second, p.grants.run),
		{name: "HTTP", start: p.http.listen},
		{name: "answers to workers that ask how this one is", start: p.views.answer},
		during("last hour", soon, p.views.keepHour),
		during("health, readiness, metrics and the page", soon, p.http.serve),
		during("comparison of tags with the store", p.cfg.Deadline, p.follow),
		during("who shares rates", soon, func(ctx context.Context) error {
			p.limits.Share(ctx, p.links.control, p.cfg.Namespace)
			return nil
		}),
		during("settings of the buckets", soon, p.storage.watch),
		during("buckets that were not open at the start", soon, p.storage.openLate),
		during("announcement", soon, p.announce),
		// Starts before any request is served: another registry may serve the same subjects.
		{name: "question which registries there are", start: p.registry.ask},
		// The stop releases the worker number, once all requests are answered, so that no ID can be issued under it.
		until("worker number", 5*time.Second, p.keepNumber),
		// The stop records in the marks that this worker has made its last load.
		until("watch of the registry", 5*time.Second, p.registry.watch),
		// The stop runs while requests are answered: if NATS is silent, the two steps above stop faster.
		during("question whether NATS still answers", answered+3*time.Second, p.links.askNATS),
		// The stop refuses requests that still wait, and waits for loads under way. IDs in memory become holes.
		{name: "allocator", stop: func() error { p.segments.Close(); return nil }, within: p.cfg.Deadline},
		// The stop leaves the queue groups, answers all requests that were taken, and drains the serving connection, so
		// that the last replies are sent.
		during("requests", answered+5*time.Second, p.serve),
		during("who can load", soon, func(ctx context.Context) error { p.watch.Run(ctx); return nil }),
		// After this stop other workers load strict tags for themselves.
		during("loads for other workers", soon, func(ctx context.Context) error { p.strict.Run(ctx); return nil }),
	}
}

// parkedSnowflakes is how many requests may wait for the clock at once.
const parkedSnowflakes = 4096

// assemble connects the cores with their dependencies. It starts nothing.
func (p *program) assemble(context.Context) error {
	cfg := p.cfg
	now := func() int64 { return cfg.Now().UnixMilli() }
	p.strict = fleet.NewStrictTags(fleet.StrictConfig{
		Namespace: cfg.Namespace, Conn: p.links.control, Marks: p.registry.marksInUse, Loads: p.canLoad,
		Segments: func() *segment.Allocator { return p.segments },
	})
	p.watch = fleet.NewWatch(fleet.WatchConfig{
		Probe: p.probe, Find: p.findRelay, Change: p.turnAway, Log: cfg.Log,
	})
	p.segments = segment.New(p.segmentConfig())
	p.limits = fleet.NewLimits(p.segments.RulesOf, p.registry.member.Throttle)
	p.registry.member.Use(p.segments)
	p.registry.awaitCheck(p.storage.late)
	p.issuer = issuer.New(cfg.Deadline, parkedSnowflakes, now)
	p.keeper = workerid.New(workerid.Config{
		Registry: p.storage.numbers, Layout: cfg.Layout, Site: cfg.Site, Numbers: cfg.Numbers,
		Instance: cfg.Name, StateDir: cfg.Data,
		Horizon: cfg.Horizon, MaxClockSkew: cfg.MaxClockSkew, MaxAhead: snowflake.DefaultMaxAhead,
		MayFound: p.registry.mayMake, Now: now, Use: p.use, Log: cfg.Log,
		AtStop: p.links.atStop, Granted: p.grants.window,
		Alarm: func(kind workerid.Alarm, message string) { p.alarms.raise(wire.Alarm(kind), message) },
	})
	p.grants.open()
	p.worker = worker.New(p.workerConfig())
	p.alarms.conn, p.alarms.namespace, p.alarms.instance = p.links.control, cfg.Namespace, p.instance
	p.metrics.Watch(metrics.Sources{
		Segments: p.segments, Snowflakes: p.issuer, Keeper: p.keeper,
		Layout: cfg.Layout, Lag: p.worker.Lag, Outs: p.worker.Outs, Ready: p.modes, Version: cfg.Version,
		Second: p.registry.hasSecond,
	})
	return nil
}

// clock returns the time by which periods of tags begin. It is sure while snowflakes can be issued: they cannot while
// the clock was set far, or other workers' clocks contradict it.
func (p *program) clock() (now time.Time, isSure bool) {
	return p.cfg.Now(), p.issuer != nil && p.issuer.Ready(time.Second, 0) == nil
}

func (p *program) instance() string {
	if p.keeper == nil {
		return p.cfg.Name // before assemble
	}
	return p.keeper.Status().Instance
}

// deployment returns the ID of the deployment of the worker numbers, "" before it is known.
func (p *program) deployment() string {
	if p.keeper == nil {
		return ""
	}
	return p.keeper.Status().Registry
}

// use makes g the generator in use, and wakes the worker, which must answer for the worker number as soon as it may
// issue under it.
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
			who, held := p.keeper.Who()
			return who.Number, held, who
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
		Store: loads{p.strict.Over(p.registry.member.Gate(p.storage.tags)), p.watch, p.runsOut, p.undecided},
		Clock: p.clock, Deadline: cfg.Deadline,
		MaxStep:    cfg.MaxStep,
		AutoCreate: func(tag string) bool { return creates(cfg.AutoCreatePattern, tag) },
		Ration:     fleet.FirstUses(maxNewTags), OnCreate: p.links.announceTag,
		Servable: func(tag string) bool { return subjects.CheckTag(tag) == nil },
		Enough:   p.storage.enoughToLoad,
		Poll:     cfg.TagPoll, Preload: preload, OnLoad: p.metrics.Loaded, Granted: p.grants.load,
		Log: cfg.Log,
	}
	if cfg.AutoCreateTags {
		c.AutoStep = DefaultStep
	}
	return c
}

// undecided raises the alarm that an operator must say where a tag goes on, or ends it.
func (p *program) undecided(tag string, is bool) {
	if !is {
		p.alarms.end(wire.AlarmTagUndecided, tag)
		return
	}
	p.alarms.raiseAbout(wire.AlarmTagUndecided, tag,
		"tag "+tag+" is not served until an operator says where it goes on")
}

func (p *program) runsOut(tag, message string) {
	p.alarms.raiseAbout(wire.AlarmTagFillsUp, tag, "tag "+tag+": "+message)
}

// serve answers requests until ctx ends.
func (p *program) serve(ctx context.Context) error {
	defer p.quit()
	p.worker.Run(ctx)
	return nil
}

// follow keeps the tags in memory equal to those in the store.
func (p *program) follow(ctx context.Context) error {
	select {
	case <-p.registry.begun: // loads fail before the first check
		p.segments.Follow(ctx)
	case <-ctx.Done():
	}
	return nil
}

// keepNumber holds a worker number until ctx ends, and then releases it. If the layout or the epoch differs from the
// registry's (workerid.ErrDeployment), it ends the program.
func (p *program) keepNumber(ctx context.Context) error {
	defer p.quit()
	if p.storage.late == nil { // if another registry serves, the first check leaves an unused one
		select {
		case <-p.registry.begun:
		case <-ctx.Done():
		}
	}
	err := p.keeper.Run(ctx)
	if err == nil || errors.Is(err, workerid.ErrDeployment) {
		return err
	}
	p.cfg.Log.Warn("stopped, but the worker number was not released: it is blocked until its window ends, "+
		"and this worker resumes it if it starts with the same data before then", "error", err)
	return nil
}
