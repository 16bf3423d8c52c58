package tests

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testbed"
	"github.com/natsid/natsid/internal/testkit/natstest"
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

// configured changes the settings of workers, counted from 0, before each of their starts.
func configured(configure func(worker int, cfg *app.Config)) e2e.Option {
	return func(c *testbed.Config) { c.Configure = configure }
}

// A load requests IDs, single and in batches, until it is stopped. It sends each
// request once, and keeps every answer.
type load struct {
	got    map[string]*ledger // by mode
	within time.Duration      // how long a request may take
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
	l := &load{got: make(map[string]*ledger), within: within, cancel: cancel}
	for mode := range subjectOf {
		l.got[mode] = new(ledger) // all of them, before any caller starts
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
