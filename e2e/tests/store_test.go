package tests

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// The steps are those of docs/operations.md and docs/from-leaf.md, under load all the time; the row is far behind.
func TestTagsMoveToMySQLAndBackAndRepeatNoID(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	var onMySQL atomic.Bool
	c := startConfigured(t, 2, func(_ int, cfg *app.Config) {
		if cfg.TagPoll = time.Second; onMySQL.Load() {
			cfg.MySQL = db.DSN()
		}
	})
	l := startLoad(t, 2*time.Second, c.Conn, 4, map[string]string{"segment": "id.segment.order"})
	more := func(what string) {
		t.Helper()
		before := l.got["segment"].n.Load()
		wait.Until(t, what, func() bool { return l.got["segment"].n.Load() > before+20_000 })
	}
	more("load in JetStream")
	for _, q := range []string{leafTable, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 1000)"} {
		if _, err := db.DB().Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{"mysql", "kv", "mysql"} {
		if to == "kv" {
			code, out := run(t, t.Context(), "store", "move", "--mysql", db.DSN(), "--nats", c.URL, "--yes")
			if code != 0 || !strings.Contains(out, "of kind kv") {
				t.Fatalf("moved: %d %s", code, out)
			}
		} else if err := toMySQL(t, c.Conn); err != nil {
			t.Fatal(err)
		}
		onMySQL.Store(to == "mysql")
		for i := range 2 {
			c.StopWorker(i)
			c.StartWorker(i)
		}
		more("load after the move to " + to)
	}
	for _, err := range l.stop() {
		if _, refused := errors.AsType[*subjects.Error](err); refused && !strings.Contains(err.Error(), "503") {
			t.Error(err)
		}
	}
	l.check(t)
}

// leafTable is Leaf's script.
const leafTable = `CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL DEFAULT '',
	max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL, description varchar(256) DEFAULT NULL,
	update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
	PRIMARY KEY (biz_tag)) ENGINE=InnoDB`

// toMySQL changes the kind of the marks.
func toMySQL(t *testing.T, conn *nats.Conn) error {
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(2*patience))
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(t.Context(), "id_segments")
	if err != nil {
		return err
	}
	id, err := kv.Get(t.Context(), buckets.Own)
	if err != nil {
		return err
	}
	value := bytes.Replace(id.Value(), []byte(`"kind":"kv"`), []byte(`"kind":"mysql"`), 1)
	_, err = kv.Update(t.Context(), buckets.Own, value, id.Revision())
	return err
}

func TestAStartPreloadsRecentlyUsedTags(t *testing.T) {
	t.Parallel()
	c := startConfigured(t, 1, inNoHurry)
	ctx := patient(t)
	last, err := c.Segment("order").Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mark := func() subjects.ID {
		t.Helper()
		page, err := c.Client.ListTags(ctx, subjects.TagList{})
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		return page[0].NextID
	}
	before := mark()
	c.StopWorker(0)
	c.StartWorker(0)
	wait.Until(t, "the preload", func() bool { return mark() == before+app.DefaultStep })
	if id, err := c.Segment("order").Next(ctx); err != nil || id <= last || mark() != before+app.DefaultStep {
		t.Errorf("it gives %d, %v, want an ID of the range that was loaded", id, err)
	}
}
