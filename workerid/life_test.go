package workerid_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// A life is the running keeper of one process.
type life struct {
	t      *testing.T
	keeper *workerid.Keeper
	reg    *workeridtest.Fake
	cancel context.CancelFunc
	err    chan error

	mu     sync.Mutex
	gens   []*snowflake.Generator // all that were ever in use, the newest last; nil if none is
	slip   time.Duration          // of this worker's clock off true time
	alarms []workerid.Alarm       // raised since the last look at them
}

// set sets this worker's clock to slip off true time.
func (l *life) set(slip time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slip = slip
}

func (l *life) now() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.slip).UnixMilli()
}

func (l *life) alarm(kind workerid.Alarm, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("alarm %s: %s", kind, message)
	l.alarms = append(l.alarms, kind)
}

// raised fails the test unless exactly these alarms were raised since the last call.
func (l *life) raised(want ...workerid.Alarm) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.alarms, want) {
		l.t.Errorf("alarms %q, want %q", l.alarms, want)
	}
	l.alarms = nil
}

// layout begins a day before the virtual time.
var layout = snowflake.Layout{Time: 41, Worker: 10, Sequence: 12, Epoch: 946684800000 - 86400_000, Unit: 1}

func now() int64 { return time.Now().UnixMilli() }

// start runs a keeper on registry m; change may alter its settings.
func start(t *testing.T, m *workeridtest.Memory, change ...func(*workerid.Config)) *life {
	t.Helper()
	l := &life{t: t, reg: &workeridtest.Fake{Memory: m}, err: make(chan error, 1)}
	cfg := workerid.Config{
		Registry: l.reg, Layout: layout, Now: l.now,
		MaxAhead: snowflake.DefaultMaxAhead,
		Use:      l.use, Alarm: l.alarm}
	for _, c := range change {
		c(&cfg)
	}
	l.keeper = workerid.New(cfg)
	l.run()
	return l
}

// deploy puts the deployment of a keeper with these settings into registry m.
func deploy(m *workeridtest.Memory, change ...func(*workerid.Config)) workerid.Deployment {
	cfg := workerid.Config{Layout: layout}
	for _, c := range change {
		c(&cfg)
	}
	d := workerid.DeploymentOf(cfg.Layout)
	d.ID = "deployed"
	m.Deploy(d)
	return d
}

// run runs the keeper until it waits for something.
func (l *life) run() {
	ctx, cancel := context.WithCancel(l.t.Context())
	l.cancel = cancel
	go func() { l.err <- l.keeper.Run(ctx) }()
	synctest.Wait()
}

func in(dir string) func(*workerid.Config) {
	return func(c *workerid.Config) { c.StateDir = dir }
}

func (l *life) use(g *snowflake.Generator) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gens = append(l.gens, g)
}

func (l *life) gen() *snowflake.Generator {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.gens) == 0 {
		return nil
	}
	return l.gens[len(l.gens)-1]
}

func (l *life) number() int {
	l.t.Helper()
	s := l.keeper.Status()
	if !s.Held {
		l.t.Fatalf("no number is held: %v", s.Trouble)
	}
	return s.Number
}

// issue returns one ID, decoded, or the zero Parts.
func (l *life) issue() snowflake.Parts {
	g := l.gen()
	if g == nil {
		return snowflake.Parts{}
	}
	runs, err := g.NextAt(l.now(), 1)
	if err != nil {
		return snowflake.Parts{}
	}
	for id := range runs.All() {
		p, _ := layout.Decode(id)
		return p
	}
	return snowflake.Parts{}
}

// stop ends the life cleanly.
func (l *life) stop() error {
	l.t.Helper()
	l.cancel()
	return <-l.err
}

// crash ends the life as kill -9 would: nothing it does from now on reaches
// the registry, and its state file stays as it is. No time passes.
func (l *life) crash(dir string) {
	l.t.Helper()
	path := filepath.Join(dir, "worker.json")
	file, err := os.ReadFile(path)
	l.reg.OnCall(func(string, func() error) error {
		<-l.t.Context().Done()
		return workeridtest.ErrInjected
	})
	l.cancel()
	l.t.Cleanup(func() { <-l.err })
	synctest.Wait()
	if err == nil {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
}
