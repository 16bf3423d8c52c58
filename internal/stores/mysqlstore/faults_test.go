package mysqlstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
)

func TestTwoServersThatBothTakeWritesShareNoID(t *testing.T) {
	srv := mysqltest.Start(t)
	marks := marksOf(t)
	create(t, beside(open(t, srv.DSN()), marks), "order", 100, 1)
	twin := srv.Clone()
	var mu sync.Mutex
	var ranges []segment.Range
	var wg sync.WaitGroup
	for i := range 4 {
		g := beside(open(t, []*mysqltest.Server{srv, twin}[i%2].DSN()), marks)
		wg.Go(func() {
			for range 100 {
				r, err := g.Load(t.Context(), "order", 0, 0)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				ranges = append(ranges, r.Range)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	wantNoRepeat(t, ranges)
}

func TestAConnectionCutAtAnyByteRepeatsNothing(t *testing.T) {
	srv := mysqltest.Start(t)
	marks := marksOf(t)
	sure := beside(open(t, srv.DSN()), marks)
	create(t, sure, "order", 10, 1)
	link := mysqltest.Proxy(t, srv.Addr())
	dsn := strings.Replace(srv.DSN(), srv.Addr(), link.Addr(), 1)
	// A table on a fresh connection, whose bytes count from its handshake on.
	fresh := func() (*mysqlstore.Table, error) { return mysqlstore.Login{DSN: dsn}.Open(t.Context()) }

	table, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	ranges := []segment.Range{load(t, beside(table, marks))}
	up, down := link.Bytes()
	table.Close()

	cut := 0
	try := func(fromClient, fromServer int) {
		link.CutAfter(fromClient, fromServer)
		table, err := fresh()
		if err != nil {
			cut++
		} else {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			r, err := beside(table, marks).Load(ctx, "order", 0, 0)
			cancel()
			if err == nil {
				ranges = append(ranges, r.Range)
			} else {
				cut++
			}
			table.Close()
		}
		link.Pass()
		ranges = append(ranges, load(t, sure))
	}
	for b := range int(up) {
		try(b, -1)
	}
	for b := range int(down) {
		try(-1, b)
	}
	t.Logf("cut %d times, at each of %d bytes to the server and %d from it", cut, up, down)
	if cut < int(up+down)/2 {
		t.Errorf("only %d of %d tries were cut", cut, up+down)
	}
	wantNoRepeat(t, ranges)
}

// paused is a table whose first Advance waits.
type paused struct {
	*mysqlstore.Table
	once    sync.Once
	in, out chan struct{}
}

func (p *paused) Advance(ctx context.Context, tag string, start, end int64) (bool, error) {
	p.once.Do(func() {
		close(p.in)
		<-p.out
	})
	return p.Table.Advance(ctx, tag, start, end)
}

func TestAWorkerPausedInItsLoadDelaysNoOther(t *testing.T) {
	srv := mysqltest.Start(t)
	marks := marksOf(t)
	g := beside(open(t, srv.DSN()), marks)
	create(t, g, "order", 100, 1)
	p := &paused{Table: open(t, srv.DSN()), in: make(chan struct{}), out: make(chan struct{})}
	late := make(chan error, 1)
	var mine segment.Range
	go func() {
		// In the end it finds that it was overtaken, and retries.
		r, err := beside(p, marks).Load(t.Context(), "order", 0, 0)
		mine = r.Range
		late <- err
	}()
	<-p.in
	ranges := []segment.Range{}
	for range 10 { // a load that waited for the paused one would never end
		ranges = append(ranges, load(t, g))
	}
	close(p.out)
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	wantNoRepeat(t, append(ranges, mine))
}
