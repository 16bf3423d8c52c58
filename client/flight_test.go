package client_test

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

func TestAfterSilenceACopyIsSentAndTheFirstAnswerCounts(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	for _, firstIsFirst := range []bool{true, false} {
		d.say(hold)
		before := len(d.requests())
		begin := time.Now()
		call := start(t.Context(), h, 1)
		until(t, "a copy", func() bool { return len(d.requests()) > before+1 })
		if took := time.Since(begin); took < 100*time.Millisecond {
			t.Errorf("a copy is sent after %v", took)
		}
		d.mu.Lock()
		copies := []*nats.Msg{d.held[0], d.held[1]}
		d.held, d.reply = nil, nil
		if !firstIsFirst {
			copies[0], copies[1] = copies[1], copies[0]
		}
		want := client.ID(d.last + 1)
		d.issue(copies[0])
		d.issue(copies[1])
		d.mu.Unlock()
		if r := <-call; r.err != nil || r.id != want {
			t.Errorf("%+v, want ID %d, of the first answer", r, want)
		}
		if id, err := h.Next(t.Context()); err != nil || id <= want+1 {
			t.Errorf("%d, %v, want neither the ID of the first nor of the second answer", id, err)
		}
	}
	if h.Stats().Hedges < 2 {
		t.Errorf("%+v", h.Stats())
	}
}

func TestPatienceFollowsTheTimesOfAnswersWithinItsBounds(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		took     time.Duration
		from, to time.Duration
	}{
		{ms, 100 * ms, 100 * ms}, {150 * ms, 150 * ms, 300 * ms}, {2 * time.Second, 500 * ms, 500 * ms},
	} {
		var took []time.Duration
		for range 20 {
			took = append(took, tc.took)
		}
		if got := client.PatienceAfter(took...); got < tc.from || got > tc.to {
			t.Errorf("answers took %v: patience %v", tc.took, got)
		}
	}
	if got := client.PatienceAfter(); got != 100*ms {
		t.Errorf("before the first answer: %v", got)
	}
}

func TestRefusedCopiesAreSentEverMoreSeldom(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), client.New(nc).Segment("order")
	for code, want := range map[subjects.Code]error{
		subjects.Unavailable: client.ErrUnavailable, subjects.TooMany: client.ErrThrottled,
	} {
		d.say(func(_, _ int, m *nats.Msg) bool {
			refuse(t, m, strconv.Itoa(int(code)), "because")
			return true
		})
		before := len(d.requests())
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err := h.Next(ctx)
		cancel()
		said := strings.Contains(err.Error(), "because")
		if !said || !errors.Is(err, want) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want %v and the end of its context", err, want)
		}
		// Pauses of 0, 10, 20, 40, 80 and 160 ms at least, and then 250 ms.
		most := 7 + int(time.Since(begin)/(250*time.Millisecond))
		if n := len(d.requests()) - before; n < 2 || n > most {
			t.Errorf("%d: asked %d times, want 2 to %d", code, n, most)
		}
	}
}

