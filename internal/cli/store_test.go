package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// marks makes a bucket of marks with an entry.
func marks(t *testing.T, url string) jetstream.KeyValue {
	t.Helper()
	js := natstest.JetStream(t, url)
	b := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: "id_segments"})
	if err := b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "id_segments")
	if err != nil {
		t.Fatal(err)
	}
	put(t, kv, "order", `{"mark":5000,"step":10}`)
	return kv
}

func put(t *testing.T, kv jetstream.KeyValue, key, value string) {
	t.Helper()
	if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// wantMark checks the mark of a tag in the present era, as it is listed without a worker.
func wantMark(t *testing.T, tag string, mark int64, flags ...string) {
	t.Helper()
	got := natsid(t, append([]string{"tag", "list", "--json"}, flags...)...)
	if want := fmt.Sprintf(`{"tag":%q,"step":0,"next_id":"%d"`, tag, mark); !strings.Contains(got.out, want) {
		t.Errorf("listed %+v, want %s", got, want)
	}
}

func TestAStoreWithoutIdentityIsShownAndResumed(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	nats := "--nats=" + url
	natsid(t, "resume", nats).want(t, 1, "no bucket id_segments")
	marks(t, url)
	if got := natsid(t, "status", nats); !strings.Contains(got.out, "no identity") {
		t.Errorf("shown %+v", got)
	}
	if got := natsid(t, "resume", "--yes", "--bump=70000", nats); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	got := natsid(t, "status", nats)
	registry := regexp.MustCompile(`\nkv +(\w+) +1 +in order\n`).FindStringSubmatch(got.out)
	if registry == nil {
		t.Fatalf("shown %+v", got)
	}
	wantMark(t, "order", 75_000, nats)
}

func TestOfAStoppedRegistryNoTagIsUndecidedAndNoneUnmade(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	kv := marks(t, url)
	id := era.Found("kv", time.Now())
	id.Incident = &era.Incident{ID: "I", Cause: era.WentBack}
	put(t, kv, era.Key, string(id.Encode()))
	put(t, kv, "later", `{"mark":9,"step":1,"era":"lost"}`)
	put(t, kv, "cut", `{"mark":1,"step":1,"claimed":true,"first":true}`) // a create that could not make its row
	// No worker answers.
	if got := natsid(t, "status", "--nats="+url); !strings.Contains(got.out, "stopped: marks-went-back") ||
		strings.Contains(got.out, "undecided") {
		t.Errorf("the resume must come first, and a tag is undecided: %+v", got)
	}
	if got := natsid(t, "tag", "list", "--json", "--nats="+url); strings.Contains(got.out, `"cut"`) {
		t.Errorf("a tag that was never made is listed: %s", got.out)
	}
}

// The leader of a stream takes what it was asked last with it when it is killed, and nobody says so.
func TestACommandAsksJetStreamAgain(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	kv := marks(t, url)
	put(t, kv, era.Key, string(era.Found("kv", time.Now()).Encode()))
	nc, asked := natstest.JetStream(t, url).Conn(), new(sync.Map)
	if _, err := nc.Subscribe("mute.>", func(m *nats.Msg) {
		call := strings.TrimPrefix(m.Subject, "mute.")
		op := regexp.MustCompile(`^(STREAM|CONSUMER)(\.MSG)?\.\w+`).FindString(call)
		if _, again := asked.LoadOrStore(op, true); op != "" && !again {
			return
		}
		if !strings.HasPrefix(call, "$KV.") {
			call = "$JS.API." + call
		}
		_ = nc.PublishRequest(call, m.Reply, m.Data)
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"resume --restored --yes", "tag list --json", "status"} {
		asked.Clear()
		began := time.Now()
		got := natsid(t, append(strings.Fields(line), "--nats="+url, "--js-prefix=mute")...)
		if took := time.Since(began); got.code != 0 && line != "status" || took > 30*time.Second {
			t.Errorf("%s: %+v after %v", line, got, took)
		}
	}
	wantMark(t, "order", 1_000_005_000, "--nats="+url)
}

// leafTable makes the table of Leaf.
const leafTable = "CREATE TABLE leaf_alloc (biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL DEFAULT 1, " +
	"step int NOT NULL, description varchar(256), update_time timestamp DEFAULT CURRENT_TIMESTAMP);\n"

func TestRowsOfLeafThatNeedADecisionAreFound(t *testing.T) {
	t.Parallel()
	doc, db := readRecipe(t, "../../docs/from-leaf.md"), mysqltest.Start(t)
	for _, statement := range []string{leafTable, `INSERT INTO leaf_alloc (biz_tag, max_id, step)
		VALUES ('a b', 1, 10), ('low', 1, 0), ('.x', 1, 1), ('x.', 1, 1), ('x..y', 1, 1), ('_natsid.s', 1, 1),
		('none', 0, 1), ('Größe', 1, 1), ('', 1, 1), ('A-z_9/=.b', 1, 1), ('_natsids', 1, 1)`} {
		if _, err := db.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var found string
	query := strings.TrimSuffix(strings.TrimSpace(doc.block(t, "BETWEEN")), ";")
	all := "SELECT GROUP_CONCAT(biz_tag ORDER BY max_id, step, HEX(biz_tag) SEPARATOR '|') FROM (" + query + ") f"
	err := db.DB().QueryRowContext(t.Context(), all).Scan(&found)
	if want := "none|low||.x|Größe|_natsid.s|x.|x..y|a b"; err != nil || found != want {
		t.Errorf("found %s, %v, want %s", found, err, want)
	}
}

func TestTagsGoBackToMySQLAndReturn(t *testing.T) {
	t.Parallel()
	doc, db, s := readRecipe(t, "../../docs/from-leaf.md"), mysqltest.Start(t), serve(t)
	dsn, nats := "--mysql="+db.DSN(), "--nats="+s.url
	const text = `it's "ours" \ é`
	for _, tag := range []string{"order", "behind", "gone"} {
		answered(t, "tag", "create", tag, "--step=10", "--start=500", "--desc="+text, nats).want(t, 0)
		answered(t, "get", "segment", tag, nats).want(t, 0)
	}
	answered(t, "tag", "delete", "gone", "-y", nats).want(t, 0)
	statements, tags := shell(t, doc.block(t, "INSERT"), s.url)
	statements = leafTable + "INSERT INTO leaf_alloc (biz_tag, step, max_id) VALUES ('behind', 10, 7);\n" + statements
	for statement := range strings.Lines(statements) {
		if _, err := db.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	wantRow := func(tag, text string) {
		t.Helper()
		var got string
		row := db.DB().QueryRowContext(t.Context(), "SELECT CONCAT(max_id, ' ', step, ' ', COALESCE(description, '')) "+
			"FROM leaf_alloc WHERE biz_tag = ?", tag)
		if err := row.Scan(&got); err != nil || got != fmt.Sprintf("%d 10 %s", tags[tag], text) {
			t.Errorf("the row of %s is %s, %v", tag, got, err)
		}
	}
	wantRow("order", text)
	wantRow("behind", "")
	if strings.Contains(statements, "gone") {
		t.Error("a deleted tag has a row, from which Leaf would load")
	}
	kv, err := natstest.JetStream(t, s.url).KeyValue(t.Context(), "id_segments")
	if err != nil {
		t.Fatal(err)
	}
	id, err := kv.Get(t.Context(), buckets.Own)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(file, id.Value(), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := fmt.Sprintf("nats() { if [ $2 = get ]; then cat %[1]s; else printf %%s \"$5\" >%[1]s; fi; }\n", file)
	shell(t, tool+doc.block(t, "nats kv update"), s.url)
	changed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(t.Context(), buckets.Own, changed, id.Revision()); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = serve(t, dsn, "--data="+s.data)
	nats = "--nats=" + s.url
	got := answered(t, "get", "segment", "order", nats) // a range that comes late is a hole
	if id, err := strconv.ParseInt(strings.TrimSpace(got.out), 10, 64); err != nil || id < tags["order"] {
		t.Errorf("the next ID is %+v, want at least %d", got, tags["order"])
	}
	late := "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('late', 5001, 100)"
	if _, err := db.DB().ExecContext(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	wantFrom(t, 5001, answered(t, "get", "segment", "late", nats))
	odd := "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('a b', 1, 10), ('x..y', 1, 1), ('low', 1, 0)"
	if _, err := db.DB().ExecContext(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"store move --dry-run", "store move --yes"} { // refused before the first write
		got := natsid(t, append(strings.Fields(args), dsn, nats)...)
		got.want(t, 1, "nothing was moved", `column biz_tag, row "a b": `, `row "x..y": `, `step, row "low": 1 and 0`)
		if got := answered(t, "status", "--json", nats); !strings.Contains(got.out, `"kind":"mysql"`) {
			t.Errorf("after %s: %s, want no change", args, got.out)
		}
	}
	odd = "DELETE FROM leaf_alloc WHERE biz_tag IN ('a b', 'x..y', 'low')"
	if _, err := db.DB().ExecContext(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, kind, want string }{
		{"store move", "mysql", "give --yes"},
		{"store move --dry-run", "mysql", "0 tags to write, 3 in order"},
		{"store move --yes", "kv", "id_segments: of kind kv"},
	} {
		if got := natsid(t, append(strings.Fields(c.args), dsn, nats)...); !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s: %+v, want %q", c.args, got, c.want)
		}
		if got := answered(t, "status", "--json", nats); !strings.Contains(got.out, `"kind":"`+c.kind) {
			t.Errorf("after %s: %s, want kind %s", c.args, got.out, c.kind)
		}
	}
}
