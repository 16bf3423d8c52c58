package worker_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/worker"
)

func TestAWorkerThatCannotIssueSnowflakesLeavesTheGroupAndComesBack(t *testing.T) {
	t.Parallel()
	served := func(r *rig, subject string) bool {
		_, err := r.try(subject, "")
		return !errors.Is(err, nats.ErrNoResponders)
	}
	for _, tc := range []struct {
		law     string
		breaks  func(*rig)
		trouble error // nil: a clock that is behind
		repair  func(*rig)
	}{
		{law: "no worker number", trouble: snowflake.ErrNoNumber,
			breaks: func(r *rig) { r.issuer.Use(nil) },
			repair: func(r *rig) { r.issuer.Use(r.generator(time.Hour)) }},
		{law: "the number was given up", trouble: snowflake.ErrClosed,
			breaks: func(r *rig) { r.issuer.Generator().Close() },
			repair: func(r *rig) { r.issuer.Use(r.generator(time.Hour)) }},
		{law: "the window has ended", trouble: snowflake.ErrWindow,
			breaks: func(r *rig) { r.issuer.Use(r.generator(0)) },
			repair: func(r *rig) { r.issuer.Generator().Extend(time.Now().Add(time.Hour).UnixMilli()) }},
		{law: "the clock was set back",
			breaks: func(r *rig) { r.one("id.snowflake"); r.offset.Store(-time.Hour.Milliseconds()) },
			repair: func(r *rig) { r.offset.Store(0) }},
		{law: "the clock is before the epoch", trouble: snowflake.ErrEpoch,
			breaks: func(r *rig) { r.offset.Store(-time.Now().UnixMilli()) },
			repair: func(r *rig) { r.offset.Store(0) }},
	} {
		t.Run(tc.law, func(t *testing.T) {
			r := start(t, natstest.Start(t), 0, newStore(t))
			tc.breaks(r)
			// It leaves subject by subject.
			for _, subject := range []string{"id.snowflake", "id.snowflake.1"} {
				r.eventually("leave "+subject, func() bool { return !served(r, subject) })
			}
			begin := time.Now()
			served(r, "id.snowflake")
			if d := time.Since(begin); d > slack {
				t.Errorf("callers learn of it after %v, want at once", d)
			}
			r.eventually("say why", func() bool {
				trouble := r.worker.Trouble(worker.Snowflake)
				_, behind := errors.AsType[*snowflake.BehindError](trouble)
				return behind && tc.trouble == nil || tc.trouble != nil && errors.Is(trouble, tc.trouble)
			})
			r.one("id.segment.order") // segments are still served
			tc.repair(r)
			for _, subject := range []string{"id.snowflake", "id.snowflake.1"} {
				r.eventually("come back to "+subject, func() bool { return served(r, subject) })
			}
			r.eventually("say that all is well", func() bool { return r.worker.Trouble(worker.Snowflake) == nil })
			r.one("id.snowflake")
			r.one("id.snowflake.1")
		})
	}
}

func TestAWorkerThatLeavesOverALostConnectionGetsNoRequestsAfterAReconnect(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*rig, *natsproxy.Proxy){
		"it is lost": func(r *rig, p *natsproxy.Proxy) {
			p.Refuse(true)
			p.Cut()
			r.eventually("lose the connection", func() bool { return !r.worker.IsConnected() })
		},
		"it hangs, and is lost later": func(_ *rig, p *natsproxy.Proxy) { p.Stall(true) },
	} {
		t.Run(name, func(t *testing.T) {
			url, proxy := startProxied(t)
			r := start(t, url, 0, newStore(t), over(proxy.URL()))
			r.one("id.snowflake")
			lose(r, proxy)
			r.issuer.Use(nil)
			time.Sleep(300 * time.Millisecond) // long enough to notice, and to leave
			proxy.Cut()
			proxy.Pass()
			r.eventually("connect again", func() bool { return r.dials.Load() > 1 && r.worker.IsConnected() })
			for range 50 {
				if _, err := r.try("id.snowflake", ""); err != nil && !errors.Is(err, nats.ErrNoResponders) {
					t.Fatalf("%v, want an answer or no responders", err)
				}
				time.Sleep(5 * time.Millisecond)
			}
			r.issuer.Use(r.generator(time.Hour))
			r.eventually("come back", func() bool { return r.worker.Trouble(worker.Snowflake) == nil })
			r.one("id.snowflake")
		})
	}
}

