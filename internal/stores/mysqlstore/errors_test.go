package mysqlstore

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/segment"
)

// Operators read it in /readyz and in natsid status.
func TestThatTheServerTakesNoWritesIsSaidOnceInPlainWords(t *testing.T) {
	db, err := sql.Open("mysql", "u@tcp(127.0.0.1:1)/ids")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for want, got := range map[string]error{
		"MySQL does not answer " +
			"(dial tcp 127.0.0.1:1: connect: connection refused)": (&Table{db: db}).Probe(t.Context()),
		"MySQL is read-only or closed the connection; check where --mysql leads " +
			"(driver: bad connection)": classified(driver.ErrBadConn),
		"MySQL takes no writes (Error 1290: set)": classified(&mysql.MySQLError{Number: 1290, Message: "set"}),
	} {
		if fmt.Sprint(got) != want || !errors.Is(got, segment.ErrNoWrites) || !errors.Is(got, segment.ErrNotApplied) {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
