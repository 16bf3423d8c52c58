package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// patient is a client whose calls wait longer than a busy machine takes.
func patient(nc *nats.Conn) *client.Client { return client.New(nc, client.Timeout(long)) }

func TestFourRequestsThatHangStallNobodyAndTheRestShareTheFifth(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	first, gathered := gather(t.Context(), t, d, h, 1000)
	if got := h.Stats(); got.Requests != 4 || got.IDs != 0 {
		t.Errorf("%+v, want four requests under way", got)
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, 1000))
	if got := h.Stats(); got.Requests != 5 || got.IDs != 1004 {
		t.Errorf("%+v, want 1000 calls to share the fifth request", got)
	}
}

// In a bubble whose clock stands still, since it waits for the network, no timer fires.
func TestNoCallWaitsForATimer(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	openDesk(t, natstest.Connect(t, srv.ClientURL()))
	watch := time.AfterFunc(long, func() {
		t.Error("a call waits for a timer")
		srv.Shutdown() // the bubble waits no longer for the network
	})
	defer watch.Stop()
	synctest.Test(t, func(t *testing.T) {
		nc, err := nats.Connect(srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		h := client.New(nc).Segment("order")
		for range 100 { // alone
			if _, err := h.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for _, together := range []int{100, 1000} { // as many are woken at once, and in groups
			for i := range together {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = context.Background() // it cannot end
				}
				wg.Go(func() {
					for range 10_000 / together {
						if _, err := h.Next(ctx); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
	})
}

func TestACallGetsNoIDOfARequestThatWasSentBefore(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	var clock atomic.Int64
	received := make(map[int64]int64) // when the request for an ID came
	d.say(func(_, n int, m *nats.Msg) bool {
		now := clock.Add(1)
		for i := range int64(n) {
			received[d.last+1+i] = now
		}
		time.Sleep(rand.N(200 * time.Microsecond)) // calls begin while it is under way
		d.issue(m)
		return true
	})
	type call struct {
		began int64
		id    client.ID
	}
	calls := make(chan call, 16*100)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				began := clock.Add(1)
				id, err := h.Next(t.Context())
				if err != nil {
					t.Error(err)
				}
				calls <- call{began, id}
				time.Sleep(rand.N(200 * time.Microsecond))
			}
		})
	}
	wg.Wait()
	close(calls)
	for c := range calls {
		if received[int64(c.id)] < c.began {
			t.Fatalf("a call that began at %d got ID %d, requested by %d", c.began, c.id, received[int64(c.id)])
		}
	}
}

func TestACallThatGivesUpBeforeItsRequestIsSentLeavesNoHole(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	first, gathered := gather(t.Context(), t, d, h, 5)
	ctx, cancel := context.WithCancel(t.Context())
	gone := start(ctx, h, 3)
	until(t, "all calls wait", func() bool { return h.Gathered() == 8 })
	cancel()
	for range 3 {
		if r := <-gone; !errors.Is(r.err, context.Canceled) {
			t.Errorf("%+v, want the end of its context", r)
		}
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, 5))
	if got := h.Stats().IDs; got != 4+5 {
		t.Errorf("%d IDs were issued, want 5 of them for the calls that still waited", got)
	}
}

func TestAllCallsThatWaitWhileAServerStandsStillGetIDs(t *testing.T) {
	t.Parallel()
	const callers = 15_000
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	first, gathered := gather(t.Context(), t, d, h, callers-4)
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, callers-4))
	for _, n := range d.requests() {
		if n > client.DefaultMaxBatch {
			t.Errorf("a request for %d IDs", n)
		}
	}
}

func TestCallsThatGaveUpTakeNoPlace(t *testing.T) {
	nc := connect(t)
	const most = 2
	d, h := openDesk(t, nc), patient(nc).Segment("order", client.MaxBatch(most))
	first, gathered := gather(t.Context(), t, d, h, 1)
	for n := range int64(10 * 5 * most) {
		ctx, cancel := context.WithCancel(t.Context())
		gone := start(ctx, h, 1)
		until(t, "the call waits", func() bool { return h.Gathered() == 1+n+1 })
		cancel()
		if r := <-gone; !errors.Is(r.err, context.Canceled) {
			t.Errorf("%+v, want the end of its context", r)
		}
	}
	late := start(t.Context(), h, 5*most-4-1)
	until(t, "the last calls wait", func() bool { return h.Gathered() == 1+10*5*most+5*most-4-1 })
	if _, err := h.Next(t.Context()); !errors.Is(err, client.ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, 1), collect(t, late, 5*most-4-1))
	if got := h.Stats().IDs; got != 5*most {
		t.Errorf("%d IDs were issued, want %d", got, 5*most)
	}
}

