package mysqlstore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestALockedRowMovesTheMarkByOneLoadHoweverLongItIsLocked(t *testing.T) {
	srv := mysqltest.Start(t)
	exec(t, srv.DB(), intTable)
	marks := marksOf(t)
	g := beside(open(t, srv.DSN()), marks)
	create(t, g, "order", 1000, 1)
	tx, err := srv.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE leaf_alloc SET step = 1001 WHERE biz_tag = 'order'"); err != nil {
		t.Fatal(err)
	}
	a := segment.New(segment.Config{Store: g, Deadline: deadline})
	defer a.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var ranges []segment.Range
	var callers sync.WaitGroup
	for range 1000 {
		callers.Go(func() {
			for ctx.Err() == nil {
				got, _ := segmenttest.Take(ctx, a, "order", 1+rand.Int64N(100_000))
				mu.Lock()
				ranges = append(ranges, got...)
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	mark := func() int64 { return markOf(t, marks) }
	first := mark()
	for begin := time.Now(); first == 1 && time.Since(begin) < time.Minute; first = mark() {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(8 * time.Second)
	if late := mark(); late != first || late > 1+1000*100_000 {
		t.Errorf("the mark is at %d after the first load, and at %d after 8 s", first, late)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		served := len(ranges)
		mu.Unlock()
		if served > 0 {
			break
		}
	}
	cancel()
	callers.Wait()
	wantNoRepeat(t, ranges)
	if len(ranges) == 0 {
		t.Error("no ID since the row is free")
	}
}

// A statement that a read-only server refuses costs its connection: the address may lead to another server by now.
func TestAReadOnlyServerIsAskedTenTimesASecond(t *testing.T) {
	srv := mysqltest.Start(t)
	g := beside(open(t, srv.DSN()), marksOf(t))
	const tags = 50
	for i := range tags {
		create(t, g, string(rune('a'+i%26))+string(rune('a'+i/26)), 100, 1)
	}
	srv.SetReadOnly(true)
	defer srv.SetReadOnly(false)
	before, begin := opened(t, srv), time.Now()
	a := segment.New(segment.Config{Store: g, Deadline: deadline})
	defer a.Close()
	var callers sync.WaitGroup
	for i := range tags {
		callers.Go(func() {
			for time.Since(begin) < 4*time.Second {
				_, _ = segmenttest.Take(t.Context(), a, string(rune('a'+i%26))+string(rune('a'+i/26)), 1)
			}
		})
	}
	callers.Wait()
	n := opened(t, srv) - before
	t.Logf("%d connections in %v", n, time.Since(begin))
	if most := 100 + int64(40*time.Since(begin).Seconds()); n > most {
		t.Errorf("%d connections in %v, want %d at most", n, time.Since(begin), most)
	}
}

func TestConnectionsAreKeptBetweenBursts(t *testing.T) {
	srv := mysqltest.Start(t)
	table := open(t, srv.DSN())
	before := opened(t, srv)
	for range 20 {
		var burst sync.WaitGroup
		for range 100 {
			burst.Go(func() {
				if _, err := table.AllRows(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		burst.Wait()
	}
	if n := opened(t, srv) - before; n > 45 {
		t.Errorf("%d connections for 20 bursts of 100, of which 40 are sent at once", n)
	}
}

// opened returns how many connections the server ever took.
func opened(t *testing.T, srv *mysqltest.Server) (n int64) {
	t.Helper()
	var name string
	if err := srv.DB().QueryRow("SHOW GLOBAL STATUS LIKE 'Connections'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
