package tests

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// leafTable is Leaf's script, with a row that a Leaf has used.
const leafTable = `CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL DEFAULT '',
	max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL, description varchar(256) DEFAULT NULL,
	update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
	PRIMARY KEY (biz_tag)) ENGINE=InnoDB`

// leafLoads loads a range as Leaf does, [max-step, max).
func leafLoads(t *testing.T, db *sql.DB, tag string) (from, to int64) {
	tx, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.Exec("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = ?", tag)
	}
	var step int64
	if err == nil {
		err = tx.QueryRow("SELECT max_id, step FROM leaf_alloc WHERE biz_tag = ?", tag).Scan(&to, &step)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Error(err)
	}
	return to - step, to
}

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
	waitFor(t, "Leaf's paths", func() bool {
		code, _ := get("http://" + address)
		return code == 404
	})
	return "http://" + address
}

// The steps of docs/from-leaf.md: callers move by a change of host name, while a Leaf goes on loading.
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
	var mu sync.Mutex
	var wg sync.WaitGroup
	given := make(map[int64]bool)
	var ranges [][2]int64
	for range 4 {
		wg.Go(func() {
			for range 500 {
				code, body := get(leaf + "/api/segment/get/shop.order")
				id, err := strconv.ParseInt(body, 10, 64)
				mu.Lock()
				if code != 200 || err != nil || id < 5001 || given[id] {
					t.Errorf("%d %s", code, body)
				}
				given[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			from, to := leafLoads(t, db.DB(), "shop.order")
			ranges = append(ranges, [2]int64{from, to})
		}
	})
	wg.Wait()
	for _, r := range ranges {
		for id := r[0]; id < r[1]; id++ {
			if given[id] {
				t.Errorf("%d is of a range that Leaf has loaded", id)
			}
		}
	}
	if _, err := db.DB().Exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('new', 1, 10)"); err != nil {
		t.Fatal(err)
	}
	if code, body := get(leaf + "/api/segment/get/new"); code != 200 || len(body) > 2 {
		t.Errorf("a row that was added by SQL: %d %s", code, body)
	}
	var highest int64
	for id := range given {
		highest = max(highest, id)
	}
	var now int64
	read := db.DB().QueryRow("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'shop.order'")
	if err := read.Scan(&now); err != nil || now <= highest {
		t.Errorf("the table is at %d, %v, below ID %d: Leaf could not go on", now, err, highest)
	}
	code, body := get(leaf + "/api/snowflake/get/any")
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
