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
	loginUp, loginDown := link.Bytes()
	link.Pass()
	ranges := []segment.Range{load(t, beside(table, marks))}
	up, down := link.Bytes()
	table.Close()

	const never = -1
	cut, tries := 0, 0
	// try ends a fresh connection after so many bytes of its login, or of its load.
	try := func(loginUp, loginDown, up, down int) {
		tries++
		link.CutAfter(loginUp, loginDown)
		table, err := fresh()
		if err != nil {
			cut++
		} else {
			link.CutOpenAfter(up, down)
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
		try(never, never, b, never)
	}
	for b := range int(down) {
		try(never, never, never, b)
	}
	for b := 0; b < int(loginUp); b += 16 { // nothing is loaded yet
		try(b, never, never, never)
	}
	for b := 0; b < int(loginDown); b += 16 {
		try(never, b, never, never)
	}
	t.Logf("cut %d of %d times, at each of %d bytes of a load to the server and %d from it", cut, tries, up, down)
	if cut < tries/2 {
		t.Errorf("only %d of %d tries were cut", cut, tries)
	}
	wantNoRepeat(t, ranges)
}
