package tests

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/subjects"
)

// A steadyLoad is callers that each request one ID of tag order, at intervals or
// as soon as they have their answer if that is later, until it is stopped.
type steadyLoad struct {
	got    ledger
	stop   func()
	served atomic.Int64

	mu   sync.Mutex
	took []time.Duration
	bad  []refusal
}

// A refusal is a request that got no ID.
type refusal struct {
	asked time.Time
	took  time.Duration
	err   error
}

func startSteadyLoad(t *testing.T, c *e2e.Cluster, callers int, every time.Duration) *steadyLoad {
	l, done := new(steadyLoad), make(chan struct{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			due := time.Now()
			for {
				select {
				case <-time.After(time.Until(due)):
					l.ask(t, c)
				case <-done:
					return
				}
				// A caller that a busy machine delayed does not catch up in a burst:
				// that would not be a steady load.
				if due = due.Add(every); due.Before(time.Now()) {
					due = time.Now()
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() { close(done); wg.Wait() })
	t.Cleanup(l.stop)
	return l
}

func (l *steadyLoad) ask(t *testing.T, c *e2e.Cluster) {
	asked := time.Now()
	runs, err := request(c.Conn, "id.segment.order", 1, patience)
	took := time.Since(asked)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	if err != nil {
		l.bad = append(l.bad, refusal{asked, took, err})
		return
	}
	l.got.add(runs...)
	l.served.Add(1)
}

// forget returns the times so far, in order, and starts a new record of them.
func (l *steadyLoad) forget() (took []time.Duration, bad []refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took, bad = l.took, l.bad
	l.took, l.bad = nil, nil
	slices.Sort(took)
	return took, bad
}

func (l *steadyLoad) refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.bad) > 0
}

// order returns the worker's statistics of the tag.
func order(t *testing.T, c *e2e.Cluster) subjects.TagStats {
	t.Helper()
	var page []subjects.TagInfo
	waitFor(t, "the worker lists the tag", func() (listed bool) {
		var err error
		page, err = c.Client.ListTags(patient(t), subjects.TagList{Stats: true})
		return err == nil && len(page) == 1 && page[0].Stats != nil
	})
	return *page[0].Stats
}

func TestALostDatabaseGoesUnnoticedUntilMemoryIsUsedUp(t *testing.T) {
	t.Parallel()
	for how, trouble := range map[string]struct{ leave, comeBack func(*mysqltest.Server) }{
		"killed":  {(*mysqltest.Server).Kill, (*mysqltest.Server).Run},
		"stopped": {(*mysqltest.Server).Pause, (*mysqltest.Server).Resume},
	} {
		t.Run(how, func(t *testing.T) {
			db := mysqltest.Start(t)
			c := e2e.Start(t, configured(func(_ int, cfg *app.Config) { cfg.MySQL, cfg.MaxStep = db.DSN(), 1 }))
			if _, err := c.Client.CreateTag(patient(t), subjects.TagCreate{Tag: "order", Step: 2000}); err != nil {
				t.Fatal(err)
			}
			const callers = 4
			l := startSteadyLoad(t, c, callers, 4*time.Millisecond) // a range lasts 2 s
			var before, left int64
			waitFor(t, "a range used up and two in memory", func() bool {
				l.forget()
				before = l.served.Load()
				s := order(t, c)
				left = s.Left
				return before > 2500 && len(s.Ranges) == 2 && !l.refused()
			})

			// The first refusal means that memory is used up. Each of the other
			// callers may have an ID on its way then.
			trouble.leave(db)
			away := time.Now()
			waitFor(t, "a refusal", l.refused)
			if served := l.served.Load() - before; served < left-callers {
				t.Errorf("%d IDs were left in memory, and %d were served", left, served)
			} else {
				t.Logf("%d IDs were left in memory, and %d were served, for %v", left, served, time.Since(away))
			}
			lookAway(t, c, l)

			trouble.comeBack(db)
			back := time.Now()
			waitFor(t, "IDs again", func() bool { return l.served.Load() > before+left+1000 })
			l.stop()
			took, bad := l.forget()
			var last time.Duration
			for _, b := range bad {
				if e, ok := errors.AsType[*subjects.Error](b.err); !ok || e.Code != subjects.Unavailable {
					t.Errorf("refused with %v", b.err)
				}
				last = max(last, b.asked.Add(b.took).Sub(back))
			}
			t.Logf("%d refused, the slowest after %v; the last %v after the database was back",
				len(bad), took[len(took)-1], last)
			deadline := app.Default().Deadline
			if longest := took[len(took)-1]; longest > deadline+slack {
				t.Errorf("a request took %v, and the deadline is %v", longest, deadline)
			}
			if last > deadline+slack {
				t.Errorf("a request was refused %v after the database was back", last)
			}
			l.got.check(t)
		})
	}
}

// lookAway checks for a while how often workers try a store that is away.
func lookAway(t *testing.T, c *e2e.Cluster, l *steadyLoad) {
	t.Helper()
	const while = 4 * time.Second
	failed := func() int64 {
		workers, err := c.Client.Workers(patient(t))
		if err != nil || len(workers) != 1 || len(workers[0].Busiest) != 1 {
			t.Fatalf("%+v, %v", workers, err)
		}
		return workers[0].Busiest[0].Errors
	}
	before, begin := failed(), time.Now()
	time.Sleep(while) // loads are counted over this time
	waitFor(t, "a load that fails", func() bool { return failed() > before })
	loads, lasted := failed()-before, time.Since(begin)
	// A pause of 10 ms to 250 ms follows each, which varies by half.
	if most := int64(lasted/(125*time.Millisecond)) + 10; loads > most {
		t.Errorf("%d loads failed in %v, while 4 callers waited; want %d at most", loads, lasted, most)
	} else {
		t.Logf("%d loads failed in %v", loads, lasted)
	}
}

func TestASlowDatabaseDelaysNoCaller(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	c := e2e.Start(t, configured(func(i int, cfg *app.Config) {
		inNoHurry(i, cfg)
		cfg.MySQL, cfg.MaxStep = db.DSN(), 1
	}))
	if _, err := c.Client.CreateTag(patient(t), subjects.TagCreate{Tag: "order", Step: 100}); err != nil {
		t.Fatal(err)
	}
	l := startSteadyLoad(t, c, 4, 4*time.Millisecond) // a range lasts 0.1 s
	measure := func() (p999 time.Duration, asked, loads, waits int64) {
		l.served.Store(0)
		waitFor(t, "enough requests to know their speed by", func() bool { return l.served.Load() > 2000 })
		before := order(t, c)
		l.forget()
		waitFor(t, "enough requests to judge by", func() bool { return l.served.Load() > 6000 })
		took, bad := l.forget()
		if len(bad) > 0 {
			t.Errorf("%d refused, such as %+v", len(bad), bad[0])
		}
		after := order(t, c)
		return took[len(took)*999/1000], int64(len(took)), after.Loads - before.Loads, after.Waits - before.Waits
	}
	fast, _, loads, _ := measure()
	const slowly = "CREATE TRIGGER slow BEFORE UPDATE ON leaf_alloc FOR EACH ROW DO SLEEP(0.2)"
	if _, err := db.DB().ExecContext(t.Context(), slowly); err != nil {
		t.Fatal(err)
	}
	slow, asked, slowLoads, waits := measure()
	t.Logf("p99.9 %v with a fast database (%d loads), %v with loads of 0.2 s (%d loads), ratio %.2f; %d waits",
		fast, loads, slow, slowLoads, float64(slow)/float64(fast), waits)
	// If ranges were not loaded ahead in time, half of the requests would wait. Some
	// do where a busy machine makes a load slower than those before; the tests of
	// segment, on a clock of their own, show that none does otherwise.
	if waits > asked/5 || slowLoads < 3 {
		t.Errorf("%d of %d requests waited for %d loads of 0.2 s", waits, asked, slowLoads)
	}
	l.stop()
	l.got.check(t)
}
