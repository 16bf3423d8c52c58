package worker_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// A leaver is a worker that leaves the group of snowflakes while a handler of it is held.
type leaver struct {
	*rig
	conn    *nats.Conn
	answers *nats.Subscription // to the requests that it has taken
	away    atomic.Bool
	another atomic.Bool // that the group of segments is left, too, while a handler of it is held for as long as it is
	looks   sync.Mutex  // the goroutine that looks needs it
	free    func()      // the handler
}

// startLeaver returns a worker that has left after it took so many requests, of which one is handled.
func startLeaver(t *testing.T, taken int) *leaver {
	t.Helper()
	url := startServer(t)
	conn, err := nats.Connect(url, nats.SetCustomDialer(&worker.Cork{}), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	var slow atomic.Bool
	handles, handle := make(chan struct{}), make(chan struct{})
	block := sync.OnceFunc(func() { close(handles); <-handle })
	l := &leaver{conn: conn, free: sync.OnceFunc(func() { close(handle) })}
	l.rig = start(t, url, 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Conn = conn
		cfg.Away = func(mode worker.Mode) error {
			l.looks.Lock()
			defer l.looks.Unlock()
			if l.away.Load() && mode == worker.Snowflake || l.another.Load() && mode == worker.Segment {
				return errors.New("away")
			}
			return nil
		}
		cfg.Observe = func(a worker.Answer) {
			if a.Mode == worker.Snowflake && slow.Load() {
				block()
			}
			for a.Mode == worker.Segment && l.another.Load() {
				time.Sleep(time.Millisecond)
			}
		}
	})
	t.Cleanup(func() { l.free(); l.another.Store(false) }) // before the worker stops
	l.one("id.snowflake")
	slow.Store(true)
	if l.answers, err = l.caller.SubscribeSync(l.caller.NewInbox()); err != nil {
		t.Fatal(err)
	}
	for range taken {
		if err := l.caller.PublishRequest("id.snowflake", l.answers.Subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	<-handles
	if err := l.caller.Flush(); err != nil {
		t.Fatal(err)
	}
	l.away.Store(true)
	l.worker.Wake()
	l.eventually("leave", func() bool {
		_, err := l.caller.Request("id.snowflake", nil, 50*time.Millisecond) // one that it still gets waits there
		return errors.Is(err, nats.ErrNoResponders)
	})
	return l
}

// connectsAgain waits until the worker has connected again so many times, or more.
func (l *leaver) connectsAgain(times uint64) {
	l.Helper()
	l.eventually("connect again", func() bool { return l.conn.Stats().Reconnects >= times && l.conn.IsConnected() })
}

// Where a connection is lost while a queue group is left, the client would subscribe on the next connection to what it
// drains, and drop what arrives once it is drained. So no connection is made before.
func TestNoRequestIsLostWhereTheConnectionIsLostWhileAGroupIsLeft(t *testing.T) {
	t.Parallel()
	r := startLeaver(t, 100)
	if err := r.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, r.free)
	r.connectsAgain(1)
	later, err := r.caller.SubscribeSync(r.caller.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(100 * time.Microsecond) {
		for _, subject := range []string{"id.snowflake", "id.tag.list"} {
			if err := r.caller.PublishRequest(subject, later.Subject, nil); err != nil {
				t.Fatal(err)
			}
			sent++
		}
	}
	for i := range sent {
		if _, err := later.NextMsg(10 * time.Second); err != nil && !errors.Is(err, nats.ErrNoResponders) {
			t.Fatalf("%d of %d requests on the next connection are answered: %v", i, sent, err)
		}
	}
	for range 100 {
		if _, err := r.answers.NextMsg(time.Minute); err != nil {
			t.Fatalf("a request that it had taken: %v", err)
		}
	}
}

// Where the handlers of what is left take longer than a dial is put off, the client subscribes to it again. The worker
// may notice the new connection only when all of that is gone.
func TestNoRequestIsLostWhereWhatIsLeftIsGoneBeforeTheWorkerLooks(t *testing.T) {
	t.Parallel()
	r := startLeaver(t, 2)
	r.looks.Lock()
	if err := r.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	r.connectsAgain(1)
	r.free()
	time.Sleep(500 * time.Millisecond) // the client looks each 100 ms whether all is handled
	r.away.Store(false)
	r.looks.Unlock()
	r.connectsAgain(2)
	r.eventually("serve", func() bool { return r.worker.Trouble(worker.Snowflake) == nil })
	for range 100 {
		r.one("id.snowflake")
	}
}

// In a lasting overload something is being left at any time. Only what was left at the dial is subscribed to again.
func TestAWorkerConnectsAnewThoughMoreIsBeingLeft(t *testing.T) {
	t.Parallel()
	r := startLeaver(t, 2)
	if err := r.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	r.connectsAgain(1)
	r.eventually("serve segments", func() bool { // so the next one is answered from memory, and held
		_, err := r.caller.Request("id.segment.order", nil, time.Second)
		return err == nil
	})
	r.another.Store(true)
	if err := r.caller.PublishRequest("id.segment.order", r.answers.Subject, nil); err != nil {
		t.Fatal(err)
	}
	r.eventually("leave segments", func() bool {
		_, err := r.caller.Request("id.segment.order", nil, 50*time.Millisecond)
		return errors.Is(err, nats.ErrNoResponders)
	})
	r.free()
	r.connectsAgain(2)
}

// The client keeps what it sends while there is no connection for the next one.
func TestAnswersAreSentWhereTheConnectionIsLostWhileTheWorkerStops(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	at, err := natsproxy.Start(strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.Close)
	conn, err := nats.Connect(at.URL(), nats.SetCustomDialer(&worker.Cork{}), nats.MaxReconnects(-1),
		nats.IgnoreDiscoveredServers(), nats.ReconnectWait(250*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	r := start(t, url, 0, newStore(t), func(s *segment.Config, cfg *worker.Config) {
		cfg.Conn, cfg.Deadline = conn, time.Minute // for a busy machine
		s.Deadline, s.LoadTimeout = time.Minute, time.Minute
	})
	release := holdLoads(r)
	answers, err := r.caller.SubscribeSync(r.caller.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.caller.PublishRequest("id.segment.order", answers.Subject, nil); err != nil {
		t.Fatal(err)
	}
	r.eventually("take the request", func() bool { return r.parked() == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	r.eventually("leave", func() bool {
		_, err := r.caller.Request("id.snowflake", nil, time.Minute)
		return errors.Is(err, nats.ErrNoResponders)
	})
	at.Cut()
	r.eventually("lose the connection", func() bool { return !conn.IsConnected() })
	release()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := answers.NextMsg(time.Minute); err != nil {
		t.Error("the request that waited gets no answer:", err)
	}
}
