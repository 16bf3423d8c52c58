package tests

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A wall is a wall clock that can be set.
type wall struct{ slip atomic.Int64 } // ns ahead of the machine's

func (w *wall) set(slip time.Duration) { w.slip.Store(int64(slip)) }
func (w *wall) now() time.Time         { return time.Now().Add(time.Duration(w.slip.Load())) }

// alarms collects what is published on id.alarm.*.
type alarms struct {
	mu    sync.Mutex
	kinds []string
}

func listen(t *testing.T, c *e2e.Cluster) *alarms {
	t.Helper()
	a := new(alarms)
	_, err := c.Conn.Subscribe("id.alarm.*", func(m *nats.Msg) {
		var body struct {
			Kind, Instance, Message string
			Time                    time.Time
		}
		err := json.Unmarshal(m.Data, &body)
		whole := "id.alarm."+body.Kind == m.Subject && body.Instance != "" && body.Message != "" && !body.Time.IsZero()
		if err != nil || !whole {
			t.Errorf("on %s: %s, %v", m.Subject, m.Data, err)
		}
		t.Logf("%s: %s", m.Subject, body.Message)
		a.mu.Lock()
		a.kinds = append(a.kinds, body.Kind)
		a.mu.Unlock()
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// have reports whether an alarm of the kind was published.
func (a *alarms) have(kind string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.kinds, kind)
}

// are waits until as many alarms were published, and fails the test unless they
// are exactly these, in any order.
func (a *alarms) are(t *testing.T, want ...string) {
	t.Helper()
	const disk = string(subjects.AlarmStateFile) // that of a busy machine may not answer for 2 s
	foreign := func(kind string) bool { return kind == disk && !slices.Contains(want, disk) }
	heard := func() []string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.DeleteFunc(slices.Clone(a.kinds), foreign)
	}
	waitFor(t, "all alarms are published", func() bool { return len(heard()) >= len(want) })
	kinds := heard()
	slices.Sort(kinds) // what happens at the same time is told in any order
	if slices.Sort(want); !slices.Equal(kinds, want) {
		t.Errorf("alarms %q, want %q", kinds, want)
	}
}

func TestAWorkerWhoseClockIsSetLeavesAndComesBackWithItsClock(t *testing.T) {
	t.Parallel()
	for _, slip := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(slip.String(), func(t *testing.T) {
			t.Parallel()
			var clock wall
			c := e2e.Start(t, e2e.WithWorkers(2), configured(func(i int, cfg *app.Config) {
				if i == 0 {
					cfg.Now = clock.now
				}
			}))
			raised := listen(t, c)
			began := time.Now()
			l := startLoad(t, c.Conn, 4, bothModes)
			waitFor(t, "both workers serve snowflakes", func() bool { return serving(t, c) == 2 })
			clock.set(slip)
			waitFor(t, "the worker has left", func() bool { return serving(t, c) == 1 })
			raised.are(t, "clock-step", "clock-skew")
			time.Sleep(4 * time.Second) // more than a heartbeat, in which no other alarm may be raised
			raised.are(t, "clock-step", "clock-skew")
			clock.set(0)
			waitFor(t, "the worker is back", func() bool { return serving(t, c) == 2 })
			for _, err := range l.stop() {
				e, ok := errors.AsType[*subjects.Error](err)
				if !ok || e.Code != subjects.Unavailable || e.Text == "" {
					t.Error(err)
				}
			}
			l.check(t)
			for _, run := range l.got["snowflake"].runs {
				p, err := snowflake.Leaf.Decode(run.Last)
				early, late := began.Add(-10*time.Second), time.Now().Add(5*time.Second)
				if err != nil || p.Time.Before(early) || p.Time.After(late) {
					t.Fatalf("an ID of the wrong clock was issued: %+v, %v", p, err)
				}
			}
			t.Logf("%d requests, %d of them 503", l.asked.Load(), len(l.errs))
		})
	}
}

