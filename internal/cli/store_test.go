package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
)

func TestAStoreWithoutIdentityIsShownAndResumed(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	nats := "--nats=" + srv.ClientURL()
	natsid(t, "resume", nats).want(t, 3, "no bucket id_segments")
	streams := buckets.OnJetStream(jetStream(t, srv.ClientURL()))
	// Made by a worker, and made again after it was lost.
	lost := buckets.New(streams, buckets.Config{Name: "id_segments"})
	if _, err := lost.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := kvstore.New(streams, kvstore.Config{Bucket: "id_segments"})
	if _, err := store.Lift(t.Context(), "order", segment.Floor{End: 5000, Step: 10, Live: true}); err != nil {
		t.Fatal(err)
	}
	shown := func(want ...string) {
		t.Helper()
		got := natsid(t, "status", nats) // no worker answers
		for _, w := range want {
			if !strings.Contains(got.out, w) {
				t.Errorf("shown\n%s, want %q", got.out, w)
			}
		}
	}
	resume := func(flags ...string) {
		t.Helper()
		if got := natsid(t, append([]string{"resume", nats}, flags...)...); got.code != 0 {
			t.Fatalf("resume %q: %+v", flags, got)
		}
	}
	shown("no identity", "natsid resume")
	natsid(t, "resume", "--yes", nats).want(t, 2, "--since")
	natsid(t, "resume", "--since=1h", nats).want(t, 2, "--yes")
	write := func(text string) (path string) {
		path = filepath.Join(t.TempDir(), "marks")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, says := range map[string]string{
		`[{"tag":"bad!tag","max_id":"5"}]`: "want a tag and its mark", "a 7": "natsid tag list --json",
		`[{"tag":"a"}]`: "max_id 0: want",
	} {
		natsid(t, "resume", "--yes", "--since=1h", "--by=700", "--at-least="+write(text), nats).want(t, 2, says)
	}
	natsid(t, "resume", "--yes", "--since=1h", "--by=2305843009213693951", "--at-least="+
		write(`[{"tag":"new","max_id":"9223372036854775807"}]`), nats).want(t, 1, "new from 0 to 9223372036854775807")
	natsid(t, "resume", "--yes", "--marks="+write("[]"), nats).want(t, 2, "which one does with --keep")
	resume("--yes", "--since=1h", "--by=700")
	shown("\nkv ", "natsid resume")
	first := segment.Tag{Name: "new", Step: 1, MaxID: 1}
	if _, err := store.Create(t.Context(), first, false); err == nil {
		t.Error("a tag is made on first use before the tags were confirmed")
	}
	resume("--tags-complete", "--dry-run")
	if _, err := store.Create(t.Context(), first, false); err == nil {
		t.Error("a dry run confirmed the tags")
	}
	resume("--tags-complete")
	shown("  in order\n")
	for _, flag := range []string{"--by=5", "--since=1h"} {
		natsid(t, "resume", "--yes", flag, nats).want(t, 2, "not stopped, so nothing is raised")
	}
	natsid(t, "resume", "--restored", "--since=1h", "--dry-run", nats).want(t, 2, "no load is on record")
	natsid(t, "resume", "--restored", "--since=1h", "--by=5", "--dry-run", nats).want(t, 0, "")
	natsid(t, "resume", "--table-is-whole", "--mysql=u:p@/db", "--restored", "--yes", nats).want(t, 2, "guard a table")
	if _, err := store.Create(t.Context(), first, false); err != nil {
		t.Errorf("first use once the tags were confirmed: %v", err)
	}
	tag, err := store.Look(t.Context(), "order")
	if err != nil || tag.MaxID < 5700 {
		t.Errorf("the tag is %+v, %v, want it above 5700", tag, err)
	}
	registry := regexp.MustCompile(`\nkv +(\w+)`).FindStringSubmatch(natsid(t, "status", nats).out)[1]
	resume("--yes", "--tags-complete", "--keep="+registry, "--marks="+write(`[{"tag":"order","max_id":"90000"}]`))
	if tag, err = store.Look(t.Context(), "order"); err != nil || tag.MaxID != 90_000 {
		t.Errorf("the tag is %+v, %v, want it at the mark of the registry that is cut off", tag, err)
	}
	form := regexp.MustCompile(fmt.Sprintf(
		`^\[{"tag":"new",.*"max_id":"1",.*{"tag":"order",.*"max_id":"%d",.*\]\n$`, tag.MaxID))
	if got := natsid(t, "tag", "list", "--json", nats); got.code != 0 || !form.MatchString(got.out) {
		t.Errorf("the marks are listed as %+v, want %s", got, form)
	}
	resume("--restored", "--since=1h", "--by=5", "--yes", "--tags-complete",
		"--at-least="+write(natsid(t, "tag", "list", "--json", nats).out))
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
		natsid(t, "tag", "create", tag, "--step=10", "--start=500", "--desc="+text, nats).want(t, 0)
		natsid(t, "get", "segment", tag, nats).want(t, 0)
	}
	natsid(t, "tag", "delete", "gone", nats).want(t, 0)
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
	kv, err := jetStream(t, s.url).KeyValue(t.Context(), "id_segments")
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
	for _, c := range []struct{ args, kind, want string }{
		{"store move", "mysql", "To write: 0 tags; in order: 2."},
		{"store move --yes", "kv", "id_segments: of kind kv"},
	} {
		if got := natsid(t, append(strings.Fields(c.args), dsn, nats)...); !strings.Contains(got.out, c.want) {
			t.Errorf("%s: %+v, want %q", c.args, got, c.want)
		}
		if got := answered(t, "status", "--json", nats); !strings.Contains(got.out, `"kind":"`+c.kind) {
			t.Errorf("after %s: %s, want kind %s", c.args, got.out, c.kind)
		}
	}
}