func TestAWorkerThatIsThrottledIsLeftAloneForAsLongAsItSays(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	const pause = 5 * time.Second
	var refused time.Time
	d.say(func(_, n int, m *nats.Msg) bool {
		if n == 7 || !refused.IsZero() {
			return false
		}
		refused = time.Now()
		refuseWith(t, m, subjects.TooMany, subjects.HeaderRetryAfter, strconv.Itoa(int(pause.Milliseconds())))
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	silent := make(chan error, 1)
	go func() { // no copy of it is sent, either
		_, err := h.NextN(ctx, 7)
		silent <- err
	}()
	until(t, "a request without an answer", func() bool { return len(d.requests()) > 0 })
	call := start(ctx, h, 1)
	refusal := func() time.Time {
		d.mu.Lock()
		defer d.mu.Unlock()
		return refused
	}
	until(t, "a refusal", func() bool { return !refusal().IsZero() })
	time.Sleep(time.Until(refusal().Add(pause / 2))) // the refusal has arrived by then
	before := len(d.requests())
	late := start(ctx, h, 1)
	for time.Since(refusal()) < pause-50*time.Millisecond {
		if n := len(d.requests()); n > before && time.Since(refusal()) < pause {
			t.Fatalf("asked for %v within the pause", d.requests()[before:])
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.issueHeld()
	once(t, collect(t, call, 1), collect(t, late, 1))
	if err := <-silent; err != nil {
		t.Error(err)
	}
}

// A pause that a reply demands holds nothing for longer than half a minute.
func TestAPauseOfDaysEndsWithTheCallsThatWait(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), client.New(nc).Segment("order")
	d.say(func(_, _ int, m *nats.Msg) bool {
		refuseWith(t, m, subjects.TooMany, subjects.HeaderRetryAfter, "2147483647")
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := h.Next(ctx); !errors.Is(err, client.ErrThrottled) {
		t.Error(err)
	}
	until(t, "its request has ended", func() bool { return h.Stats().Failures == 1 })
}

func TestNoCopyOfALargeBatchIsSentWhileNothingIsLost(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), client.New(nc).Segment("order")
	d.say(hold)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	runs, err := h.NextN(ctx, 10_001)
	if n := len(d.requests()); n > 1 && time.Since(begin) < 2*time.Second {
		t.Errorf("%v, %v: %d copies", runs, err, n)
	}
	until(t, "the request arrives", func() bool { return len(d.requests()) > 0 })
}

// Workers refuse by 1.5 s, and a call has 5 s.
func TestALargeRequestIsCopiedAsASmallOneOnceAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	const lost = 5 // copies that reach workers that hang
	d.say(func(number, _ int, m *nats.Msg) bool {
		if number > lost {
			d.issue(m)
		}
		return number > lost
	})
	begin := time.Now()
	runs, err := h.NextN(t.Context(), 10_001)
	if took := time.Since(begin); err != nil || runs.Len() != 10_001 || took > lost*3*time.Second/2 {
		t.Errorf("%d IDs, %v after %v", runs.Len(), err, took)
	}
}

func TestACallGoesOnWhenItsConnectionIsLost(t *testing.T) {
	cfg := natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()}
	srv, err := natsembed.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen = at.Host
	back := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(10 * time.Millisecond)}
	d := openDesk(t, natstest.Connect(t, srv.ClientURL(), back...))
	h := patient(natstest.Connect(t, srv.ClientURL(), back...)).Segment("order")
	d.say(hold)
	under := start(t.Context(), h, 1)
	until(t, "a request", func() bool { return len(d.requests()) > 0 })
	srv.Shutdown()
	srv.WaitForShutdown()
	d.say(nil)
	lost := start(t.Context(), h, 10)
	srv, err = natsembed.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.WaitForShutdown)
	t.Cleanup(srv.Shutdown)
	once(t, collect(t, under, 1), collect(t, lost, 10))
}

// ends are ways to end a client, or its connection.
var ends = map[string]func(*client.Client, *nats.Conn){
	"client closed":       func(c *client.Client, _ *nats.Conn) { c.Close() },
	"connection closed":   func(_ *client.Client, nc *nats.Conn) { nc.Close() },
	"connection draining": func(_ *client.Client, nc *nats.Conn) { _ = nc.Drain() },
}

func TestWhenAllIsClosedCallsSaySo(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	d := openDesk(t, natstest.Connect(t, url))
	for name, end := range ends {
		for state, reply := range map[string]func(int, int, *nats.Msg) bool{
			"without an answer": hold,
			"in a long pause": func(_, _ int, m *nats.Msg) bool {
				refuseWith(t, m, subjects.TooMany, subjects.HeaderRetryAfter, "60000")
				return true
			},
			"in short pauses": func(_, _ int, m *nats.Msg) bool {
				refuse(t, m, "503", "because")
				return true
			},
		} {
			t.Run(name+", "+state, func(t *testing.T) {
				d.say(reply)
				nc := natstest.Connect(t, url)
				c := patient(nc)
				h, held := c.Segment("order"), c.Segment("order", client.Prefetch(10, time.Minute))
				errs := make(chan error, 30)
				before := len(d.requests())
				for range 10 {
					go func() { _, err := h.Next(context.Background()); errs <- err }()
					go func() { _, err := h.NextN(context.Background(), 5); errs <- err }()
					go func() { _, err := held.Next(context.Background()); errs <- err }()
				}
				// Which calls share a request, or wait for the end of a pause, is chance.
				until(t, "requests", func() bool { return len(d.requests()) > before+1 })
				begin := time.Now()
				end(c, nc)
				for range 30 {
					if err := <-errs; !errors.Is(err, client.ErrClosed) {
						t.Errorf("%v, want ErrClosed", err)
					}
				}
				if took := time.Since(begin); took > slack {
					t.Errorf("the calls ended after %v", took)
				}
				for _, next := range []*client.Handle{h, held, c.Segment("new"), c.Snowflake()} {
					if _, err := next.Next(t.Context()); !errors.Is(err, client.ErrClosed) {
						t.Errorf("a later call: %v, want ErrClosed", err)
					}
				}
			})
		}
	}
	d.issueHeld()
}

