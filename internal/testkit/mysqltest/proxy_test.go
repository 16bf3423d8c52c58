package mysqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

// talk starts a server that answers each byte with two, and returns its
// address and, per connection that ended, what came in.
func talk(t *testing.T) (addr string, heard <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	all := make(chan string, 1000)
	serve := func(conn net.Conn) {
		defer conn.Close()
		var text strings.Builder
		for b := make([]byte, 1); ; {
			if _, err := conn.Read(b); err != nil {
				all <- text.String()
				return
			}
			text.Write(b)
			_, _ = conn.Write([]byte{b[0], b[0]})
		}
	}
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().String(), all
}

func dial(t *testing.T, l *mysqltest.Link) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// ask sends a text and returns what comes back, up to n bytes.
func ask(conn net.Conn, text string, n int) string {
	_, _ = io.WriteString(conn, text)
	buf := make([]byte, n)
	n, _ = io.ReadFull(conn, buf)
	return string(buf[:n])
}

func TestALinkPassesEverything(t *testing.T) {
	t.Parallel()
	addr, heard := talk(t)
	l := mysqltest.Proxy(t, addr)
	conn := dial(t, l)
	if got := ask(conn, "abc", 6); got != "aabbcc" {
		t.Errorf("got %q", got)
	}
	if c, s := l.Bytes(); c != 3 || s != 6 {
		t.Errorf("counted %d and %d, want 3 and 6", c, s)
	}
	_ = conn.Close()
	if got := <-heard; got != "abc" {
		t.Errorf("the server heard %q", got)
	}
	l.Pass()
	if c, s := l.Bytes(); c != 0 || s != 0 {
		t.Errorf("Pass left the counters at %d and %d", c, s)
	}
}

func TestALinkCutsAtTheByte(t *testing.T) {
	t.Parallel()
	addr, heard := talk(t)
	l := mysqltest.Proxy(t, addr)
	for n := 1; n <= 4; n++ {
		l.CutAfter(n, -1)
		conn := dial(t, l)
		if got := ask(conn, "abcdef", 12); len(got) > 2*n {
			t.Errorf("cut after %d from the client: the answer is %q", n, got)
		}
		_ = conn.Close()
		if got := <-heard; got != "abcdef"[:n] {
			t.Errorf("cut after %d from the client: the server heard %q", n, got)
		}
		if c, _ := l.Bytes(); c != int64(n) {
			t.Errorf("cut after %d from the client: counted %d", n, c)
		}

		l.CutAfter(-1, n)
		conn = dial(t, l)
		if got := ask(conn, "abcdef", 12); got != "aabbccddeeff"[:n] {
			t.Errorf("cut after %d from the server: the answer is %q", n, got)
		}
		_ = conn.Close()
		<-heard
	}
	l.CutAfter(0, -1)
	if got := ask(dial(t, l), "a", 1); got != "" {
		t.Errorf("cut at once: the answer is %q", got)
	}
	l.Pass()
	if got := ask(dial(t, l), "a", 2); got != "aa" {
		t.Errorf("after Pass: the answer is %q", got)
	}
}

func TestOpenConnectionsHaveTheirOwnCut(t *testing.T) {
	t.Parallel()
	addr, _ := talk(t)
	l := mysqltest.Proxy(t, addr)
	conn := dial(t, l)
	ask(conn, "abc", 6)
	l.CutAfter(1, 1)
	if got := ask(conn, "d", 2); got != "dd" {
		t.Errorf("CutAfter cut an open connection: %q", got)
	}
	l.Pass()
	l.CutOpenAfter(-1, 3)
	if got := ask(conn, "ef", 4); got != "eef" {
		t.Errorf("the open connection got %q, want 3 bytes", got)
	}
	if got := ask(dial(t, l), "g", 2); got != "gg" {
		t.Errorf("CutOpenAfter cut a later connection: %q", got)
	}
}

func TestALinkRefusesAndDrops(t *testing.T) {
	t.Parallel()
	addr, _ := talk(t)
	l := mysqltest.Proxy(t, addr)
	conn := dial(t, l)
	ask(conn, "a", 2)
	l.Refuse(true)
	if got := ask(dial(t, l), "b", 1); got != "" {
		t.Errorf("a refused connection got %q", got)
	}
	if got := ask(conn, "c", 2); got != "cc" {
		t.Errorf("Refuse touched an open connection: %q", got)
	}
	l.Drop()
	if got := ask(conn, "d", 1); got != "" {
		t.Errorf("a dropped connection got %q", got)
	}
	l.Refuse(false)
	if got := ask(dial(t, l), "e", 2); got != "ee" {
		t.Errorf("after Refuse(false): %q", got)
	}
}

func TestALinkSurvivesItsTarget(t *testing.T) {
	t.Parallel()
	s := start(t)
	l := mysqltest.Proxy(t, s.Addr())
	db := through(t, s, l)
	exec1(t, db, "DO 1")
	s.Kill()
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	s.Run()
	exec1(t, db, "DO 1")
}

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
