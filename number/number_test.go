package number_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/number"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(t.Around(m), natstest.Left()...) }

var _ client.Source = (*number.Holder)(nil)

func open(t *testing.T, nc *nats.Conn, cfg number.Config) *number.Holder {
	t.Helper()
	h, err := number.Open(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestProgramsAndWorkersHaveNumbersOfTheirOwn(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	seen := make(map[subjects.ID]bool)
	numbers := make(map[int]bool)
	for range 3 {
		h := open(t, c.Conn, number.Config{})
		w, held := h.Number()
		if !held || w < 512 || c.WorkerNumber(0) >= 512 || numbers[w] {
			t.Errorf("number %d (%t), want a new one of 512-1023, and the worker has %d", w, held, c.WorkerNumber(0))
		}
		numbers[w] = true
		if left := time.Until(h.Until()); left < 4*time.Minute || left > 6*time.Minute {
			t.Errorf("a window of %v", left)
		}
		ids, err := h.NextN(t.Context(), 10_000)
		if err != nil || ids.Len() != 10_000 {
			t.Fatal(ids.Len(), err)
		}
		one, err := h.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for id := range append(ids, subjects.Run{First: one, Last: one}).All() {
			p, err := h.Layout().Decode(id)
			if seen[id] || err != nil || p.Worker != w {
				t.Fatalf("%d: %+v, %v, seen %t", id, p, err, seen[id])
			}
			seen[id] = true
		}
	}
}

func TestANumberIsGivenBackAndTakenAgain(t *testing.T) {
	c, dir := e2e.Start(t, e2e.Config{}), t.TempDir()
	h := open(t, c.Conn, number.Config{Dir: dir})
	first, err := h.Next(t.Context())
	was, _ := h.Number()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := number.Open(t.Context(), c.Conn, number.Config{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("%v, want an error that names the directory in use", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Next(t.Context()); !errors.Is(err, snowflake.ErrClosed) && !errors.Is(err, snowflake.ErrNoNumber) {
		t.Errorf("after Close: %v", err)
	}
	h = open(t, c.Conn, number.Config{Dir: dir})
	if is, _ := h.Number(); is != was {
		t.Errorf("number %d, want %d again", is, was)
	}
	if id, err := h.Next(t.Context()); err != nil || id <= first {
		t.Errorf("%d after %d, %v", id, first, err)
	}
}

// The client library asks each server in turn.
func TestOpenReturnsByTheEndOfItsContextThoughServersAreSilent(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t))
	nc.Opts.Url, nc.Opts.Servers, nc.Opts.Timeout = "", nil, 5*time.Second
	for range 3 {
		silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		nc.Opts.Servers = append(nc.Opts.Servers, "nats://"+silent.Addr().String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, err := number.Open(ctx, nc, number.Config{})
	if took := time.Since(began); took > 8*time.Second || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v after %v, want a deadline after 1 s", err, took)
	}
}

func TestAHolderFoundsNothing(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t))
	_, err := number.Open(t.Context(), nc, number.Config{})
	if err == nil || !strings.Contains(err.Error(), "no natsid worker has started in this namespace (id)") {
		t.Error(err)
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	h := open(t, c.Conn, number.Config{})
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := h.Next(context.Background()); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTwentyStartAtOnce(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	began, seen := time.Now(), sync.Map{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			h, err := number.Open(t.Context(), c.Conn, number.Config{})
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Close()
			w, _ := h.Number()
			if _, again := seen.LoadOrStore(w, true); again {
				t.Errorf("number %d twice", w)
			}
			t.Logf("number %d after %v", w, time.Since(began).Round(time.Millisecond))
		})
	}
	all.Wait()
}

func TestBadInputIsRefusedBeforeANumberIsTaken(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	for want, cfg := range map[string]number.Config{
		"site 1: want 0 to 0":                {Site: 1},
		"layout":                             {Layout: snowflake.Layout{Worker: -1}},
		"layout 41+10+12, epoch":             {Layout: snowflake.JS53}, // the registry's
		"layout 41+6+6, epoch":               {Layout: snowflake.JS53},
		"site -1: want 0 to 0":               {Site: -1},
		"JSDomain and JSPrefix exclude each": {JSDomain: "hub", JSPrefix: "hub"},
		"a clock skew of -1h0m0s: want 1ms":  {MaxClockSkew: -time.Hour},
		"a clock skew of 1h0m0s: want 1ms":   {MaxClockSkew: time.Hour},
		"a name of 129 bytes: want at most ": {Name: strings.Repeat("x", 129)},
	} {
		if _, err := number.Open(t.Context(), c.Conn, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A pedantic server closes a connection for good that it finds fault with.
func TestAGivenConnectionMayBePedantic(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	nc, err := nats.Connect(c.URL, func(o *nats.Options) error { o.Verbose, o.Pedantic = true, true; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	open(t, nc, number.Config{Layout: snowflake.Leaf})
}
