package tests

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testbed"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// execEnv makes the test binary run as natsid, for faults that need a process of
// their own.
const execEnv = "NATSID_E2E_EXEC"

func TestMain(m *testing.M) {
	if os.Getenv(execEnv) != "" {
		ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	if flag.Parse(); testing.Short() {
		fmt.Println("skipped: end-to-end tests take minutes, and -short is set")
		return
	}
	if signal.Ignored(syscall.SIGHUP) { // as under nohup; processes that tests start would ignore it, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	goleak.VerifyTestMain(m, natstest.Left()...)
}

// clientOn returns a client of the namespace id.
func clientOn(nc *nats.Conn) *client.Client { return client.Must(client.New(nc, client.Config{})) }

// flakes returns the handle of the snowflakes of the namespace id.
func flakes(nc *nats.Conn) *client.Handle {
	return client.Must(clientOn(nc).Snowflake(client.SnowflakeConfig{}))
}

// A cluster is as one of package e2e.
type cluster struct {
	*e2e.Cluster
	t   *testing.T
	bed *testbed.Cluster
}

// startConfigured starts a cluster; configure changes the settings of workers, counted from 0, before each of their
// starts.
func startConfigured(t *testing.T, workers int, configure func(worker int, cfg *app.Config)) cluster {
	t.Helper()
	bed, err := testbed.Start(testbed.Config{
		Dir: t.TempDir(), Workers: workers, Namespace: subjects.DefaultNamespace,
		Configure: func(i int, cfg *app.Config) {
			log := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
			cfg.Log = slog.New(log).With("worker", i)
			configure(i, cfg)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	nc := natstest.Connect(t, bed.URL)
	return cluster{&e2e.Cluster{URL: bed.URL, Conn: nc, Client: clientOn(nc)}, t, bed}
}

func (c cluster) Segment(tag string) *client.Handle {
	return client.Must(c.Client.Segment(tag, client.SegmentConfig{}))
}

func (c cluster) StartWorker(i int) {
	if err := c.bed.StartWorker(i); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) StopWorker(i int) {
	if err := c.bed.StopWorker(i); err != nil {
		c.t.Error(err)
	}
}

// A load requests IDs, single and in batches, until it is stopped. It sends each
// request once, and keeps every answer.
type load struct {
	got    map[string]*given // by mode
	within time.Duration     // how long a request may take
	mu     sync.Mutex
	errs   []error
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startLoad starts callers for each of the given subjects, on one connection. A request may take so long; what is lost
// stays lost.
func startLoad(
	t *testing.T, within time.Duration, nc *nats.Conn, callers int, subjectOf map[string]string,
) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{got: make(map[string]*given), within: within, cancel: cancel}
	for mode := range subjectOf {
		l.got[mode] = newGiven(t) // all of them, before any caller starts
	}
	for mode, subject := range subjectOf {
		for range callers {
			l.wg.Go(func() {
				for ctx.Err() == nil {
					l.ask(nc, mode, subject)
				}
			})
		}
	}
	return l
}

func (l *load) ask(nc *nats.Conn, mode, subject string) {
	n := 1
	if rand.IntN(4) == 0 {
		n += rand.IntN(100)
	}
	runs, err := request(nc, subject, n, l.within)
	l.got[mode].add(runs...)
	if err != nil {
		l.mu.Lock()
		l.errs = append(l.errs, fmt.Errorf("%s: %w", subject, err))
		l.mu.Unlock()
	}
}

// stop ends the load and returns the errors of its requests.
func (l *load) stop() []error {
	l.cancel()
	l.wg.Wait()
	return l.errs
}

func (l *load) check(t *testing.T) {
	t.Helper()
	for _, got := range l.got {
		got.check(t)
	}
}

var bothModes = map[string]string{"segment": "id.segment.order", "snowflake": "id.snowflake"}
