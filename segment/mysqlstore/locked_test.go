package mysqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/guard"
	"github.com/natsid/natsid/segment/segmenttest"
)

// waits requests one ID per millisecond for d, and returns the 99th percentile of the times that requests took.
func waits(t *testing.T, a *segment.Allocator, d time.Duration) (p99 time.Duration) {
	t.Helper()
	const every = time.Millisecond
	var took []time.Duration
	begin := time.Now()
	for due := begin; due.Sub(begin) < d; due = due.Add(every) {
		time.Sleep(time.Until(due))
		asked := time.Now() // later than due on a busy machine, which is not a wait for an ID
		if _, err := a.Take(t.Context(), "order", 1); err != nil {
			t.Fatalf("a request of a sound tag: %v", err)
		}
		took = append(took, time.Since(asked))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

func TestLockedRowsDoNotHurtOtherTags(t *testing.T) {
	srv := mysqltest.Start(t)
	g := guard.New(open(t, srv.DSN()), new(segmenttest.Marks), nil)
	create(t, g, "order", 50, 1) // since the step does not grow, a load every 50 ms
	const rows = 60
	for i := range rows {
		create(t, g, fmt.Sprint("locked", i), 50, 1)
	}
	a := segment.New(segment.Config{Store: g, Deadline: deadline, MaxStep: 1})
	defer a.Close()
	waits(t, a, time.Second/2)
	before := waits(t, a, 2*time.Second)

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
				_, err := a.Take(ctx, fmt.Sprint("locked", i), 1)
				if d := time.Since(asked); ctx.Err() == nil &&
					(!errors.Is(err, segment.ErrNotLoaded) || d > deadline+slack) {
					t.Errorf("a request of a locked tag: %v after %v", err, d)
				}
			}
		})
	}
	during := waits(t, a, 4*time.Second)
	t.Logf("p99 %v without, %v with %d locked rows", before, during, rows)
	// Every 50th request needs a load. Behind loads of locked rows it would wait for a second, until they time out.
	if during > before+400*time.Millisecond {
		t.Errorf("p99 %v without, %v with %d locked rows", before, during, rows)
	}
	cancel()
	callers.Wait()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	free := time.Now()
	for i := range rows {
		for err := segment.ErrNotLoaded; err != nil && t.Context().Err() == nil; {
			_, err = a.Take(t.Context(), fmt.Sprint("locked", i), 1)
		}
	}
	t.Logf("all %d had IDs %v after the rows were free", rows, time.Since(free))
}

func TestAProbeFailsIfTheServerTakesNoWritesAndForNoLockedRow(t *testing.T) {
	srv := mysqltest.Start(t)
	table := open(t, srv.DSN())
	g := guard.New(table, nil, nil)
	create(t, g, "order", 50, 1)
	create(t, g, "#first", 50, 1) // the rows before and after the one that a probe looks for
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
	if err := probe(); !errors.Is(err, segment.ErrNoWrites) {
		t.Errorf("while the server is read-only: %v", err)
	}
	srv.SetReadOnly(false)
	for until := time.Now().Add(time.Minute); probe() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the server takes writes again, and the probe fails")
		}
	}
	rows, err := table.AllRows(t.Context())
	if err != nil || len(rows) != 2 || rows[0].MaxID != 1 || rows[1].MaxID != 1 {
		t.Errorf("a probe has changed the table: %v, %v", rows, err)
	}
	srv.Kill()
	if err := probe(); err == nil {
		t.Error("a probe of a server that is down succeeds")
	}
}
