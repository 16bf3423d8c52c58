package mysqlstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

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
