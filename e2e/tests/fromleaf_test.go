package tests

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// leafTable is Leaf's script, with a row that a Leaf has used.
const leafTable = `CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL DEFAULT '',
	max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL, description varchar(256) DEFAULT NULL,
	update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
	PRIMARY KEY (biz_tag)) ENGINE=InnoDB`

// startLeaf starts natsid leaf before the workers on a NATS, and returns its URL.
func startLeaf(t *testing.T, url string) string {
	t.Helper()
	address := freePort(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if code, text := run(t, ctx, "leaf", "--nats="+url, "--listen="+address, "--deadline=1m"); code != 0 {
			t.Errorf("natsid leaf: %d %s", code, text)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	wait.Until(t, "Leaf's paths", func() bool {
		code, _ := get("http://" + address)
		return code == 404
	})
	return "http://" + address
}

// The steps of docs/from-leaf.md: callers move by a change of host name.
func TestCallersOfLeafMoveByAChangeOfHostName(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	const row = "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('shop.order', 5001, 100)"
	for _, q := range []string{leafTable, row} {
		if _, err := db.DB().Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	workers := startConfigured(t, 1, func(_ int, cfg *app.Config) {
		cfg.MySQL = db.DSN()
		cfg.Numbers = &workerid.Span{First: 512, Last: 1023}
		inNoHurry(0, cfg)
	})
	leaf := startLeaf(t, workers.URL)
	code, body := get(leaf + "/api/segment/get/shop.order")
	if id, err := strconv.ParseInt(body, 10, 64); code != 200 || err != nil || id < 5001 {
		t.Errorf("a row that a Leaf has used: %d %s", code, body)
	}
	if _, err := db.DB().Exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('new', 1, 10)"); err != nil {
		t.Fatal(err)
	}
	if code, body := get(leaf + "/api/segment/get/new"); code != 200 || len(body) > 2 {
		t.Errorf("a row that was added by SQL: %d %s", code, body)
	}
	code, body = get(leaf + "/api/snowflake/get/any")
	id, _ := strconv.ParseInt(body, 10, 64)
	p, err := snowflake.Leaf.Decode(subjects.ID(id))
	if code != 200 || err != nil || p.Worker < 512 {
		t.Errorf("snowflake: %d %s, %+v %v", code, body, p, err)
	}
	_, decoded := get(leaf + "/decodeSnowflakeId?snowflakeId=" + body)
	if want := fmt.Sprintf(`"workerId":"%d"`, p.Worker); !strings.Contains(decoded, want) {
		t.Errorf("%s, want %s", decoded, want)
	}
}
