package snowflake

import (
	"errors"
	"sync"
	"testing"
	"time"
)

const (
	epoch = LeafEpoch
	t0    = epoch + 1_000_000 // any time, in Unix ms
)

// small has 4 IDs a tick, so that a test can fill one.
var small = Layout{Time: 41, Worker: 10, Sequence: 2, Epoch: epoch, Unit: 1}

func newGenerator(tb testing.TB, l Layout, from, until int64) *Generator {
	tb.Helper()
	g, err := NewGenerator(l, 7, from, until, DefaultMaxAhead)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// ids returns every ID of a batch.
func ids(r Runs) (all []int64) {
	for first, last := range r.All() {
		for id := first; id <= last; id++ {
			all = append(all, id)
		}
	}
	return all
}

// take issues n IDs at now and returns them decoded.
func take(tb testing.TB, g *Generator, now int64, n int) (parts []Parts) {
	tb.Helper()
	runs, err := g.NextAt(now, n)
	if err != nil {
		tb.Fatalf("NextAt(%d, %d): %v", now, n, err)
	}
	for _, id := range ids(runs) {
		p, err := g.layout.Decode(id)
		if err != nil {
			tb.Fatal(err)
		}
		parts = append(parts, p)
	}
	if len(parts) != n || runs.Len() != n {
		tb.Fatalf("%d IDs, Len %d, want %d", len(parts), runs.Len(), n)
	}
	return parts
}

func TestNoTickIsIssuedOutsideTheWindow(t *testing.T) {
	coarse := Layout{Time: 31, Worker: 10, Sequence: 4, Epoch: epoch + 3, Unit: 10}
	for name, l := range map[string]Layout{"1 ms": small, "10 ms": coarse} {
		t.Run(name, func(t *testing.T) {
			from, until := t0+5, t0+77
			g := newGenerator(t, l, int64(from), int64(until))
			issued := 0
			for now := int64(t0 - 50); now < t0+200; now++ {
				runs, err := g.NextAt(now, 1)
				if err != nil {
					continue
				}
				issued++
				for _, id := range ids(runs) {
					p, _ := l.Decode(id)
					if ms := l.FirstMs(p.Tick); ms < int64(from) || ms >= int64(until) {
						t.Fatalf("at %d: tick begins at %d, outside [%d, %d)", now-t0, ms-t0, from-t0, until-t0)
					}
				}
			}
			if issued < 8 {
				t.Errorf("%d IDs issued", issued)
			}
			if _, err := g.NextAt(int64(until)+l.Unit, 1); !errors.Is(err, ErrWindow) {
				t.Errorf("after until: %v, want ErrWindow", err)
			}
			g.Extend(int64(until) - 1) // a late call must not shorten the window
			if g.Until() != int64(until) {
				t.Errorf("until went back to %d", g.Until()-t0)
			}
			g.Extend(int64(until) + 100)
			take(t, g, int64(until)+l.Unit, 1)
		})
	}
}

func TestCloseIsFinalAndTellsWhatIsFree(t *testing.T) {
	g := newGenerator(t, small, t0, t0+1000)
	if free := g.Close(); free != t0 {
		t.Errorf("nothing issued: free from %d, want from itself", free-t0)
	}
	g = newGenerator(t, small, t0, t0+1000)
	last := take(t, g, t0+100, 9)[8]
	want := small.FirstMs(last.Tick) + 1
	for range 2 {
		if free := g.Close(); free != want {
			t.Errorf("free from %d, want %d: one tick after the last", free-t0, want-t0)
		}
	}
	g.Extend(t0 + 5000)
	if _, err := g.NextAt(t0+200, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestRunsOfNothingAreEmpty(t *testing.T) {
	for first, last := range (Runs{}).Of(3).All() {
		t.Errorf("%d to %d", first, last)
	}
}

func TestABurstRunsAheadWithinMaxAheadOnly(t *testing.T) {
	for random := range int64(4) {
		g := newGenerator(t, small, t0-10, t0+1000)
		g.random = func(int64, int64) int64 { return random }
		n, prev := int64(0), int64(-1)
		for {
			runs, err := g.NextAt(t0, 1)
			if b, ok := errors.AsType[*BehindError](err); ok {
				if b.By != time.Millisecond {
					t.Errorf("behind by %v, want 1ms: the next tick", b.By)
				}
				break
			}
			id := ids(runs)[0]
			if p, _ := small.Decode(id); p.Tick > small.TickAt(t0)+5 {
				t.Fatalf("ID %d runs %d ms ahead", n, p.Tick-small.TickAt(t0))
			}
			if id <= prev {
				t.Fatalf("ID %d after %d", id, prev)
			}
			prev, n = id, n+1
		}
		if n != 6*4-random {
			t.Errorf("%d IDs at once, want the rest of this tick and five ahead: %d", n, 6*4-random)
		}
		take(t, g, t0+1, 4) // each ms frees one tick
	}
}

// At the limit no random start may leave a gap; below it none may make a caller
// wait.
func TestTheLimitOfTheLayoutIsReached(t *testing.T) {
	const ticks = 100
	for _, n := range []int{1, 7, 1000, 30_000} {
		g := newGenerator(t, Leaf, t0, 1<<60)
		issued := 0
		var first Parts
		for now := int64(t0 + 1000); now < t0+1000+ticks; now++ {
			for {
				runs, err := g.NextAt(now, n)
				if err != nil {
					break
				}
				if issued == 0 {
					first, _ = Leaf.Decode(nth(runs, 0))
				}
				issued += n
			}
		}
		room := int(Leaf.TickAt(t0+1000)+ticks+5-first.Tick)*4096 - int(first.Sequence)
		if issued > room || issued <= room-n {
			t.Errorf("%d at a time: %d IDs, want all of %d that fit", n, issued, room)
		}
	}
	for n := 1; n <= 4096; n *= 4 {
		g := newGenerator(t, Leaf, t0, 1<<60)
		for now := int64(t0 + 1000); now < t0+1000+ticks; now++ {
			for range 4096 / n {
				if _, err := g.NextAt(now, n); err != nil {
					t.Fatalf("%d at a time, at the limit: %v", n, err)
				}
			}
		}
	}
}

// A caller that loses its CPU within NextAt blocks no other; with a mutex it
// would.
func TestNextAtIsLockFree(t *testing.T) {
	g := newGenerator(t, Leaf, t0, t0+10_000)
	stuck, resume, done := make(chan bool), make(chan bool), make(chan Runs)
	late := time.After(10 * time.Second)
	next := func() {
		runs, err := g.NextAt(t0+1000, 1)
		if err != nil {
			t.Error(err)
		}
		done <- runs
	}
	g.random = func(int64, int64) int64 { stuck <- true; <-resume; return 0 }
	go next()
	select {
	case <-stuck:
	case <-late:
		t.Fatal("no random start to be stuck in")
	}
	g.random = func(int64, int64) int64 { return 5 }
	go next()
	select {
	case <-done:
	case <-late:
		t.Fatal("the second caller waits for the first")
	}
	resume <- true
	if p, _ := Leaf.Decode(nth(<-done, 0)); p.Sequence != 6 {
		t.Errorf("the first caller got %+v, want what follows the second's", p)
	}
}

func TestAStepBackIsRiddenThroughOrReported(t *testing.T) {
	g := newGenerator(t, Leaf, t0, t0+1_000_000)
	before := take(t, g, t0+10_000, 1)[0]
	after := take(t, g, t0+10_000-5, 1)[0]
	if after.Tick != before.Tick && after.Tick != before.Tick+1 || after == before {
		t.Errorf("5 ms back: %+v after %+v, want the last tick going on", after, before)
	}
	_, err := g.NextAt(t0+10_000-100, 1)
	if b, ok := errors.AsType[*BehindError](err); !ok || b.By < 95*time.Millisecond || b.By > 96*time.Millisecond {
		t.Errorf("100 ms back: %v, want behind by 95 ms", err)
	}
}

func TestABatchReachesBackBeforeItReachesAhead(t *testing.T) {
	g := newGenerator(t, Leaf, t0, t0+1_000_000)
	batch := take(t, g, t0+1000, 100_000) // 24.4 ticks
	if last := batch[len(batch)-1].Tick; last > Leaf.TickAt(t0+1000) {
		t.Errorf("a batch after idleness runs %d ms ahead", last-Leaf.TickAt(t0+1000))
	}
	_, err := g.NextAt(t0+1000, 100_000)
	if b, ok := errors.AsType[*BehindError](err); !ok || b.By < 18*time.Millisecond || b.By > 21*time.Millisecond {
		t.Errorf("a second batch at once: %v, want to wait about 20 ms", err)
	}
	next := take(t, g, t0+1025, 100_000)
	if next[0].Tick < batch[len(batch)-1].Tick {
		t.Errorf("the second batch begins at tick %d, before the end of the first", next[0].Tick)
	}
}

func TestBoundsOfTime(t *testing.T) {
	end := small.Ends().UnixMilli()
	g := newGenerator(t, small, 0, end+1000)
	if _, err := g.NextAt(epoch-1, 1); !errors.Is(err, ErrEpoch) {
		t.Errorf("before the epoch: %v", err)
	}
	if p := take(t, g, epoch, 1)[0]; p.Tick != 0 {
		t.Errorf("at the epoch: %+v", p)
	}
	take(t, g, end-1, 1)
	if _, err := g.NextAt(end, 1); !errors.Is(err, ErrTimeEnds) {
		t.Errorf("after the end: %v", err)
	}
	late := newGenerator(t, small, end+5, end+1000)
	if _, err := late.NextAt(end+6, 1); !errors.Is(err, ErrTimeEnds) {
		t.Errorf("a window after the end: %v", err)
	}
}

func TestBusinessesShareOneSequence(t *testing.T) {
	l := Layout{Time: 39, Worker: 9, Business: 4, Sequence: 7, Epoch: epoch, Unit: 1}
	g := newGenerator(t, l, t0, t0+1000)
	runs, err := g.NextAt(t0, 200)
	if err != nil {
		t.Fatal(err)
	}
	bare, marked := ids(runs), ids(runs.Of(15))
	for i := range bare {
		a, _ := l.Decode(bare[i])
		b, _ := l.Decode(marked[i])
		if a.Business != 0 || b.Business != 15 {
			t.Fatalf("business %d and %d, want 0 and 15", a.Business, b.Business)
		}
		if b.Business = 0; a != b {
			t.Fatalf("the parts differ in more than the business: %+v, %+v", a, b)
		}
	}
}

func TestManyGoroutinesNeverShareAnID(t *testing.T) {
	g := newGenerator(t, Leaf, t0, t0+1<<40)
	const workers, each = 16, 20_000
	got := make([][]int64, workers)
	start := time.Now()
	now := func() int64 { return t0 + 1000 + time.Since(start).Milliseconds() }
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for len(got[w]) < each {
				runs, err := g.NextAt(now(), 1+w%3)
				if err == nil {
					got[w] = append(got[w], ids(runs)...)
				}
			}
		})
	}
	wg.Wait()
	seen := make(map[int64]bool, workers*each)
	for _, ids := range got {
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("ID %d twice", id)
			}
			seen[id] = true
		}
	}
}