func TestNoCallIsRefusedWhileFewWait(t *testing.T) {
	t.Parallel()
	const callers, most = 50, 20 // half of the places
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order", client.MaxBatch(most))
	d.say(func(_, _ int, m *nats.Msg) bool {
		time.Sleep(rand.N(30 * time.Millisecond))
		d.issue(m)
		return true
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []client.ID
	for i := range callers {
		wg.Go(func() {
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
				ctx, cancel := context.WithCancel(t.Context())
				if i%2 == 0 {
					time.AfterFunc(rand.N(4*time.Millisecond), cancel)
				}
				id, err := h.Next(ctx)
				cancel()
				if err == nil {
					mu.Lock()
					all = append(all, id)
					mu.Unlock()
				} else if i%2 != 0 || !errors.Is(err, context.Canceled) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	once(t, all)
}

// Calls join it before and after those that wait learn that the answer takes long.
func TestEachCallOfALargeBatchEndsWhenItTakesLong(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	const half = 500
	ctx, cancel := context.WithCancel(t.Context())
	first, gathered := gather(t.Context(), t, d, h, half)
	lasting := start(context.Background(), h, half)
	until(t, "all calls wait", func() bool { return h.Gathered() == 2*half })
	time.Sleep(50 * time.Millisecond)
	gone := start(ctx, h, half)
	late := start(context.Background(), h, half)
	until(t, "later calls wait", func() bool { return h.Gathered() == 4*half })
	cancel()
	for range half {
		if r := <-gone; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("%+v, want the end of its context", r)
		}
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, half), collect(t, lasting, half), collect(t, late, half))
}

func TestOneCallTooManyIsRefusedAtOnce(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order", client.MaxBatch(3))
	const most = 5 * 3
	first, gathered := gather(t.Context(), t, d, h, most-4)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if id, err := h.Next(ctx); !errors.Is(err, client.ErrBusy) || ctx.Err() != nil {
		t.Errorf("%d, %v, want ErrBusy at once", id, err)
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, most-4))
}

// limit refuses batches above a limit, as workers do.
func (d *desk) limit(most string, n int) func(int, int, *nats.Msg) bool {
	return func(_, asked int, m *nats.Msg) bool {
		if asked > n {
			refuseWith(d.t, m, subjects.BadRequest, subjects.HeaderMaxBatch, most)
		} else {
			d.issue(m)
		}
		return true
	}
}

func TestABatchAboveTheWorkersLimitIsSplitAndTheLimitRemembered(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	first, gathered := gather(t.Context(), t, d, h, 100)
	// A second worker has a lower limit than the first.
	strict, lax := d.limit("7", 7), d.limit("20", 20)
	d.say(func(number, n int, m *nats.Msg) bool {
		if number%2 == 0 {
			return strict(number, n, m)
		}
		return lax(number, n, m)
	})
	d.mu.Lock()
	for _, m := range d.held {
		d.issue(m)
	}
	d.mu.Unlock()
	once(t, collect(t, first, 4), collect(t, gathered, 100))
	before := len(d.requests())
	d.say(d.limit("7", 7))
	for range 5 {
		once(t, collect(t, start(t.Context(), h, 100), 100))
	}
	for _, n := range d.requests()[before:] {
		if n > 7 {
			t.Errorf("a request for %d IDs after a limit of 7 was learnt: %v", n, d.requests())
		}
	}
}

func TestACallOfASplitBatchEndsWithItsContext(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), patient(nc).Segment("order")
	first, gathered := gather(t.Context(), t, d, h, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mine := start(ctx, h, 1)
	until(t, "all calls wait", func() bool { return h.Gathered() == 11 })
	var parts atomic.Int64
	refuseLarge := d.limit("3", 3)
	d.mu.Lock()
	d.reply = func(number, n int, m *nats.Msg) bool { // the parts meet a worker that hangs
		if n > 3 {
			return refuseLarge(number, n, m)
		}
		parts.Add(1)
		return false
	}
	for _, m := range d.held {
		d.issue(m)
	}
	d.held = nil
	d.mu.Unlock()
	collect(t, first, 4)
	until(t, "the batch is split", func() bool { return parts.Load() > 0 })
	cancel()
	select {
	case r := <-mine:
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("%+v", r)
		}
	case <-time.After(long):
		t.Error("the call still waits")
	}
	d.issueHeld()
	once(t, collect(t, gathered, 10))
}

func TestACallThatNothingAnswersEndsWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		call, turnSlow, answer := client.HungBatch(timeout)
		cancellable, cancel := context.WithCancel(context.Background())
		defer cancel()
		soon, cancelSoon := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancelSoon()
		began := time.Now()
		expect := func(what string, ctx context.Context, want time.Duration) {
			go func() {
				err := call(ctx)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != want {
					t.Errorf("%s: %v after %v, want %v", what, err, took, want)
				}
			}()
		}
		expect("its context cannot end", context.Background(), 10*time.Millisecond+timeout)
		expect("its context does not end", cancellable, 10*time.Millisecond+timeout)
		expect("its context ends", soon, 100*time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		turnSlow()
		time.Sleep(490 * time.Millisecond)
		expect("it came late", context.Background(), 500*time.Millisecond+timeout)
		time.Sleep(timeout)
		expect("it came when others had given up", context.Background(), 1500*time.Millisecond+timeout)
		time.Sleep(2 * timeout)
		answer()
		if err := call(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// The batch that it joins has waited long.
func TestACallWithoutADeadlineHasItsWholeTime(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	const patience = time.Second
	d, h := openDesk(t, nc), client.New(nc, client.Timeout(patience)).Segment("order")
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	first, gathered := gather(ctx, t, d, h, 1)
	time.Sleep(patience / 2)
	begin := time.Now()
	_, err := h.Next(context.Background())
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took < patience {
		t.Errorf("%v after %v, want the deadline of %v", err, took, patience)
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, 1))
}
