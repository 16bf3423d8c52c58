package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/subjects"
)

type serveCmd struct {
	Listen         string        `env:"NATSID_LISTEN" default:"127.0.0.1:4222" help:"Where the own nats-server listens, host:port; port 0 takes a free one."`
	Data           string        `env:"NATSID_DATA" default:"natsid-data" help:"Directory of the own nats-server's store and of the state file; empty with --nats keeps no local state."`
	HTTP           string        `name:"http" env:"NATSID_HTTP" default:"127.0.0.1:8080" help:"Where /healthz, /readyz and /metrics are served; empty for nowhere."`
	MySQL          string        `name:"mysql" env:"NATSID_MYSQL" placeholder:"DSN" help:"Keep segments in Leaf's table leaf_alloc: user:password@tcp(host:port)/database. Without it they are in JetStream KV."`
	Guard          string        `env:"NATSID_GUARD" default:"on" enum:"on,off" help:"With --mysql: on keeps a second memory in JetStream KV, so that a database that lost commits makes no repeats; off does without."`
	Name           string        `env:"NATSID_NAME" help:"Name of this worker, for people. Made at first start and kept in --data."`
	Replicas       int           `env:"NATSID_REPLICAS" default:"0" help:"Replicas of the buckets to make; 0 means 3 if the server belongs to a cluster, else 1."`
	AutoCreateTags autoCreate    `env:"NATSID_AUTO_CREATE_TAGS" negatable:"" placeholder:"PATTERN" help:"Make tags on first use: all, or with =PATTERN those that match, as order.* does order.eu; * stops at a /. On by default only with the own nats-server."`
	TagPoll        time.Duration `env:"NATSID_TAG_POLL" default:"1m" help:"How often the tags are compared with the store, at least 1s: rows that were added, changed or removed there. Tags changed by natsid are seen at once."`
	Preload        time.Duration `env:"NATSID_PRELOAD" default:"24h" help:"At the start, load a range of each tag that was used or changed within this time, so that its first request waits for nothing; 0 for none."`
	MaxStep        int64         `env:"NATSID_MAX_STEP" default:"1000000" help:"Most IDs that a tag's step grows to. It doubles while ranges last less than --step-time, and halves while they last twice as long, but never goes below the tag's own, which may be more than this."`
	StepTime       time.Duration `env:"NATSID_STEP_TIME" default:"15m" help:"How long a range of a tag should last at least, 1s to 24h: about so long a worker can do without the store."`
	Site           int           `env:"NATSID_SITE" default:"0" help:"Which site this worker is in, where the layout has site bits. Each site numbers its own machines, so sites that cannot see each other never collide."`
	LeaseTTL       time.Duration `name:"lease-ttl" env:"NATSID_LEASE_TTL" default:"30s" help:"How long a worker counts as alive after its last heartbeat, at least 20s. Used when the bucket is made."`
	Horizon        time.Duration `env:"NATSID_HORIZON" default:"5m" help:"How long snowflakes are issued while JetStream is away."`
	MaxAhead       time.Duration `env:"NATSID_MAX_AHEAD" default:"5ms" help:"How far a snowflake's time may run ahead of the clock: bursts, and steps back, that cost no wait."`
	MaxBatch       int           `env:"NATSID_MAX_BATCH" default:"100000" help:"Most IDs one request may ask for."`
	Deadline       time.Duration `env:"NATSID_DEADLINE" default:"1.5s" help:"By when each request is answered, with IDs or a code. Callers must wait longer."`
	MaxClockSkew   time.Duration `env:"NATSID_MAX_CLOCK_SKEW" default:"1s" help:"How far two workers' clocks may differ; one that is farther off issues no snowflakes until it is right (less than 1s counts as 1s there). A number never used before is used from that much later on."`
	OnClockStep    string        `name:"on-clock-step" env:"NATSID_ON_CLOCK_STEP" default:"wait" enum:"wait,reclaim" help:"When the clock is right but behind what was issued or reported before: wait until it has caught up (a day at most), or reclaim: go on at once with another worker number."`
	LogLevel       slog.Level    `env:"NATSID_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
	LogFormat      string        `env:"NATSID_LOG_FORMAT" default:"text" enum:"text,json" help:"text or json."`
	layoutFlags
}

// Help is shown below the flags.
func (serveCmd) Help() string {
	return `Examples:
  natsid                                        a whole service on this machine
  natsid --listen 127.0.0.1:4333 --http ""      the same beside another NATS server
  natsid --nats nats://n1:4222,nats://n2:4222   a worker on a NATS with JetStream
  natsid --nats nats://n1:4222 --mysql 'leaf:password@tcp(db:3306)/leaf'
  natsid --nats nats://n1:4222 --layout article --site 2
  natsid --nats nats://n1:4222 --auto-create-tags='tmp.*'
  NATS_URL=nats://n1:4222 natsid --data /var/lib/natsid`
}

