package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/natsproxy"
)

// benchClient compares ways to get single IDs in a program: bare requests, the client's shared ones and its
// prefetched ranges, beside their lower bounds: waking as many goroutines without a network, and adding to a counter.
func benchClient(ctx context.Context, dir string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	natsid, err := startNatsid(ctx, dir, opt, url, "--auto-create-tags")
	if err != nil {
		return err
	}
	defer natsid.stop()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := prepare(ctx, nc, &row{subject: "id.segment.bench", worker: natsid}, opt.step); err != nil {
		return err
	}
	if err := compareCalls(ctx, opt, nc); err != nil {
		return err
	}
	if err := compareFar(ctx, opt, url); err != nil {
		return err
	}
	return compareHeld(ctx, opt, nc)
}

// A way is one way to get an ID.
type way struct {
	name   string
	cancel bool // callers have contexts that can be cancelled
	call   func(ctx context.Context) error
	asked  func() int64 // requests so far; nil if unknown

	rate, p50, p99 []float64 // per repeat; microseconds
	cpu            []float64 // microseconds of this process per call
}

// waysOf returns the ways over one connection. The first is the reference.
func waysOf(nc *nats.Conn) (ways []*way, end func()) {
	ids := client.Must(client.New(nc, client.Config{}))
	shared := client.Must(ids.Segment("bench", client.SegmentConfig{})).Next
	merged := func(ctx context.Context) error { _, err := shared(ctx); return err }
	bare := func(context.Context) error {
		m, err := request(nc, "id.segment.bench", nil, replyWithin)
		if err == nil {
			_, err = countIDs(m.Data)
		}
		return err
	}
	return []*way{
		{name: "bare request", call: bare},
		{name: "shared", call: merged},
		{name: "shared, cancellable", cancel: true, call: merged},
		{name: "waking alone", call: new(alarmClock).wait},
	}, ids.Close
}

func compareCalls(ctx context.Context, opt options, nc *nats.Conn) error {
	fmt.Printf("One connection, %d repeats of %v, step %d; %s.\n", opt.repeats, opt.length, opt.step, machine())
	fmt.Printf("The nats-server and one worker %s. Medians.\n\n", whichCPUs())
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	fmt.Fprintln(t, "goroutines\tway\tIDs/s\t/bare\tp50 us\tp99 us\t/bare\t")
	for _, n := range []int{1, 8, 64, 1000, 10_000} {
		fmt.Fprintln(os.Stderr, "measuring", n, "goroutines")
		ways, end := waysOf(nc)
		if err := measureWays(ctx, opt, n, ways); err != nil {
			return err
		}
		end()
		printWays(t, n, ways)
	}
	return nil
}