func TestIssuingAllocatesNothing(t *testing.T) {
	g := newGenerator(t, Leaf, t0, 1<<60)
	now, sum := int64(t0), int64(0)
	i := NewIssuer(time.Second, 1, func() int64 { return now })
	i.Use(g)
	issue := func(next func(n int) (Runs, error), n int) func() {
		return func() {
			now += 100
			runs, err := next(n)
			if err != nil {
				t.Fatal(err)
			}
			sum += sumOf(runs)
		}
	}
	nextAt := func(n int) (Runs, error) { return g.NextAt(now, n) }
	for name, f := range map[string]func(){
		"an ID": issue(nextAt, 1), "a batch": issue(nextAt, 100_000),
		"an ID of the issuer": issue(i.Next, 1), "a batch of the issuer": issue(i.Next, 100_000),
		"CheckAt": func() { g.CheckAt(now) },
	} {
		if a := testing.AllocsPerRun(1000, f); a != 0 {
			t.Errorf("%s: %v allocations", name, a)
		}
	}
}

func sumOf(r Runs) (sum int64) {
	for first, last := range r.Of(0).All() {
		sum += first + last
	}
	return sum
}

func BenchmarkNextAt(b *testing.B) {
	g := newGenerator(b, Leaf, t0, t0+1<<40)
	now := int64(t0)
	for i := 0; b.Loop(); i++ {
		if i%4096 == 0 {
			now++ // a clock that keeps pace with the layout's limit
		}
		if _, err := g.NextAt(now, 1); err != nil {
			now++
		}
	}
}
