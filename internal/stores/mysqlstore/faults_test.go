package mysqlstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
)

func TestAConnectionCutAtAnyByteRepeatsNothing(t *testing.T) {
	srv := mysqltest.Start(t)
	marks := marksOf(t)
	sure := beside(open(t, srv.DSN()), marks)
	create(t, sure, "order", 10, 1)
	link := mysqltest.Proxy(t, srv.Addr())
	dsn := strings.Replace(srv.DSN(), srv.Addr(), link.Addr(), 1)
	// A table on a fresh connection, whose bytes count from its handshake on.
	fresh := func() (*mysqlstore.Table, error) { return mysqlstore.Login{DSN: dsn}.Open(t.Context()) }

	table, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	ranges := []segment.Range{load(t, beside(table, marks))}
	up, down := link.Bytes()
	table.Close()

	cut := 0
	try := func(fromClient, fromServer int) {
		link.CutAfter(fromClient, fromServer)
		table, err := fresh()
		if err != nil {
			cut++
		} else {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			r, err := beside(table, marks).Load(ctx, "order", 0, 0)
			cancel()
			if err == nil {
				ranges = append(ranges, r.Range)
			} else {
				cut++
			}
			table.Close()
		}
		link.Pass()
		ranges = append(ranges, load(t, sure))
	}
	for b := range int(up) {
		try(b, -1)
	}
	for b := range int(down) {
		try(-1, b)
	}
	t.Logf("cut %d times, at each of %d bytes to the server and %d from it", cut, up, down)
	if cut < int(up+down)/2 {
		t.Errorf("only %d of %d tries were cut", cut, up+down)
	}
	wantNoRepeat(t, ranges)
}
