package tests

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// stores runs a test on each kind of store.
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

func TestAChangedTagIsChangedOnAllWorkersAtOnce(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, edit func(*app.Config), _ *mysqltest.Server) {
		c := startConfigured(t, 3, func(_ int, cfg *app.Config) {
			edit(cfg)
			inNoHurry(0, cfg)
			// Only a message informs workers of a change: the first poll is long after
			// the test.
			cfg.AutoCreateTags, cfg.TagPoll = false, time.Hour
		})
		ctx := patient(t)
		all := func(ok func(id int64, err error) bool) func() bool { // all workers, most likely
			return func() bool {
				for range 60 {
					if id, err := c.Segment("order").Next(ctx); !ok(int64(id), err) {
						return false
					}
				}
				return true
			}
		}
		unknown := func(_ int64, err error) bool {
			e, ok := errors.AsType[*subjects.Error](err)
			return ok && e.Code == subjects.NotFound
		}
		if !all(unknown)() {
			t.Fatal("a tag that does not exist was served")
		}
		if _, err := c.Client.CreateTag(ctx, subjects.TagCreate{Tag: "order", Step: 1000}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the tag is unknown to no worker", all(func(_ int64, err error) bool { return err == nil }))
		raise := wire.TagUpdate{Tag: "order", RaiseBy: new(subjects.ID(1_000_000))}
		ns := subjects.DefaultNamespace
		raised, err := natstest.Ask[subjects.TagInfo](ctx, c.Conn, ns.TagUpdate(), raise)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "IDs above the raised max_id only", all(func(id int64, err error) bool {
			return err == nil && id >= int64(raised.MaxID)
		}))
		if _, err := natstest.Ask[any](ctx, c.Conn, ns.TagDelete(), wire.TagDelete{Tag: "order"}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the deleted tag is served by no worker", all(unknown))
	})
}

func TestAStartPreloadsRecentlyUsedTagsUnlessDisabled(t *testing.T) {
	t.Parallel()
	var preload atomic.Bool
	c := startConfigured(t, 1, func(i int, cfg *app.Config) {
		inNoHurry(i, cfg)
		if !preload.Load() {
			cfg.Preload = 0
		}
	})
	ctx := patient(t)
	if _, err := c.Segment("order").Next(ctx); err != nil {
		t.Fatal(err)
	}
	mark := func() subjects.ID {
		t.Helper()
		page, err := c.Client.ListTags(ctx, subjects.TagList{})
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		return page[0].MaxID
	}
	before := mark()
	c.StopWorker(0)
	c.StartWorker(0)
	time.Sleep(200 * time.Millisecond) // a preload would be seen by then
	if got := mark(); got != before {
		t.Errorf("without preload a restart moved max_id from %d to %d", before, got)
	}
	c.StopWorker(0)
	preload.Store(true)
	c.StartWorker(0)
	waitFor(t, "the preload", func() bool { return mark() == before+app.DefaultStep })
	id, err := c.Segment("order").Next(ctx)
	if err != nil || id < subjects.ID(before) || mark() != before+app.DefaultStep {
		t.Errorf("it gives %d, %v, want an ID from %d on, of the range that was loaded", id, err, before)
	}
}
