package mysqlstore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/segment"
)

// Error numbers of MySQL and MariaDB.
const (
	tableExists  = 1050
	duplicateKey = 1062
)

// isAccessDenied reports whether retrying is useless: access to the server or the database is denied, or there is no
// such database.
func isAccessDenied(err error) bool {
	return isNumber(err, 1044, 1045, 1049, 1698)
}

// lacking returns a [segment.RightError] with the right that the server reports as lacking, nil for other errors.
func lacking(err error) error {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok || !slices.Contains([]uint16{1142, 1143}, e.Number) { // no right on a table, on a column
		return nil
	}
	right, _, _ := strings.Cut(e.Message, " ")
	return fmt.Errorf("%w: %w", &segment.RightError{Right: right}, err)
}

// unholdable are the error numbers of the server for a row that the table cannot hold.
var unholdable = []uint16{
	1264, 1406, 1366, // out of range, too long, of characters that the column does not have
	1364, 1048, // no value for a column that the table's owner added
	3819, 4025, 1369, // a constraint is violated, in MySQL and in MariaDB, or the check of a view
}

// forbidden returns a [segment.RuleError] for a row that the table cannot hold, nil for other errors.
func forbidden(err error) error {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok || !slices.Contains(unholdable, e.Number) {
		return nil
	}
	return segment.RuleError("table leaf_alloc refuses the row, and nothing was changed: " + e.Message)
}

// refusals are the error numbers that say that the server has not executed a statement, or has rolled it back.
var refusals = []uint16{
	1205, // lock wait timeout
	1213, // deadlock
}

// noWrites are the error numbers with which a server refuses all writes.
var noWrites = []uint16{
	1040, // too many connections
	1290, // --read-only
	1792, // read-only transaction
	1836, // read-only mode
}

// classified translates the error of a writing statement into the errors of [segment.Table]. It returns any other error
// unchanged: the statement may have been executed.
func classified(err error) error {
	kind := segment.ErrNotApplied
	switch denied := lacking(err); {
	case err == nil:
		return nil
	case denied != nil:
		return denied
	case isNumber(err, duplicateKey):
		kind = segment.ErrExists
	case forbidden(err) != nil:
		kind = forbidden(err)
	case isNumber(err, noWrites...) || neverSent(err):
		return noWriteError{err}
	case !isNumber(err, refusals...):
		return err // the statement may have been executed
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// notApplied returns the error of a statement that was rolled back, whether or not it was executed.
func notApplied(tag string, err error) error {
	if err = classified(err); !errors.Is(err, segment.ErrInvalid) && !errors.Is(err, segment.ErrNotApplied) {
		err = fmt.Errorf("%w: %w", segment.ErrNotApplied, err)
	}
	return wrap(tag, err)
}

// A noWriteError says why the server takes no writes. It wraps [segment.ErrNoWrites].
type noWriteError struct{ cause error }

func (e noWriteError) Error() string {
	text := "MySQL takes no writes"
	if errors.Is(e.cause, driver.ErrBadConn) { // the driver also returns it in place of a read-only server's answer
		text = "MySQL is read-only or closed the connection; check where --mysql leads"
	} else if neverSent(e.cause) {
		text = "MySQL does not answer"
	}
	return text + " (" + e.cause.Error() + ")"
}

// Unwrap returns [segment.ErrNoWrites] and the cause.
func (e noWriteError) Unwrap() []error { return []error{segment.ErrNoWrites, e.cause} }

// neverSent reports whether a statement changed nothing because no connection could be made, or because a read-only
// server refused it.
func neverSent(err error) bool {
	if _, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return false
	}
	if errors.Is(err, driver.ErrBadConn) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func isNumber(err error, numbers ...uint16) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, e.Number)
}

func wrap(tag string, err error) error {
	if err == nil {
		return nil
	}
	if denied := lacking(err); denied != nil && !errors.Is(err, segment.ErrNotApplied) {
		err = denied // classified does not see the errors of queries
	}
	return fmt.Errorf("mysqlstore: tag %s: %w", tag, err)
}