func TestAWorkerOnAHangingConnectionDoesNotReportThatItServes(t *testing.T) {
	t.Parallel()
	url, proxy := startProxied(t)
	var passes atomic.Bool
	r := start(t, url, 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Dial = func(_ []string, opts ...nats.Option) (*nats.Conn, error) {
			nc, err := nats.Connect(proxy.URL(), opts...)
			if !passes.Load() {
				proxy.Stall(true)
				time.AfterFunc(1500*time.Millisecond, func() { passes.Store(true); proxy.Pass() })
			}
			return nc, err
		}
	})
	if !passes.Load() {
		t.Error("it reported that it serves, and the server did not know")
	}
	r.one("id.snowflake")
}

func TestComingAndGoingLeavesNothingBehind(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	before := r.conn().NumSubscriptions()
	for range 5 {
		r.issuer.Use(nil)
		r.eventually("leave the group", func() bool { return r.worker.Trouble(worker.Snowflake) != nil })
		r.issuer.Use(r.generator(time.Hour))
		r.eventually("come back", func() bool { return r.worker.Trouble(worker.Snowflake) == nil })
	}
	r.eventually("have as many subscriptions as before", func() bool { return r.conn().NumSubscriptions() == before })
	r.one("id.snowflake")
}

// A busy machine may delay the worker beyond the end of a window, but not every
// time; a worker that left at the end would refuse requests every time.
func TestAWorkerLeavesTheGroupBeforeItsWindowEnds(t *testing.T) {
	t.Parallel()
	r := start(t, natstest.Start(t), 0, newStore(t))
	leaves := func(window time.Duration) (refused reply) {
		var end time.Time
		r.eventually("serve snowflakes", func() bool {
			if now := time.Now(); now.After(end) {
				r.issuer.Use(r.generator(window))
				end = now.Add(window)
			}
			return r.worker.Trouble(worker.Snowflake) == nil
		})
		for {
			got, err := r.try("id.snowflake", "")
			if errors.Is(err, nats.ErrNoResponders) {
				return refused
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.code != "" {
				refused = got
			}
		}
	}
	var refused reply
	for round := range 10 {
		refused = leaves(time.Duration(1+round) * time.Second)
		r.eventually("say why", func() bool {
			return errors.Is(r.worker.Trouble(worker.Snowflake), snowflake.ErrWindow)
		})
		if refused.code == "" {
			return
		}
	}
	t.Errorf("refused while it is in the group: %+v", refused)
}

func TestWhatIsDeliveredToAWorkerThatCannotIssueIsAnsweredAtOnce(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	var got reply
	for range 100 {
		r.issuer.Use(nil)
		var err error
		if got, err = r.try("id.snowflake", ""); err == nil {
			break
		}
		if !errors.Is(err, nats.ErrNoResponders) {
			t.Fatal(err)
		}
		// It had left the group already. Once more.
		r.issuer.Use(r.generator(time.Hour))
		r.eventually("come back", func() bool { _, err := r.try("id.snowflake", ""); return err == nil })
	}
	r.wantRefusal(got, "503")
	r.stop()
	close(r.answers)
	for a := range r.answers {
		if a.Parked {
			t.Errorf("%+v, want no request parked", a)
		}
	}
}

func TestAWorkerAnswersToTheNumberItHolds(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	answers := func(number int) bool {
		got, err := r.try(fmt.Sprintf("id.worker.%d", number), "")
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			t.Fatal(err)
		}
		return err == nil && got.body == fmt.Sprintf(`{"number":%d}`, number)
	}
	r.eventually("answer to 0", func() bool { return answers(0) && !answers(1) })
	r.number.Store(1)
	r.eventually("answer to 1, no longer to 0", func() bool { return answers(1) && !answers(0) })
	r.number.Store(-1)
	r.eventually("answer to nothing", func() bool { return !answers(1) && !answers(0) })
}

func TestTwoNamespacesShareAServerAndNothingElse(t *testing.T) {
	url, store := natstest.Start(t), newStore(t)
	r := start(t, url, 0, store)
	other := start(t, url, 1, store, func(_ *segment.Config, cfg *worker.Config) { cfg.Namespace = "other" })
	r.one("id.segment.order")
	r.stop()
	other.one("other.segment.order")
	other.one("other.snowflake")
	for _, subject := range []string{"id.segment.order", "id.snowflake", "$SRV.INFO.id"} {
		if _, err := other.try(subject, ""); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v", subject, err)
		}
	}
}

// A number may be won between two looks at it.
func TestNoSnowflakeIsIssuedBeforeTheWorkerAnswersForItsNumber(t *testing.T) {
	var looks atomic.Int64
	r := start(t, natstest.Start(t), 1, newStore(t), func(_ *segment.Config, c *worker.Config) {
		number := c.Number
		c.Number = func() (int, bool, any) {
			n, held, who := number()
			return n, held && looks.Add(1) > 1, who
		}
	})
	if _, err := r.try("id.worker.1", ""); err != nil {
		t.Errorf("snowflakes are served, and no worker answers for number 1: %v", err)
	}
}