func TestWithTheOnlyClockWrongSegmentsContinueAndSnowflakesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	var clock wall
	c := e2e.Start(t, configured(func(_ int, cfg *app.Config) { cfg.Now = clock.now }))
	clock.set(24 * time.Hour)
	refused := func() error { // by the nats-server, at once: no worker gets the request
		_, err := c.Conn.Request("id.snowflake", nil, patience)
		return err
	}
	waitFor(t, "the worker has left", func() bool { return errors.Is(refused(), nats.ErrNoResponders) })
	for range 20 {
		if err := refused(); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a snowflake: %v", err)
		}
		if _, err := c.Client.Segment("order").Next(patient(t)); err != nil {
			t.Errorf("a segment ID: %v", err)
		}
	}
	clock.set(0)
	if _, err := c.Client.Snowflake().Next(patient(t)); err != nil {
		t.Errorf("after the clock is right again: %v", err)
	}
}

func TestAStepBackShorterThanTheDeadlineIsWaitedOut(t *testing.T) {
	t.Parallel()
	var clock wall
	c := e2e.Start(t, configured(func(i int, cfg *app.Config) {
		inNoHurry(i, cfg)
		cfg.Now = clock.now
	}))
	number, began := c.WorkerNumber(0), time.Now()
	before, err := request(c.Conn, "id.snowflake", 1, patience)
	if err != nil {
		t.Fatal(err)
	}
	clock.set(-800 * time.Millisecond)
	time.Sleep(2 * time.Millisecond)                           // requests share a reading of the clock for one
	after, err := request(c.Conn, "id.snowflake", 1, patience) // once: a client would ask again
	if err != nil || after[0].First <= before[0].First {
		t.Fatalf("%v after %v, %v", after, before, err)
	}
	if waited := time.Since(began); waited < 700*time.Millisecond {
		t.Errorf("it waited %v for 800 ms", waited)
	}
	if p, err := snowflake.Leaf.Decode(after[0].First); err != nil || p.Worker != number {
		t.Errorf("%+v, %v, want number %d still", p, err, number)
	}
}

func TestARightClockBehindItsIDsWaitsOrTakesAnotherNumber(t *testing.T) {
	t.Parallel()
	for name, reclaim := range map[string]bool{"wait": false, "reclaim": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// If the machine stalls, the clock catches up before the worker looks at it.
			for try := 1; stepBack(t, reclaim) > stallMax; try++ {
				if try == 5 {
					t.Fatalf("this machine stalls too often for a step of %v to be noticed", step)
				}
			}
		})
	}
}

// stallMax is much less than the step of stepBack.
const (
	step     = 2500 * time.Millisecond
	stallMax = time.Second
)

// stepBack corrects a clock that was ahead by a step, and checks which number serves
// then, unless this machine stalled meanwhile. It returns the longest stall.
func stepBack(t *testing.T, reclaim bool) (stall time.Duration) {
	t.Helper()
	var clock wall
	clock.set(step)
	c := e2e.Start(t, configured(func(_ int, cfg *app.Config) {
		cfg.Now, cfg.ReclaimOnStep, cfg.Deadline = clock.now, reclaim, 100*time.Millisecond
		cfg.MaxClockSkew = step + 500*time.Millisecond
	}))
	raised := listen(t, c)
	number, stalled := c.WorkerNumber(0), watchStalls(t)
	if _, err := c.Client.Snowflake().Next(patient(t)); err != nil {
		t.Fatal(err)
	}
	clock.set(0)
	var id int64
	waitFor(t, "snowflakes come again", func() bool {
		time.Sleep(120 * time.Millisecond) // the worker leaves first
		got, err := c.Client.Snowflake().Next(t.Context())
		id = int64(got)
		return err == nil
	})
	if stall = stalled(); stall > stallMax {
		return stall
	}
	p, err := snowflake.Leaf.Decode(id)
	if err != nil || (p.Worker != number) != reclaim {
		t.Errorf("%+v, %v: the number was %d", p, err, number)
	}
	raised.are(t, "clock-step", "clock-behind")
	return stall
}

// watchStalls returns a function that returns for how long this process has stood
// still at most since then.
func watchStalls(t *testing.T) (longest func() time.Duration) {
	var most atomic.Int64
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-time.After(10 * time.Millisecond):
				most.Store(max(most.Load(), int64(time.Since(last))))
			case <-done:
				return
			}
		}
	}()
	return func() time.Duration { return time.Duration(most.Load()) }
}
