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
	"github.com/natsid/natsid/snowflake"
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
	goleak.VerifyTestMain(m, natstest.Left()...)
}

// configured changes the settings of workers, counted from 0, before each of their starts.
func configured(configure func(worker int, cfg *app.Config)) e2e.Option {
	return func(c *testbed.Config) { c.Configure = configure }
}

// modes are the two kinds of IDs, as requests for n of them.
var modes = map[string]func(ctx context.Context, c *e2e.Cluster, n int) ([]subjects.Run, error){
	"segment": func(ctx context.Context, c *e2e.Cluster, n int) ([]subjects.Run, error) {
		return c.Client.Segment("order").NextN(ctx, n)
	},
	"snowflake": func(ctx context.Context, c *e2e.Cluster, n int) ([]subjects.Run, error) {
		return c.Client.Snowflake().NextN(ctx, n)
	},
}

func TestThreeWorkersShareTheLoadAndEveryIDIsDifferent(t *testing.T) {
	t.Parallel()
	c := e2e.Start(t, e2e.WithWorkers(3), configured(inNoHurry))
	for mode, ask := range modes {
		t.Run(mode, func(t *testing.T) {
			const want, callers = 300_000, 8
			var got ledger
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for got.len() < want {
						runs, err := ask(patient(t), c, 1+rand.IntN(300))
						if err != nil {
							t.Error(err)
							return
						}
						got.add(runs...)
					}
				})
			}
			wg.Wait()
			got.check(t)
			if mode == "snowflake" {
				wantNumbers(t, &got, c.WorkerNumber(0), c.WorkerNumber(1), c.WorkerNumber(2))
			}
		})
	}
}

// wantNumbers checks that the snowflakes are those of the given worker
// numbers, all different, and that each took part.
func wantNumbers(t *testing.T, l *ledger, numbers ...int) {
	t.Helper()
	share := make(map[int]int64)
	for _, r := range l.runs {
		p, err := snowflake.Leaf.Decode(r.First)
		if err != nil {
			t.Fatal(err)
		}
		share[p.Worker] += r.Len()
	}
	for _, w := range numbers {
		if share[w] < l.n/10 {
			t.Errorf("worker number %d issued %d of %d IDs", w, share[w], l.n)
		}
	}
	if len(share) != len(numbers) {
		t.Errorf("IDs of worker numbers %v, want those of %v", share, numbers)
	}
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
