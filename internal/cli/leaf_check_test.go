package cli_test

import (
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

func TestLeafCheckNamesTheRowsThatNeedADecision(t *testing.T) {
	db := mysqltest.Start(t)
	s := serve(t, "--mysql", db.DSN())
	dsn, nats := "--mysql="+db.DSN(), "--nats="+s.url
	natsid(t, "tag", "create", "order", nats).want(t, 0)
	natsid(t, "get", "segment", "order", nats).want(t, 0)
	natsid(t, "leaf", "check", dsn, nats).want(t, 0, "")
	for _, change := range []string{
		"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('a b', 1, 10), ('low', 1, 0)",
		"UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'order'",
	} {
		if _, err := db.DB().ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	r := natsid(t, "leaf", "check", dsn, nats)
	if r.code != 1 || !strings.Contains(r.err, "3 rows of 3 need a decision") {
		t.Errorf("%+v, want the three rows", r)
	}
	for _, want := range []string{"cannot be requested", "step is below 1", "max_id went back: raise it to 1001"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	if r := natsid(t, "leaf", "check", dsn, "--nats=nats://127.0.0.1:1"); r.code != 1 ||
		!strings.Contains(r.err, "compared with no marks") {
		t.Errorf("without NATS: %+v", r)
	}
}