func TestOnAConnectionThatIsClosedEachCallSaysSo(t *testing.T) {
	url := natstest.Start(t)
	for name, call := range calls {
		nc := natstest.Connect(t, url)
		nc.Close()
		if _, err := call(t.Context(), client.New(nc)); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

// Each call that fails makes room for the next; they must not pile up on one stack.
func TestCallsOfAClosedClientMayBeRepeatedForLong(t *testing.T) {
	nc := connect(t)
	c := client.New(nc)
	c.Close()
	h := c.Segment("order")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 2000 {
				if _, err := h.Next(t.Context()); !errors.Is(err, client.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestACallEndsAsItsContextSaysAndNeverOtherwise(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), client.New(nc).Segment("order")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Next(done); !errors.Is(err, context.Canceled) {
		t.Errorf("Next: %v", err)
	}
	if _, err := h.NextN(done, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("NextN: %v", err)
	}
	if n := len(d.requests()); n > 0 {
		t.Errorf("%d requests for calls that had ended", n)
	}
	d.say(hold)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
			defer cancel()
			if _, err := h.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Next: %v", err)
			}
			if _, err := h.NextN(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("NextN: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestConnectionsOfEachKindServe(t *testing.T) {
	url := natstest.Start(t)
	openDesk(t, natstest.Connect(t, url))
	t.Run("with a prefix of its own for replies", func(t *testing.T) {
		nc := natstest.Connect(t, url, nats.CustomInboxPrefix("_INBOX_shop.a"))
		if _, err := patient(nc).Segment("order").Next(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("connected later", func(t *testing.T) {
		cfg := natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()}
		srv, err := natsembed.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		url := srv.ClientURL()
		cfg.Listen = strings.TrimPrefix(url, "nats://")
		srv.Shutdown()
		srv.WaitForShutdown()
		nc := natstest.Connect(t, url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
			nats.ReconnectWait(10*time.Millisecond))
		call := start(t.Context(), patient(nc).Segment("order"), 1)
		if srv, err = natsembed.Start(cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.WaitForShutdown)
		t.Cleanup(srv.Shutdown)
		openDesk(t, natstest.Connect(t, url))
		collect(t, call, 1)
	})
}

func TestABadNamespaceIsRefusedBeforeAnythingIsSent(t *testing.T) {
	nc := connect(t)
	c := client.New(nc, client.Namespace("a b"))
	if _, err := c.Segment("order").Next(t.Context()); !errors.Is(err, client.ErrBadRequest) {
		t.Error(err)
	}
	if _, err := c.Snowflake().Next(t.Context()); !errors.Is(err, client.ErrBadRequest) {
		t.Error(err)
	}
}

func TestBadRepliesToSharedRequestsAreNotNatsids(t *testing.T) {
	nc := connect(t)
	d := openDesk(t, nc)
	var body atomic.Value
	foreign := func(_, n int, m *nats.Msg) bool {
		if n == 10 { // not a copy of one that was held
			answer(t, m, body.Load().(string))
		} else {
			d.issue(m)
		}
		return true
	}
	for _, reply := range []string{
		"", "0", "-5", "0-9", "1-9", "1-11", "1-6\n5-8", "1-5\n1-5", "2-11\n", "+OK", strings.Repeat("9", 1<<20),
	} {
		h := patient(nc).Segment("order")
		first, gathered := gather(t.Context(), t, d, h, 10)
		body.Store(reply)
		d.mu.Lock()
		for _, m := range d.held {
			d.issue(m)
		}
		d.held, d.reply = nil, foreign
		d.mu.Unlock()
		collect(t, first, 4)
		for range 10 {
			if r := <-gathered; !errors.Is(r.err, client.ErrNotNatsid) || r.id != 0 {
				t.Errorf("%.20q: %+v", reply, r)
			}
		}
	}
	if _, err := client.ParseRuns(make([]byte, 10<<20), 10_000); err == nil {
		t.Error("10 MB")
	}
	d.issueHeld()
}
