package mysqlstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/segment"
)

func TestAMissingRightIsNamed(t *testing.T) {
	srv := mysqltest.Start(t)
	exec(t, srv.DB(), "CREATE TABLE other (id int)")
	refused := func(rights, table, want string) {
		t.Helper()
		_, err := mysqlstore.Login{DSN: srv.Limited(table, rights)}.Open(t.Context())
		if !errors.Is(err, mysqlstore.ErrRefused) || !strings.Contains(err.Error(), "grant it "+want+" on leaf_alloc") {
			t.Errorf("%s on %s: opened with %v, want ErrRefused that names %s", rights, table, err, want)
		}
	}
	refused("ALL", "other", "CREATE")
	exec(t, srv.DB(), leafTable)
	refused("SELECT, INSERT", "leaf_alloc", "UPDATE")
	refused("UPDATE, INSERT", "leaf_alloc", "SELECT")

	table := open(t, srv.Limited("leaf_alloc", "SELECT, UPDATE"))
	err := table.Insert(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1})
	missing, ok := errors.AsType[*segment.RightError](err)
	if !ok || missing.Right != "INSERT" || !errors.Is(err, segment.ErrNotApplied) {
		t.Errorf("inserted with %v, want a RightError that names INSERT", err)
	}
}
