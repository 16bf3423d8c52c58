package worker_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// A flooded worker takes 200 us for each answer, or more.
type flooded struct {
	*rig
	inbox            string
	ids, none, other atomic.Int64 // answers; other: with an error code
	sent             int64
}

func startFlooded(t *testing.T, url, at string) *flooded {
	f := &flooded{}
	f.rig = start(t, url, 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		over(at, nats.SetCustomDialer(&worker.Cork{}))(nil, cfg)
		cfg.Observe = func(worker.Answer) { time.Sleep(200 * time.Microsecond) }
	})
	f.inbox = f.caller.NewInbox()
	answers, err := f.caller.Subscribe(f.inbox, func(m *nats.Msg) {
		switch {
		case m.Header.Get("Status") == "503":
			f.none.Add(1)
		case len(m.Header) > 0:
			f.other.Add(1)
		default:
			f.ids.Add(1)
		}
	})
	if err == nil {
		err = answers.SetPendingLimits(-1, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *flooded) answered() int64 { return f.ids.Load() + f.none.Load() + f.other.Load() }

// flood sends more and more requests, until there are more than the worker can answer and
// it was late; then many more than that.
func (f *flooded) flood() {
	f.Helper()
	for burst, n := 100, 0; n < 200; {
		if burst++; f.none.Load() > 0 {
			burst, n = 300, n+1
		}
		for range burst {
			if err := f.caller.PublishRequest("id.snowflake", f.inbox, nil); err != nil {
				f.Fatal(err)
			}
		}
		f.sent += int64(burst)
		time.Sleep(10 * time.Millisecond)
	}
	if err := f.caller.FlushTimeout(time.Minute); err != nil {
		f.Fatal(err)
	}
}

// The worker leaves and comes back again and again.
func TestEveryRequestIsAnsweredDuringAnOverload(t *testing.T) {
	url := startServer(t)
	f := startFlooded(t, url, url)
	f.flood()
	for last := int64(-1); f.answered() != f.sent && f.answered() > last; { // as long as a slow machine takes
		last = f.answered()
		for end := time.Now().Add(30 * time.Second); f.answered() == last && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	if f.answered() != f.sent {
		t.Errorf("%d of %d requests were answered", f.answered(), f.sent)
	}
	if f.ids.Load() == 0 || f.none.Load() == 0 || f.other.Load() > 0 {
		t.Errorf("%d IDs, %d were told that nobody serves, %d others", f.ids.Load(), f.none.Load(), f.other.Load())
	}
}

func TestAnOverloadedWorkerThatLosesTheConnectionSwallowsNoRequestLater(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	proxy, err := natsproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	f := startFlooded(t, url, proxy.URL())
	f.flood()
	proxy.Cut()
	f.flood()
	f.eventually("be in time", func() bool {
		return f.worker.Trouble(worker.Snowflake) == nil && f.worker.Lag(worker.Snowflake) == 0
	})
	for range 200 { // on a busy machine it may be late again, and leave for a moment
		if _, err := f.try("id.snowflake", ""); err != nil && !errors.Is(err, nats.ErrNoResponders) {
			t.Fatal(err)
		}
	}
}