// Run implements the command.
func (c *serveCmd) Run(s *session) error {
	cfg, err := c.config(s)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return usage(err)
	}
	cfg.Ready = func(w app.Where) { fmt.Fprintln(s.stdout, readyLine(cfg, w, s.natsFromEnv)) }
	return app.Run(s.ctx, cfg)
}

func (c *serveCmd) config(s *session) (cfg app.Config, err error) {
	cfg = app.Default()
	cfg.NATS, cfg.NATSCreds, cfg.Namespace = s.line.NATS, s.line.NATSCreds, subjects.Namespace(s.line.Namespace)
	cfg.Listen, cfg.Data, cfg.HTTP, cfg.Name, cfg.Replicas = c.Listen, c.Data, c.HTTP, c.Name, c.Replicas
	cfg.MySQL, cfg.Guard = c.MySQL, c.Guard == "on"
	cfg.AutoCreateTags = cfg.NATS == ""
	if c.AutoCreateTags.given {
		cfg.AutoCreateTags, cfg.AutoCreatePattern = c.AutoCreateTags.on, c.AutoCreateTags.pattern
	}
	cfg.TagPoll, cfg.Preload = c.TagPoll, c.Preload
	cfg.MaxStep, cfg.StepTime = c.MaxStep, c.StepTime
	if cfg.Layout, err = c.layout(); err != nil {
		return cfg, err
	}
	cfg.Site = c.Site
	cfg.LeaseTTL, cfg.Horizon, cfg.MaxClockSkew = c.LeaseTTL, c.Horizon, c.MaxClockSkew
	cfg.ReclaimOnStep = c.OnClockStep == "reclaim"
	cfg.MaxAhead, cfg.MaxBatch, cfg.Deadline = c.MaxAhead, c.MaxBatch, c.Deadline
	cfg.Version = version()
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		cfg.Log = slog.New(slog.NewJSONHandler(s.stderr, opts))
	} else {
		cfg.Log = slog.New(slog.NewTextHandler(s.stderr, opts))
	}
	return cfg, nil
}

// autoCreate is a flag that is on, off, or a pattern.
type autoCreate struct {
	given, on bool
	pattern   string // "" for all
}

// Decode implements kong's mapper: --auto-create-tags, --no-auto-create-tags,
// --auto-create-tags=PATTERN, and true or false as the environment has it.
func (a *autoCreate) Decode(ctx *kong.DecodeContext) error {
	*a = autoCreate{given: true, on: true}
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		return nil
	}
	value := fmt.Sprint(ctx.Scan.Pop().Value)
	switch on, err := strconv.ParseBool(value); {
	case err == nil:
		a.on = on
	case value == "":
		return errors.New("the pattern is empty")
	default:
		a.pattern = value
	}
	return nil
}

// IsBool says that the flag needs no value.
func (a *autoCreate) IsBool() bool { return true }

// readyLine says where the service is, and how to try it.
func readyLine(cfg app.Config, w app.Where, natsFromEnv bool) string {
	how := "joined"
	switch {
	case w.Embedded:
		how = "own server, data in " + cfg.Data
	case natsFromEnv:
		how = "joined, from NATS_URL in the environment"
	}
	line := fmt.Sprintf("natsid is ready on %s (%s), worker number %d", w.URL, how, w.Number)
	if w.HTTP != "" {
		line += ", http://" + w.HTTP + "/readyz"
	}
	return line + fmt.Sprintf("; try: nats request %s ''", cfg.Namespace.Segment("order"))
}
