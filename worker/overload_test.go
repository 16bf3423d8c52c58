package worker_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// A blocked worker answers no request for snowflakes, as one that has too little CPU
// time, until it is released.
type blocked struct {
	*rig
	release   func()
	overloads atomic.Int64
	answers   *nats.Subscription
}

func startBlocked(t *testing.T, url string, edits ...edit) *blocked {
	b := &blocked{}
	released := make(chan struct{})
	b.release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(b.release)
	block := func(_ *segment.Config, cfg *worker.Config) {
		cfg.Overloaded = func(worker.Mode) { b.overloads.Add(1) }
		cfg.Observe = func(a worker.Answer) {
			if a.Mode == worker.Snowflake {
				<-released
			}
		}
	}
	b.rig = start(t, url, 0, newStore(t), append(edits, block)...)
	t.Cleanup(b.release) // before the worker stops
	var err error
	if b.answers, err = b.caller.SubscribeSync(b.caller.NewInbox()); err != nil {
		t.Fatal(err)
	}
	return b
}

// offer sends n requests.
func (b *blocked) offer(n int) {
	b.Helper()
	for range n {
		if err := b.caller.PublishRequest("id.snowflake", b.answers.Subject, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.caller.Flush(); err != nil {
		b.Fatal(err)
	}
}

func TestAWorkerThatIsLateLeavesAnswersWhatItHoldsAndComesBack(t *testing.T) {
	t.Parallel()
	b := startBlocked(t, natstest.Start(t))
	const n = 1000
	b.offer(n)
	b.eventually("say that it is late", func() bool {
		return b.worker.Trouble(worker.Snowflake) != nil && b.worker.Lag(worker.Snowflake) > 0
	})
	b.eventually("leave", func() bool {
		_, err := b.caller.Request("id.snowflake", nil, 100*time.Millisecond)
		return errors.Is(err, nats.ErrNoResponders)
	})
	b.one("id.segment.order") // the other mode is not late
	b.eventually("raise the alarm", func() bool { return b.overloads.Load() > 0 })
	b.release()
	ids := 0
	for i := range n {
		m, err := b.answers.NextMsg(30 * time.Second)
		switch {
		case errors.Is(err, nats.ErrNoResponders): // it had left before this one was sent
		case err != nil:
			t.Fatalf("%d of %d were answered: %v", i, n, err)
		default:
			b.ids(read(m), 1)
			ids++
		}
	}
	if ids < 32 { // so many wait, at least, when it leaves
		t.Errorf("%d of %d got an ID: it answers what it holds", ids, n)
	}
	b.eventually("come back", func() bool { return b.worker.Trouble(worker.Snowflake) == nil })
	b.one("id.snowflake")
	b.eventually("be in time", func() bool { return b.worker.Lag(worker.Snowflake) == 0 })
	if n := b.overloads.Load(); n != 1 {
		t.Errorf("%d alarms about one overload", n)
	}
}

// A machine that stands still for a moment, and has little to do, leaves nobody.
func TestAWorkerWithFewRequestsToAnswerStaysHoweverLateItIs(t *testing.T) {
	b := startBlocked(t, natstest.Start(t))
	b.offer(30)
	b.eventually("be late", func() bool { return b.worker.Lag(worker.Snowflake) > 300*time.Millisecond })
	if err := b.worker.Trouble(worker.Snowflake); err != nil {
		t.Error(err)
	}
}

// The NATS client subscribes again to subscriptions that it drains when it reconnects, and drops what arrives for them.
// So no connection is used again.
func TestAWorkerThatLosesTheConnectionWhileItLeavesSwallowsNoRequestLater(t *testing.T) {
	t.Parallel()
	url, proxy := startProxied(t)
	b := startBlocked(t, url, over(proxy.URL()))
	b.offer(1000)
	b.eventually("leave", func() bool { return b.worker.Trouble(worker.Snowflake) != nil })
	proxy.Cut()
	b.eventually("connect again", func() bool { return b.dials.Load() > 1 && b.worker.IsConnected() })
	b.release()
	b.eventually("come back", func() bool { return b.worker.Trouble(worker.Snowflake) == nil })
	for range 20 {
		b.one("id.snowflake")
	}
}

func TestADistantServerIsNoOverload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, for its distance")
	}
	url, proxy := startProxied(t)
	proxy.Delay(300 * time.Millisecond)
	b := startBlocked(t, url, over(proxy.URL()))
	b.release()
	// A machine that stands still for a moment makes the worker leave in some rounds,
	// but not in all.
	for range 10 {
		if !b.leavesUnder(10) {
			return
		}
		b.eventually("come back", func() bool { return b.worker.Trouble(worker.Snowflake) == nil })
	}
	t.Error("it leaves whenever there are requests, though it answers each at once")
}

// leavesUnder reports whether the worker leaves while it gets so many requests every
// 10 ms, for a second and a half.
func (b *blocked) leavesUnder(n int) bool {
	b.Helper()
	for range 150 {
		b.offer(n)
		if b.worker.Trouble(worker.Snowflake) != nil {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
