package mysqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// askSteadily requests one ID per millisecond for d, and returns how many requests waited for half a second.
func askSteadily(t *testing.T, a *segment.Allocator, d time.Duration) (waited int) {
	t.Helper()
	begin := time.Now()
	for due := begin; due.Sub(begin) < d; due = due.Add(time.Millisecond) {
		time.Sleep(time.Until(due))
		asked := time.Now() // later than due on a busy machine, which is not a wait for an ID
		_, err := segmenttest.Take(t.Context(), a, "order", 1)
		if err != nil && !errors.Is(err, segment.ErrNotLoaded) { // refused after a wait
			t.Fatalf("a request of a sound tag: %v", err)
		}
		if time.Since(asked) > time.Second/2 {
			waited++
		}
	}
	return waited
}

func TestLockedRowsDoNotHurtOtherTags(t *testing.T) {
	srv := mysqltest.Start(t)
	g := beside(open(t, srv.DSN()), marksOf(t))
	create(t, g, "order", 50, 1) // since the step does not grow, a load every 50 ms
	const rows = 60
	for i := range rows {
		create(t, g, fmt.Sprint("locked", i), 50, 1)
	}
	a := segment.New(segment.Config{Store: g, Deadline: deadline, MaxStep: 1})
	defer a.Close()
	askSteadily(t, a, time.Second/2)

	tx, err := srv.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows { // one by one: a condition on many would lock the whole table
		if _, err := tx.Exec("UPDATE leaf_alloc SET step = 51 WHERE biz_tag = ?", fmt.Sprint("locked", i)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range rows {
		callers.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				_, err := segmenttest.Take(ctx, a, fmt.Sprint("locked", i), 1)
				if d := time.Since(asked); ctx.Err() == nil &&
					(!errors.Is(err, segment.ErrNotLoaded) || d > deadline+slack) {
					t.Errorf("a request of a locked tag: %v after %v", err, d)
				}
			}
		})
	}
	// Every 50th request needs a load. Behind loads of locked rows, each waits for seconds, until they time out.
	if n := askSteadily(t, a, 4*time.Second); n > 8 {
		t.Errorf("with %d locked rows, %d of 4000 requests of a sound tag waited for half a second", rows, n)
	}
	cancel()
	callers.Wait()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	free := time.Now()
	for i := range rows {
		for err := segment.ErrNotLoaded; err != nil && t.Context().Err() == nil; {
			_, err = segmenttest.Take(t.Context(), a, fmt.Sprint("locked", i), 1)
		}
	}
	t.Logf("all %d had IDs %v after the rows were free", rows, time.Since(free))
}

func TestAProbeFailsIfTheServerTakesNoWritesAndForNoLockedRow(t *testing.T) {
	srv := mysqltest.Start(t)
	table := open(t, srv.DSN())
	g := beside(table, marksOf(t))
	create(t, g, "order", 50, 1)
	// The rows before and after the one that a probe looks for.
	if err := table.Insert(t.Context(), segment.Tag{Name: "#first", Step: 50, MaxID: 1}); err != nil {
		t.Fatal(err)
	}
	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // less than a lock is waited for
		defer cancel()
		return table.Probe(ctx)
	}
	tx, err := srv.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE leaf_alloc SET max_id = max_id + 1"); err != nil { // locks each row, and the gaps
		t.Fatal(err)
	}
	if err := probe(); err != nil {
		t.Errorf("while all rows are locked: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	srv.SetReadOnly(true)
	err = probe()
	says := strings.Contains(fmt.Sprint(err), "read-only") && !strings.Contains(fmt.Sprint(err), "_natsid")
	if !errors.Is(err, segment.ErrNoWrites) || !says {
		t.Errorf("while the server is read-only: %v", err)
	}
	srv.SetReadOnly(false)
	wait.For(t, probe)
	rows, err := table.AllRows(t.Context())
	if err != nil || len(rows) != 2 || rows[0].MaxID != 1 || rows[1].MaxID != 1 {
		t.Errorf("a probe has changed the table: %v, %v", rows, err)
	}
	srv.Kill()
	if err := probe(); err == nil {
		t.Error("a probe of a server that is down succeeds")
	}
}

// with returns a DSN that sets a variable of each session.
func with(dsn, setting string) string {
	name, value, _ := strings.Cut(setting, "=")
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + name + "=" + url.QueryEscape(value)
}

// What a connection did after it, too, was not committed, and kept its rows locked.
func TestAChangeIsCommittedAndUnlocksItsRowWhateverTheServerCompletesATransactionWith(t *testing.T) {
	srv := mysqltest.Start(t)
	table := open(t, with(srv.DSN(), "completion_type='CHAIN'"))
	if err := table.Insert(t.Context(), segment.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil {
		t.Fatal(err)
	}
	if err := table.Try(t.Context(), "order", segment.Change{Step: 20, MaxID: 50}); err != nil {
		t.Fatal(err)
	}
	if done, err := table.Advance(t.Context(), "order", 1, 11); err != nil || !done {
		t.Fatalf("the row is not advanced: %v, %v", done, err)
	}
	other := open(t, srv.DSN())
	row, err := other.Row(t.Context(), "order")
	if err != nil || row.MaxID != 11 || row.Step != 10 {
		t.Errorf("others see max_id %d, step %d, %v, want what was acknowledged: 11, 10", row.MaxID, row.Step, err)
	}
	if done, err := other.Advance(t.Context(), "order", 11, 21); err != nil || !done {
		t.Errorf("another session cannot advance the row: %v, %v", done, err)
	}
}

func TestALimitOfTheServerHidesNoRows(t *testing.T) {
	srv := mysqltest.Start(t)
	table := open(t, with(srv.DSN(), "sql_select_limit=1"))
	for _, tag := range []string{"invoice", "order"} {
		if err := table.Insert(t.Context(), segment.Tag{Name: tag, MaxID: 1, Step: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if rows, err := table.AllRows(t.Context()); err != nil || len(rows) != 2 {
		t.Errorf("%d rows, %v, want 2", len(rows), err)
	}
}
