package tests

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/e2e/internal/setup"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/subjects"
)

// wantCode checks that an error is a worker's refusal of that code.
func wantCode(t *testing.T, err error, want subjects.Code) {
	t.Helper()
	if e, ok := errors.AsType[*subjects.Error](err); !ok || e.Code != want {
		t.Errorf("%v, want %d", err, want)
	}
}

// stores are the places that workers can keep their tags in.
func stores(t *testing.T, test func(t *testing.T, edit func(*app.Config), db *mysqltest.Server)) {
	t.Run("KV", func(t *testing.T) {
		t.Parallel()
		test(t, func(*app.Config) {}, nil)
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		db := mysqltest.Start(t)
		test(t, func(cfg *app.Config) { cfg.MySQL = db.DSN() }, db)
	})
}

func TestATagIsChangedEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, edit func(*app.Config), _ *mysqltest.Server) {
		c := e2e.Start(t, e2e.WithWorkers(3), setup.Config(func(_ int, cfg *app.Config) {
			edit(cfg)
			cfg.AutoCreateTags, cfg.TagPoll = false, time.Hour
		}))
		ask := func(n int) (errs int) { // of all workers, most likely
			for range 60 {
				if _, err := c.Client.SegmentN(t.Context(), "order", n); err != nil {
					errs++
				}
			}
			return errs
		}
		if n := ask(1); n != 60 {
			t.Fatalf("%d of 60 requests for a tag that is not there were refused", n)
		}
		if _, err := c.Client.CreateTag(t.Context(), subjects.TagCreate{Tag: "order", Step: 1000}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // the message
		if n := ask(1); n != 0 {
			t.Errorf("%d of 60 refused 100 ms after the tag was made: it is remembered as unknown", n)
		}
		made, err := c.Client.UpdateTag(t.Context(), subjects.TagUpdate{Tag: "order", RaiseBy: new(subjects.Decimal(1_000_000))})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		for range 60 {
			if id, err := c.Client.Segment(t.Context(), "order"); err != nil || id < int64(made.MaxID) {
				t.Fatalf("%d, %v, 100 ms after max_id was raised to %d", id, err, made.MaxID)
			}
		}
		if _, err := c.Client.DeleteTag(t.Context(), "order"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if n := ask(1); n != 60 {
			t.Errorf("%d of 60 refused 100 ms after the tag was deleted", n)
		}
	})
}

func TestRowsThatOthersAddChangeAndRemoveAreFollowed(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	c := e2e.Start(t, setup.Config(func(_ int, cfg *app.Config) {
		cfg.MySQL, cfg.AutoCreateTags, cfg.TagPoll = db.DSN(), false, time.Second
	}))
	exec := func(statement string) {
		t.Helper()
		if _, err := db.DB().Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Client.Segment(t.Context(), "order")
	wantCode(t, err, subjects.NotFound)
	exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 1000), ('last', 1, 10)")
	var id int64
	waitFor(t, "the added row", func() bool {
		id, err = c.Client.Segment(t.Context(), "order")
		return err == nil
	})
	if id != 1 {
		t.Errorf("its first ID is %d", id)
	}
	exec("DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
	waitFor(t, "the removed row", func() bool {
		_, err = c.Client.Segment(t.Context(), "order")
		return err != nil
	})
	wantCode(t, err, subjects.NotFound)
	exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)")
	waitFor(t, "the row added again", func() bool {
		id, err = c.Client.Segment(t.Context(), "order")
		return err == nil
	})
	if id < 1001 {
		t.Errorf("a row put back goes on with %d, want it above what was loaded of it", id)
	}
}

func TestIDsAreUniqueWhileMarksAreRaisedAndTagsDeletedUnderLoad(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, edit func(*app.Config), _ *mysqltest.Server) {
		c := e2e.Start(t, e2e.WithWorkers(3), setup.Config(func(_ int, cfg *app.Config) {
			edit(cfg)
			cfg.TagPoll = time.Second
		}))
		var got ledger
		var stop atomic.Bool
		var callers sync.WaitGroup
		for range 6 {
			callers.Go(func() {
				for !stop.Load() {
					runs, err := c.Client.SegmentN(t.Context(), "order", 50)
					if e, ok := errors.AsType[*subjects.Error](err); err != nil && (!ok || e.Code == subjects.Internal) {
						t.Error(err)
					}
					got.add(runs...)
				}
			})
		}
		waitFor(t, "the tag", func() bool { return got.len() > 1000 })
		admin := client.New(c.Conn, subjects.DefaultNamespace)
		for i := range 60 {
			var err error
			switch i % 3 {
			case 0:
				_, err = admin.UpdateTag(t.Context(), subjects.TagUpdate{Tag: "order", RaiseBy: new(subjects.Decimal(777)), Step: new(int64(100 + i))})
			case 1:
				_, err = admin.DeleteTag(t.Context(), "order")
			case 2:
				_, err = admin.CreateTag(t.Context(), subjects.TagCreate{Tag: "order", Step: 200})
			}
			if err != nil {
				t.Error(fmt.Errorf("change %d: %w", i, err))
			}
			time.Sleep(20 * time.Millisecond)
		}
		before := got.len()
		waitFor(t, "IDs after the changes", func() bool { return got.len() > before+1000 })
		stop.Store(true)
		callers.Wait()
		got.check(t)
	})
}

func TestAStartLoadsTheTagsUsedOfLateUnlessToldNotTo(t *testing.T) {
	t.Parallel()
	var preload atomic.Bool
	c := e2e.Start(t, setup.Config(func(_ int, cfg *app.Config) {
		if !preload.Load() {
			cfg.Preload = 0
		}
	}))
	if _, err := c.Client.Segment(t.Context(), "order"); err != nil {
		t.Fatal(err)
	}
	mark := func() subjects.Decimal {
		t.Helper()
		page, err := c.Client.ListTags(t.Context(), subjects.TagList{})
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		return page[0].MaxID
	}
	before := mark()
	c.StopWorker(0)
	c.StartWorker(0)
	time.Sleep(200 * time.Millisecond)
	if got := mark(); got != before {
		t.Errorf("without preload a restart moved max_id from %d to %d", before, got)
	}
	c.StopWorker(0)
	preload.Store(true)
	c.StartWorker(0)
	waitFor(t, "the preload", func() bool { return mark() == before+app.DefaultStep })
	if id, err := c.Client.Segment(t.Context(), "order"); err != nil || id != int64(before) || mark() != before+app.DefaultStep {
		t.Errorf("its first ID is %d, %v, want %d, from the range that was loaded", id, err, before)
	}
}
