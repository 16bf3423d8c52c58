package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// deadline is that of parked requests.
const deadline = 1500 * time.Millisecond

// slack is the delay that a busy machine may add.
const slack = 5 * time.Second

// Leaf's own table, that of the article about Leaf, and one with small columns.
const (
	leafTable = leafColumns + "description varchar(256) DEFAULT NULL, " + updateTime + key
	descTable = leafColumns + "`desc` varchar(256) DEFAULT NULL, " + updateTime + key
	intTable  = "CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL PRIMARY KEY, max_id int NOT NULL, " +
		"step int NOT NULL, " + updateTime + ") ENGINE=InnoDB"

	leafColumns = "CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL DEFAULT '', " +
		"max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL, "
	key        = ", PRIMARY KEY (biz_tag)) ENGINE=InnoDB"
	updateTime = "update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
)

func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func open(t *testing.T, dsn string) *mysqlstore.Table {
	t.Helper()
	table, err := mysqlstore.Login{DSN: dsn}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// marksOf returns a JetStream for marks.
func marksOf(t *testing.T) buckets.Streams {
	return buckets.OnJetStream(natstest.JetStream(t, natstest.Start(t)))
}

// beside returns a store whose marks guard a table.
func beside(table segment.Table, marks buckets.Streams) *kvstore.Store {
	return kvstore.New(marks, kvstore.Config{Bucket: "marks", Table: table})
}

// markOf returns the mark of the tag order, 0 if it has none.
func markOf(t *testing.T, marks buckets.Streams) int64 {
	t.Helper()
	r, err := kvstore.Inspect(t.Context(), marks, "marks")
	if err != nil && !errors.Is(err, buckets.ErrNoBucket) {
		t.Fatal(err)
	}
	return r.Marks["order"].Mark
}

func create(t *testing.T, s segment.Store, tag string, step, start int64) {
	t.Helper()
	if _, err := s.Create(t.Context(), segment.Tag{Name: tag, Step: step, MaxID: start}, false); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, s segment.Store) segment.Range {
	t.Helper()
	r, err := s.Load(t.Context(), "order", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r.Range
}

// wantNoRepeat checks that no ID is in two ranges.
func wantNoRepeat(t *testing.T, ranges []segment.Range) {
	t.Helper()
	slices.SortFunc(ranges, func(a, b segment.Range) int { return int(a.Start - b.Start) })
	var ids, repeats int64
	for i, r := range ranges {
		ids += r.Len()
		if i > 0 {
			repeats += max(0, ranges[i-1].End-r.Start)
		}
	}
	t.Logf("%d ranges, %d IDs, %d repeats", len(ranges), ids, repeats)
	if repeats > 0 {
		t.Errorf("%d IDs were issued twice", repeats)
	}
}

// The table that natsid makes is Leaf's own.
func TestMySQLConforms(t *testing.T) {
	srv := mysqltest.Start(t)
	for name, ddl := range map[string]string{"NoTableYet": "", "TheArticles": descTable} {
		t.Run(name, func(t *testing.T) {
			segmenttest.Run(t, func(t *testing.T) func() segment.Store {
				exec(t, srv.DB(), "DROP TABLE IF EXISTS leaf_alloc")
				if ddl != "" {
					exec(t, srv.DB(), ddl)
				}
				marks := marksOf(t)
				return func() segment.Store { return beside(open(t, srv.DSN()), marks) }
			})
		})
	}
}

func TestOddRowsHideNoOthersAndCanBeFixed(t *testing.T) {
	srv := mysqltest.Start(t)
	exec(t, srv.DB(), "CREATE TABLE leaf_alloc (biz_tag varchar(128) CHARACTER SET latin1 NOT NULL PRIMARY KEY, "+
		"max_id bigint unsigned NOT NULL, step int NULL, update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP)")
	exec(t, srv.DB(), "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES "+
		"('\u00e9t\u00e9', 7, 10), ('a b', 7, 10), ('huge', 18446744073709551615, 10), ('none', 1, NULL), "+
		"('order', 50, 10), ('zero', 0, 10)")
	g := beside(open(t, srv.DSN()), marksOf(t))
	for range 2 {
		if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
			t.Errorf("Poll: %v", err)
		}
	}
	var names []string
	for after := ""; ; after = names[len(names)-1] {
		page, err := g.List(t.Context(), after, 2)
		if err != nil || len(names) > 10 {
			t.Fatal(err, names)
		}
		if len(page) == 0 {
			break
		}
		for _, tag := range page {
			names = append(names, tag.Name)
		}
	}
	if want := []string{"a b", "huge", "none", "order", "zero", "\u00e9t\u00e9"}; !slices.Equal(names, want) {
		t.Errorf("listed %q, want %q", names, want)
	}
	for tag, want := range map[string]error{
		"huge": segment.ErrExhausted, "none": segment.ErrBadRow, "zero": segment.ErrBadRow, "order": nil,
	} {
		if _, err := g.Load(t.Context(), tag, 0, 0); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", tag, err, want)
		}
	}
	// Deleted while its row is odd, then created again.
	if err := g.Delete(t.Context(), "zero"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Create(t.Context(), segment.Tag{Name: "zero", Step: 10, MaxID: 1}, true); err != nil {
		t.Error(err)
	}
	if r, err := g.Load(t.Context(), "zero", 0, 0); err != nil || r.Start != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// loadAsLeaf takes a range as Leaf does: by its two statements in one transaction.
func loadAsLeaf(ctx context.Context, db *sql.DB) (segment.Range, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return segment.Range{}, err
	}
	defer func() { _ = tx.Rollback() }() // without effect after Commit
	var end, step int64
	const update = "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'"
	if _, err = tx.ExecContext(ctx, update); err == nil {
		err = tx.QueryRowContext(ctx, "SELECT max_id, step FROM leaf_alloc WHERE biz_tag = 'order'").Scan(&end, &step)
	}
	if err == nil {
		err = tx.Commit()
	}
	return segment.Range{Start: end - step, End: end}, err
}

func TestBesideLeafNodesNoRangesOverlap(t *testing.T) {
	srv := mysqltest.Start(t)
	marks := marksOf(t)
	g := beside(open(t, srv.DSN()), marks)
	create(t, g, "order", 10, 1)
	var mu sync.Mutex
	var ranges []segment.Range
	var wg sync.WaitGroup
	for i := range 8 {
		guard := beside(open(t, srv.DSN()), marks)
		wg.Go(func() {
			for range 250 {
				r, err := loadAsLeaf(t.Context(), srv.DB())
				if i%2 == 0 {
					var l segment.Loaded
					l, err = guard.Load(t.Context(), "order", 0, 0)
					r = l.Range
				}
				if err != nil {
					continue // say, a deadlock that the server resolved
				}
				mu.Lock()
				ranges = append(ranges, r)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(ranges) < 1500 {
		t.Errorf("%d of 2,000 loads succeeded", len(ranges))
	}
	wantNoRepeat(t, ranges)
}

func TestARowThatDiffersInCaseIsNamed(t *testing.T) {
	srv := mysqltest.Start(t)
	exec(t, srv.DB(), leafTable)
	exec(t, srv.DB(), "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES "+
		"('Order', 1, 10), ('a b', 1, 10)")
	g := beside(open(t, srv.DSN()), marksOf(t))
	a := segment.New(segment.Config{Store: g, Deadline: deadline, AutoStep: 100})
	defer a.Close()
	_, err := segmenttest.Take(t.Context(), a, "order", 1)
	if n, ok := errors.AsType[*segment.NameError](err); !ok || n.Found != "Order" ||
		!errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("order beside Order: %v, want a NameError that names it", err)
	}
	if r, err := segmenttest.Take(t.Context(), a, "Order", 1); err != nil || r[0].Start != 1 {
		t.Errorf("Order: %v, %v", r, err)
	}
}

func TestAllIDsUpToTheEndOfTheColumnAreIssuedWhateverTheStepHasGrownTo(t *testing.T) {
	const left = 1_500_000
	for _, batches := range [][]int64{{1}, {70_000, 1}} { // the step grows to a million
		srv := mysqltest.Start(t)
		exec(t, srv.DB(), intTable)
		exec(t, srv.DB(), "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', ?, 500)", math.MaxInt32-left)
		marks := marksOf(t)
		g := beside(open(t, srv.DSN()), marks)
		a := segment.New(segment.Config{Store: g, Deadline: time.Minute})
		defer a.Close()
		issued, last := int64(0), int64(0)
		for _, batch := range batches {
			ranges, err := segmenttest.Take(t.Context(), a, "order", batch)
			for ; err == nil; ranges, err = segmenttest.Take(t.Context(), a, "order", batch) {
				for _, r := range ranges {
					issued, last = issued+r.Len(), r.End-1
				}
			}
			if !errors.Is(err, segment.ErrExhausted) {
				t.Fatalf("after %d IDs, the last of them %d: %v", issued, last, err)
			}
		}
		if issued != left || last != math.MaxInt32-1 {
			t.Errorf("%d of %d IDs were issued, the last of them %d", issued, left, last)
		}
		if m := markOf(t, marks); m != math.MaxInt32 {
			t.Errorf("the mark is %d", m)
		}
		_, err := g.Create(t.Context(), segment.Tag{Name: "big", Step: 1, MaxID: 1 << 40}, false)
		if !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("a start beyond the column: %v", err)
		}
	}
}

func TestARowIsAdvancedOnlyFromTheStartOfTheRangeOrBelow(t *testing.T) {
	srv := mysqltest.Start(t)
	table := open(t, srv.DSN())
	for _, tc := range []struct {
		maxID, start, end int64
		want              bool
	}{{100, 100, 200, true}, {99, 100, 200, true}, {101, 100, 200, false}, {200, 100, 200, false}} {
		exec(t, srv.DB(), "REPLACE INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', ?, 10)", tc.maxID)
		done, err := table.Advance(t.Context(), "order", tc.start, tc.end)
		row, _ := table.Row(t.Context(), "order")
		if want := map[bool]int64{true: tc.end, false: tc.maxID}[tc.want]; err != nil || done != tc.want ||
			row.MaxID != want {
			t.Errorf("%+v: %v, %v, and max_id is %d", tc, done, err, row.MaxID)
		}
	}
}

func TestWhatWaitingCannotFixIsRefusedWithoutThePassword(t *testing.T) {
	srv := mysqltest.Start(t)
	for name, dsn := range map[string]string{
		"malformed":      "natsid:secret@tcp(127.0.0.1:3306",
		"no host":        "natsid:secret/natsid",
		"a slash":        "natsid:secret/rest@tcp(127.0.0.1:3306)",
		"no database":    "natsid:secret@tcp(127.0.0.1:3306)/",
		"wrong password": strings.Replace(srv.DSN(), ":", ":secret-", 1),
		"no such schema": srv.DSN() + "x",
	} {
		_, err := mysqlstore.Login{DSN: dsn}.Open(t.Context())
		if !errors.Is(err, mysqlstore.ErrRefused) || strings.Contains(fmt.Sprint(err), "secret") ||
			strings.Contains(mysqlstore.Redact(dsn), "secret") {
			t.Errorf("%s: %v, want ErrRefused without the password", name, err)
		}
		if remedy := "the DSN"; !strings.Contains(fmt.Sprint(err), remedy) {
			t.Errorf("%s: %v does not say what to look at", name, err)
		}
	}
	if _, err := (mysqlstore.Login{DSN: "natsid:secret@tcp(127.0.0.1:1)/natsid"}).Open(t.Context()); err == nil ||
		errors.Is(err, mysqlstore.ErrRefused) {
		t.Errorf("a database that is not there yet: %v, want an error that is not ErrRefused", err)
	}
}

func TestWhatAColumnCannotHoldIsInvalidAndChangesNothing(t *testing.T) {
	srv := mysqltest.Start(t)
	exec(t, srv.DB(), "CREATE TABLE leaf_alloc (biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL, "+
		"step int NOT NULL, description varchar(8), update_time timestamp) CHARACTER SET utf8mb3")
	g := beside(open(t, srv.DSN()), marksOf(t))
	create(t, g, "order", 10, 1)
	for law, text := range map[string]string{"too long": "123456789", "no such character": "\U0001F600"} {
		_, err := g.Create(t.Context(), segment.Tag{Name: "new", Step: 10, MaxID: 1, Description: text}, false)
		if !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("%s: create: %v, want ErrInvalid", law, err)
		}
		_, err = g.Update(t.Context(), "order", segment.Change{Step: 20, Description: &text, RaiseBy: 5})
		if !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("%s: update: %v, want ErrInvalid", law, err)
		}
	}
	create(t, g, "new", 10, 1)
	if got, err := g.Look(t.Context(), "order"); err != nil || got.Step != 10 || got.MaxID != 1 ||
		got.Description != "" {
		t.Errorf("%+v, %v, want it as it was created", got, err)
	}
}

const tagKey = "biz_tag varchar(128) PRIMARY KEY"

func TestATableThatNatsidCannotServeIsRefusedAtTheStartByItsColumn(t *testing.T) {
	srv := mysqltest.Start(t)
	const rest = ", max_id bigint, step int, update_time timestamp"
	for columns, words := range map[string]string{
		"biz_tag varchar(128)" + rest: "can have the same biz_tag: make it the primary key",

		"biz_tag varchar(128), site int" + rest + ", PRIMARY KEY (biz_tag, site)": "can have the same biz_tag",

		"biz_tag int PRIMARY KEY" + rest: "column biz_tag of leaf_alloc is int: make it varchar",

		tagKey + ", max_id decimal(30), step int, update_time timestamp": "is decimal: make it bigint or int",
		tagKey + ", max_id bigint, step text, update_time timestamp":     "step of leaf_alloc is text: make it int",
		tagKey + ", max_id bigint, step int, update_time bigint":         "is bigint: make it timestamp or datetime",
		tagKey + ", max_id bigint, step int":                             "no column update_time: add it, as timestamp",

		tagKey + rest + ", `desc` int": "desc of leaf_alloc is int: make it varchar(256)",

		"id int AUTO_INCREMENT PRIMARY KEY, biz_tag varchar(128) UNIQUE" + rest: "",

		"biz_tag char(64) UNIQUE, max_id int unsigned, step bigint, update_time datetime(6), description text": "",
	} {
		exec(t, srv.DB(), "DROP TABLE IF EXISTS leaf_alloc")
		exec(t, srv.DB(), "CREATE TABLE leaf_alloc ("+columns+")")
		table, err := mysqlstore.Login{DSN: srv.DSN()}.Open(t.Context())
		if words != "" && (!errors.Is(err, mysqlstore.ErrRefused) || !strings.Contains(fmt.Sprint(err), words)) ||
			words == "" && err != nil {
			t.Errorf("%s: %v, want %q", columns, err, words)
		}
		if err == nil {
			table.Close()
		}
	}
}

// Each is a refusal, after which nothing was changed, in the database's own words.
func TestARowThatTheOwnerOfTheTableForbidsIsRefused(t *testing.T) {
	srv := mysqltest.Start(t)
	for owners, words := range map[string]string{
		", owner int NOT NULL":     "'owner'", // 1364
		", CHECK (step < 100)":     "CONSTRAINT",
		", CHECK (max_id < 10000)": "CONSTRAINT",
	} {
		exec(t, srv.DB(), "DROP TABLE IF EXISTS leaf_alloc")
		exec(t, srv.DB(), "CREATE TABLE leaf_alloc (biz_tag varchar(128) PRIMARY KEY, "+
			"max_id bigint NOT NULL, step int NOT NULL, description text, update_time timestamp"+owners+")")
		g := beside(open(t, srv.DSN()), marksOf(t))
		_, err := g.Create(t.Context(), segment.Tag{Name: "order", Step: 1000, MaxID: 10_000}, false)
		if rule, ok := errors.AsType[segment.RuleError](err); !ok || errors.Is(err, segment.ErrUncertain) ||
			!strings.Contains(string(rule), words) {
			t.Errorf("%s: %v, want a RuleError with %s", owners, err, words)
		}
	}
}
