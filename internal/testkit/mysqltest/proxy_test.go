package mysqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

// through returns connections to the server that go over the link, one at a
// time.
func through(t *testing.T, s *mysqltest.Server, l *mysqltest.Link) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Addr, cfg.Logger = l.Addr(), &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// What the link is for: an UPDATE cut at every byte is applied or not, and the
// client knows it was applied only when it has the whole answer.
func TestAnUpdateCutAtEveryByte(t *testing.T) {
	t.Parallel()
	s := start(t)
	l := mysqltest.Proxy(t, s.Addr())
	db := through(t, s, l)
	const update = "UPDATE counter SET n = n + 1"
	exec1(t, db, "DO 1") // shakes hands
	l.Pass()
	exec1(t, db, update)
	sent, got := l.Bytes()

	var applied, acked int
	try := func(cut string, fromClient, fromServer int) {
		exec1(t, db, "DO 1") // also on a new connection: the last was cut
		before := count(t, s)
		l.CutOpenAfter(fromClient, fromServer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.ExecContext(ctx, update)
		_ = conn.Close()
		whole := fromClient < 0 || fromClient >= int(sent)
		if whole { // the server has it all: it applies it in its own time
			eventually(t, func() bool { return count(t, s) == before+1 })
			applied++
		} else if count(t, s) != before {
			t.Errorf("%s: applied, though the server lacks a part of it", cut)
		}
		if err == nil {
			acked++
		}
		if err == nil && fromServer < int(got) && fromServer >= 0 {
			t.Errorf("%s: acknowledged", cut)
		}
		l.Pass()
	}
	for n := 1; n <= int(sent); n++ {
		try(fmt.Sprintf("after %d of %d from the client", n, sent), n, -1)
	}
	for n := 1; n <= int(got); n++ {
		try(fmt.Sprintf("after %d of %d from the server", n, got), -1, n)
	}
	t.Logf("%d cuts: %d applied, %d acknowledged", sent+got, applied, acked)
	if applied <= acked {
		t.Error("no update was applied without its client knowing")
	}
}

func count(t *testing.T, s *mysqltest.Server) (n int) {
	t.Helper()
	if err := s.DB().QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true within a minute")
		}
	}
}
