package snowflake

import (
	"testing"
	"time"

	"github.com/natsid/natsid/subjects"
)

const (
	epoch = LeafEpoch
	t0    = epoch + 1_000_000 // any time, in Unix ms
)

func newGenerator(tb testing.TB, l Layout, from, until int64) *Generator {
	tb.Helper()
	g, err := NewGenerator(l, 7, from, until, DefaultMaxAhead)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// ids returns every ID of a batch.
func ids(r Runs) (all []subjects.ID) {
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

// A caller that loses its CPU within NextAt blocks no other; with a mutex it would.
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

func TestIssuingAllocatesNothing(t *testing.T) {
	g := newGenerator(t, Leaf, t0, 1<<60)
	now, sum := int64(t0), subjects.ID(0)
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
		"CheckAt": func() { g.CheckAt(now) },
	} {
		if a := testing.AllocsPerRun(1000, f); a != 0 {
			t.Errorf("%s: %v allocations", name, a)
		}
	}
}

func sumOf(r Runs) (sum subjects.ID) {
	for first, last := range r.Of(0).All() {
		sum += first + last
	}
	return sum
}