// compareFar compares calls at a round trip of 20 ms.
func compareFar(ctx context.Context, opt options, url string) error {
	link, err := natsproxy.Start(strings.TrimPrefix(url, "nats://"))
	if err != nil {
		return err
	}
	defer link.Close()
	nc, err := nats.Connect(link.URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	link.Delay(10 * time.Millisecond) // each way
	fmt.Print("\nAt a round trip of 20 ms:\n\n")
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	fmt.Fprintln(t, "goroutines\tway\tIDs/s\t/bare\tp50 us\tp99 us\t/bare\t")
	ways, end := waysOf(nc)
	defer end()
	ways = ways[:2]
	if err := measureWays(ctx, opt, 64, ways); err != nil {
		return err
	}
	printWays(t, 64, ways)
	return nil
}

func printWays(t *tabwriter.Writer, n int, ways []*way) {
	for _, w := range ways {
		fmt.Fprintf(t, "%d\t%s\t%.0f\t%s\t%.0f\t%.0f\t%s\t\n", n, w.name, median(w.rate), ratios(w.rate, ways[0].rate),
			median(w.p50), median(w.p99), ratios(w.p99, ways[0].p99))
	}
}

// measureWays measures all ways with n goroutines, in turns.
func measureWays(ctx context.Context, opt options, n int, ways []*way) error {
	for round := range opt.repeats + 1 {
		for _, w := range ways {
			runtime.GC()
			_, rate, cpu, took, err := callAll(ctx, opt.length, n, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round == 0 { // the first round warms up connections and heaps
				continue
			}
			w.rate, w.cpu = append(w.rate, rate), append(w.cpu, cpu)
			w.p50 = append(w.p50, microseconds(took, 0.50))
			w.p99 = append(w.p99, microseconds(took, 0.99))
		}
	}
	return nil
}

func microseconds(sorted []time.Duration, quantile float64) float64 {
	return float64(sorted[int(float64(len(sorted)-1)*quantile)].Nanoseconds()) / 1000
}

// callAll has n goroutines call repeatedly, and returns the calls, their rate per second, the microseconds of this
// process's CPU time per call, and the durations of some calls, sorted.
func callAll(ctx context.Context, length time.Duration, n int, w *way) (ids, rate, cpu float64,
	took []time.Duration, err error) {
	const timed = 8 // one call in so many: reading the clock costs as much as a wake-up
	var stop atomic.Bool
	var calls atomic.Int64
	var mu sync.Mutex
	var callers sync.WaitGroup
	before, err := cpuSeconds(os.Getpid())
	if err != nil {
		return 0, 0, 0, nil, err
	}
	began := time.Now()
	for range n {
		callers.Go(func() {
			ctx := context.Context(context.WithoutCancel(ctx))
			if w.cancel {
				cancellable, cancel := context.WithCancel(ctx)
				defer cancel()
				ctx = cancellable
			}
			var mine []time.Duration
			var failed error
			var i int64
			for ; !stop.Load() && failed == nil; i++ {
				if i%timed != 0 {
					failed = w.call(ctx)
					continue
				}
				asked := time.Now()
				failed = w.call(ctx)
				mine = append(mine, time.Since(asked))
			}
			calls.Add(i)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			if failed != nil {
				err = failed
			}
		})
	}
	time.Sleep(length)
	stop.Store(true)
	callers.Wait()
	lasted := time.Since(began)
	after, err1 := cpuSeconds(os.Getpid())
	err = cmp.Or(err, ctx.Err(), err1)
	slices.Sort(took)
	ids = float64(calls.Load())
	return ids, ids / lasted.Seconds(), (after - before) * 1e6 / ids, took, err
}

// An alarmClock wakes goroutines that wait together, repeatedly and without any request, as the client does after an
// answer.
type alarmClock struct {
	mu   sync.Mutex
	ring chan struct{} // nil if nobody waits
}

func (c *alarmClock) wait(context.Context) error {
	c.mu.Lock()
	ring, isFirst := c.ring, c.ring == nil
	if isFirst {
		ring = make(chan struct{})
		c.ring = ring
	}
	c.mu.Unlock()
	if isFirst {
		runtime.Gosched() // let others join
		c.mu.Lock()
		c.ring = nil
		c.mu.Unlock()
		close(ring)
	}
	<-ring
	return nil
}

// compareHeld compares prefetched IDs with an addition, on one CPU and on two.
func compareHeld(ctx context.Context, opt options, nc *nats.Conn) error {
	fmt.Print("\nFrom a range of 100,000 that is held, medians of ns per ID:\n\n")
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	fmt.Fprintln(t, "CPUs\tway\tns\trate /addition\t")
	ids := client.Must(client.New(nc, client.Config{}))
	defer ids.Close()
	handle := client.Must(ids.Segment("bench", client.SegmentConfig{Prefetch: 100_000, MaxAge: time.Minute}))
	for _, cpus := range []int{1, 2} {
		before := runtime.GOMAXPROCS(cpus)
		err := func() error {
			defer runtime.GOMAXPROCS(before)
			return compareOn(ctx, opt, t, cpus, handle)
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

func compareOn(ctx context.Context, opt options, t *tabwriter.Writer, cpus int, handle *client.Handle) error {
	var counter atomic.Int64
	// Each draws some IDs in a row, so that the loop itself costs nothing.
	type each = func(n int) error
	type held struct {
		name string
		make func() each
		ns   []float64
	}
	all := []*held{
		{name: "atomic.Int64.Add", make: func() each {
			return func(n int) error {
				for range n {
					counter.Add(1)
				}
				return nil
			}
		}},
		{name: "handle", make: func() each {
			return func(n int) (err error) {
				for i := 0; i < n && err == nil; i++ {
					_, err = handle.Next(ctx)
				}
				return err
			}
		}},
	}
	for round := range opt.repeats + 1 {
		for _, h := range all {
			ns, err := spin(opt.length/4, cpus, h.make)
			if err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
			if round > 0 {
				h.ns = append(h.ns, ns)
			}
		}
	}
	for _, h := range all {
		fmt.Fprintf(t, "%d\t%s\t%.1f\t%s\t\n", cpus, h.name, median(h.ns), ratios(all[0].ns, h.ns))
	}
	return nil
}

// spin has n goroutines call for a while, and returns the duration of a call.
func spin(length time.Duration, n int, newCalls func() func(n int) error) (ns float64, err error) {
	const chunk = 1000
	var stop atomic.Bool
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	var callers sync.WaitGroup
	began := time.Now()
	for range n {
		call := newCalls()
		callers.Go(func() {
			for !stop.Load() {
				if err := call(chunk); err != nil {
					failed.Store(&err)
					return
				}
				calls.Add(chunk)
			}
		})
	}
	time.Sleep(length)
	stop.Store(true)
	callers.Wait()
	if e := failed.Load(); e != nil {
		return 0, *e
	}
	return float64(time.Since(began).Nanoseconds()) / float64(calls.Load()), nil
}
