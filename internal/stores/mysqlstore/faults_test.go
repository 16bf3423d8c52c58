package mysqlstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stores/guard"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestADatabaseRestoredFromAnOldCopyRepeatsNothing(t *testing.T) {
	srv := mysqltest.Start(t)
	var alarms []string
	marks := new(segmenttest.Marks)
	g := guard.New(open(t, srv.DSN()), marks, &guard.Config{
		Alarm: func(tag, message string) { alarms = append(alarms, tag+": "+message) },
	})
	create(t, g, "order", 100, 1)
	ranges := []segment.Range{load(t, g)}
	old := srv.Snapshot()
	for range 20 {
		ranges = append(ranges, load(t, g))
	}
	srv.Stop()
	srv.Restore(old)
	srv.Run()
	for range 20 {
		ranges = append(ranges, load(t, g))
	}
	wantNoRepeat(t, ranges)
	if len(alarms) != 1 || !strings.Contains(alarms[0], "order: max_id is 101 and was") {
		t.Errorf("alarms %q, want one", alarms)
	}
	if row, err := open(t, srv.DSN()).Row(t.Context(), "order"); err != nil || row.MaxID != ranges[len(ranges)-1].End {
		t.Errorf("row %+v, %v: want max_id lifted above all ranges", row, err)
	}
}

func TestTwoServersThatBothTakeWritesShareNoID(t *testing.T) {
	srv := mysqltest.Start(t)
	marks := new(segmenttest.Marks)
	create(t, guard.New(open(t, srv.DSN()), marks, nil), "order", 100, 1)
	twin := srv.Clone()
	var mu sync.Mutex
	var ranges []segment.Range
	var wg sync.WaitGroup
	for i := range 4 {
		g := guard.New(open(t, []*mysqltest.Server{srv, twin}[i%2].DSN()), marks, nil)
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
	marks := new(segmenttest.Marks)
	sure := guard.New(open(t, srv.DSN()), marks, nil)
	create(t, sure, "order", 10, 1)
	link := mysqltest.Proxy(t, srv.Addr())
	dsn := strings.Replace(srv.DSN(), srv.Addr(), link.Addr(), 1)
	// A table on a fresh connection, whose bytes count from its handshake on.
	fresh := func() (*mysqlstore.Table, error) { return mysqlstore.Open(t.Context(), dsn) }

	table, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	ranges := []segment.Range{load(t, guard.New(table, marks, nil))}
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
			r, err := guard.New(table, marks, nil).Load(ctx, "order", 0, 0)
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

func TestAReadOnlyReplicaDoesNotMakeTheMarkRunAway(t *testing.T) {
	srv := mysqltest.Start(t)
	marks := new(segmenttest.Marks)
	g := guard.New(open(t, srv.DSN()), marks, nil)
	create(t, g, "order", 100, 1)
	ranges := []segment.Range{load(t, g)}
	before := connections(t, srv)
	srv.SetReadOnly(true)
	for range 50 {
		if r, err := g.Load(t.Context(), "order", 0, 0); !errors.Is(err, segment.ErrNotApplied) {
			t.Fatalf("%v, %v, want ErrNotApplied", r, err)
		}
	}
	for _, id := range connections(t, srv) {
		if slices.Contains(before, id) {
			t.Errorf("connection %d to a server that has become read-only is kept", id)
		}
	}
	if m, _ := marks.Mark(t.Context(), "order"); m.High != 201 {
		t.Errorf("the mark is at %d after 50 refused loads, want one step ahead: 201", m.High)
	}
	srv.SetReadOnly(false)
	ranges = append(ranges, loadEventually(t, g))
	wantNoRepeat(t, ranges)
}

// loadEventually returns a range as soon as the table takes writes again.
func loadEventually(t *testing.T, s segment.Store) segment.Range {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		l, err := s.Load(t.Context(), "order", 0, 0)
		if err == nil {
			return l.Range
		}
		if time.Since(begin) > time.Minute {
			t.Fatal(err)
		}
	}
}

// connections returns the IDs of the connections other than the test's own.
func connections(t *testing.T, srv *mysqltest.Server) (ids []int64) {
	t.Helper()
	rows, err := srv.DB().Query("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
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
	marks := new(segmenttest.Marks)
	g := guard.New(open(t, srv.DSN()), marks, nil)
	create(t, g, "order", 100, 1)
	p := &paused{Table: open(t, srv.DSN()), in: make(chan struct{}), out: make(chan struct{})}
	late := make(chan error, 1)
	var mine segment.Range
	go func() {
		// In the end it finds that it was overtaken, and retries.
		r, err := guard.New(p, marks, nil).Load(t.Context(), "order", 0, 0)
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

func TestLoadsResumeAfterTheDatabaseIsBack(t *testing.T) {
	srv := mysqltest.Start(t)
	g := guard.New(open(t, srv.DSN()), new(segmenttest.Marks), nil)
	a := segment.New(segment.Config{Store: g, Deadline: deadline, AutoStep: 100})
	defer a.Close()
	var ranges []segment.Range
	take := func() error {
		r, err := a.Take(t.Context(), "order", 1)
		ranges = append(ranges, r...)
		return err
	}
	for range 50 {
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	for name, fault := range map[string]struct{ away, back func() }{
		"killed": {srv.Kill, srv.Run}, "paused": {srv.Pause, srv.Resume},
	} {
		fault.away()
		served := 0
		begin := time.Now()
		err := take()
		for ; err == nil; err = take() {
			served++
			begin = time.Now()
		}
		if d := time.Since(begin); !errors.Is(err, segment.ErrNotLoaded) || d > deadline+slack {
			t.Errorf("%s: after the last ID in memory: %v after %v, want ErrNotLoaded by the deadline", name, err, d)
		}
		fault.back()
		begin = time.Now()
		for err = take(); err != nil; err = take() {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%s: still %v", name, err)
			}
		}
		t.Logf("%s: %d IDs from memory, the next %v after its return", name, served,
			time.Since(begin).Round(time.Millisecond))
		if d := time.Since(begin); d > slack { // 0.4 s at most on an idle machine: the longest pause
			t.Errorf("%s: the next ID came %v after its return", name, d)
		}
	}
	wantNoRepeat(t, ranges)
}
