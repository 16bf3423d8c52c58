package tests

import (
	"errors"
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
			return err == nil && id >= int64(raised.NextID)
		}))
		if _, err := natstest.Ask[any](ctx, c.Conn, ns.TagDelete(), wire.TagDelete{Tag: "order"}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the deleted tag is served by no worker", all(unknown))
	})
}
