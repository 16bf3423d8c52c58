// Package mysqlstore keeps tags in Leaf's own table, leaf_alloc, in MySQL or
// MariaDB. It is the only package that knows the driver.
package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/segment"
)

// ErrRefused is returned by Open when trying again cannot help: the DSN is
// malformed, or the server refuses its user or database.
var ErrRefused = errors.New("mysqlstore: refused")

// maxConns bounds the statements that one process has under way in one
// database: 36 loads, and some for polls and administrators.
const maxConns = 40

// A Table is a [segment.Table] on leaf_alloc. It is safe for concurrent use.
type Table struct {
	db          *sql.DB
	description string // quoted name of the fourth column, "" if there is none
	limit       int64  // highest value of the max_id column
}

var _ segment.Table = (*Table)(nil)

// The table as Leaf makes it (scripts/leaf_alloc.sql).
const createTable = `CREATE TABLE leaf_alloc (
  biz_tag varchar(128) NOT NULL DEFAULT '',
  max_id bigint(20) NOT NULL DEFAULT '1',
  step int(11) NOT NULL,
  description varchar(256) DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB`

// Open connects to the database that dsn names (user:password@tcp(host:port)/db)
// and makes the table if there is none. One that is there is used as it is,
// whether its fourth column is called description or desc. The error wraps
// [ErrRefused] if trying again cannot help; no error tells the password.
func Open(ctx context.Context, dsn string) (*Table, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil || cfg.DBName == "" {
		// The parser's own words may quote a password.
		return nil, fmt.Errorf("%w: the DSN must be user:password@tcp(host:port)/database", ErrRefused)
	}
	connector, err := mysql.NewConnector(session(cfg))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	t := &Table{db: sql.OpenDB(connector)}
	t.db.SetMaxOpenConns(maxConns)
	t.db.SetMaxIdleConns(4)
	t.db.SetConnMaxIdleTime(time.Minute)
	if err := t.prepare(ctx, cfg.DBName); err != nil {
		t.db.Close()
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && isRefusal(e.Number) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return nil, err
	}
	return t, nil
}

// Close closes the connections.
func (t *Table) Close() error { return t.db.Close() }

// session sets what every connection needs: a load that was given up must not
// live on in the server waiting for a lock, and a value that does not fit must
// be an error.
func session(cfg *mysql.Config) *mysql.Config {
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.ClientFoundRows = false  // an UPDATE that changed nothing must say so
	cfg.InterpolateParams = true // one exchange a statement
	cfg.Logger = &mysql.NopLogger{}
	// A server that has become read-only is no longer the primary: leave it, the
	// address may lead to another by now.
	cfg.RejectReadOnly = true
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	if cfg.Params == nil {
		cfg.Params = make(map[string]string)
	}
	for name, value := range map[string]string{
		"autocommit":               "1",
		"sql_mode":                 "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
		"innodb_lock_wait_timeout": "1",
		"lock_wait_timeout":        "1",
		"time_zone":                "'+00:00'",
	} {
		cfg.Params[name] = value
	}
	return cfg
}

// Redact returns a DSN without its password, for people.
func Redact(dsn string) string {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "a malformed DSN"
	}
	return fmt.Sprintf("%s@%s(%s)/%s", cfg.User, cfg.Net, cfg.Addr, cfg.DBName)
}

// isRefusal reports whether a server's error stays when tried again: access
// denied to the server or the database, or no such database.
func isRefusal(number uint16) bool {
	return number == 1044 || number == 1045 || number == 1049 || number == 1698
}

// limits are the highest values of the types that a max_id column may have.
var limits = map[string]int64{
	"bigint": math.MaxInt64, "bigint unsigned": math.MaxInt64,
	"int": math.MaxInt32, "int unsigned": math.MaxUint32,
}

// prepare makes the table if need be, and finds out what it is like.
func (t *Table) prepare(ctx context.Context, database string) error {
	types, err := t.columns(ctx, database)
	if err == nil && len(types) == 0 {
		if _, err = t.db.ExecContext(ctx, createTable); err == nil || isNumber(err, 1050) { // or another was faster
			types, err = t.columns(ctx, database)
		}
	}
	if err != nil {
		return fmt.Errorf("mysqlstore: %w", err)
	}
	for _, name := range []string{"biz_tag", "max_id", "step", "update_time"} {
		if types[name] == "" {
			return fmt.Errorf("%w: table leaf_alloc has no column %s", ErrRefused, name)
		}
	}
	for _, name := range []string{"description", "desc"} {
		if types[name] != "" {
			t.description = "`" + name + "`"
			break
		}
	}
	if t.limit = limits[types["max_id"]]; t.limit == 0 {
		return fmt.Errorf("%w: column max_id of leaf_alloc is %s, want bigint or int", ErrRefused, types["max_id"])
	}
	return nil
}

// columns returns the types of leaf_alloc's columns, by name, without display
// widths; none if there is no such table.
func (t *Table) columns(ctx context.Context, database string) (map[string]string, error) {
	rows, err := t.db.QueryContext(ctx, "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = ? AND table_name = 'leaf_alloc'", database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types := make(map[string]string)
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return nil, err
		}
		word, rest, _ := strings.Cut(strings.ToLower(kind), "(")
		if strings.Contains(rest, "unsigned") {
			word += " unsigned"
		}
		types[strings.ToLower(name)] = word
	}
	return types, rows.Err()
}

// selectRow is a query for rows, to be completed by a condition.
func (t *Table) selectRow(condition string) string {
	description := t.description
	if description == "" {
		description = "''"
	}
	// One odd row must not hide the others: what int64 cannot hold is its end,
	// what is missing is 0 and cannot be served.
	return "SELECT biz_tag, COALESCE(LEAST(max_id, 9223372036854775807), 0), COALESCE(step, 0), COALESCE(" + description +
		", ''), COALESCE(update_time, CURRENT_TIMESTAMP) FROM leaf_alloc " + condition
}

func scan(scan func(...any) error) (r segment.Row, err error) {
	err = scan(&r.Name, &r.MaxID, &r.Step, &r.Description, &r.Updated)
	return r, err
}

// Row implements [segment.Table].
func (t *Table) Row(ctx context.Context, tag string) (segment.Row, error) {
	row, err := scan(t.db.QueryRowContext(ctx, t.selectRow("WHERE biz_tag = ?"), tag).Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return segment.Row{}, segment.ErrUnknownTag
	case err != nil:
		return segment.Row{}, wrap(tag, err)
	case row.Name != tag:
		return segment.Row{}, &segment.NameError{Asked: tag, Found: row.Name}
	}
	return row, nil
}

// Advance implements [segment.Table].
func (t *Table) Advance(ctx context.Context, tag string, start, end int64) (bool, error) {
	result, err := t.db.ExecContext(ctx, "UPDATE leaf_alloc SET max_id = ? WHERE biz_tag = ? AND max_id <= ?", end, tag, start)
	if err != nil {
		if surelyNot(err) {
			err = fmt.Errorf("%w: %w", segment.ErrNotApplied, err)
		}
		return false, wrap(tag, err)
	}
	n, err := result.RowsAffected()
	return n == 1, wrap(tag, err)
}

// refusals are the numbers of errors with which a server refuses a statement
// that it has not carried out, or has rolled back.
var refusals = map[uint16]bool{
	1040: true, // too many connections
	1142: true, // no privilege
	1205: true, // lock wait timeout
	1213: true, // deadlock
	1264: true, // out of range
	1290: true, // --read-only
	1792: true, // read-only transaction
	1836: true, // read-only mode
}

// surelyNot reports whether a statement that failed has certainly changed
// nothing: no connection could be made to send it, or the server said so.
func surelyNot(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return refusals[e.Number]
	}
	if errors.Is(err, driver.ErrBadConn) { // nothing was sent, or a read-only server refused
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// Insert implements [segment.Table].
func (t *Table) Insert(ctx context.Context, tag segment.Tag) error {
	columns, marks, args := "biz_tag, max_id, step", "?, ?, ?", []any{tag.Name, tag.MaxID, tag.Step}
	if t.description != "" {
		columns, marks, args = columns+", "+t.description, marks+", ?", append(args, tag.Description)
	}
	_, err := t.db.ExecContext(ctx, "INSERT INTO leaf_alloc ("+columns+") VALUES ("+marks+")", args...)
	switch {
	case isNumber(err, 1062):
		return segment.ErrExists
	case doesNotFit(err):
		return fmt.Errorf("%w: %w", segment.ErrInvalid, err)
	}
	return wrap(tag.Name, err)
}

// Update implements [segment.Table].
func (t *Table) Update(ctx context.Context, tag string, c segment.Change) error {
	set, args := "max_id = GREATEST(max_id, ?)", []any{c.MaxID}
	if c.Step != 0 {
		set, args = set+", step = ?", append(args, c.Step)
	}
	if c.Description != nil && t.description != "" {
		set, args = set+", "+t.description+" = ?", append(args, *c.Description)
	}
	_, err := t.db.ExecContext(ctx, "UPDATE leaf_alloc SET "+set+" WHERE biz_tag = ?", append(args, tag)...)
	if doesNotFit(err) {
		return fmt.Errorf("%w: %w", segment.ErrInvalid, err)
	}
	return wrap(tag, err)
}

// doesNotFit reports whether a column cannot hold a value: out of range, too
// long, or of characters that its character set has not.
func doesNotFit(err error) bool {
	return isNumber(err, 1264) || isNumber(err, 1406) || isNumber(err, 1366)
}

// Rows implements [segment.Table].
func (t *Table) Rows(ctx context.Context, after string, limit int) ([]segment.Row, error) {
	// By bytes, since the table's collation has another order, and ignores
	// case; of UTF-8, since its character set may be another.
	const name = "CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY)"
	return t.query(ctx, "WHERE "+name+" > ? ORDER BY "+name+" LIMIT ?", after, limit)
}

// AllRows implements [segment.Table].
func (t *Table) AllRows(ctx context.Context) ([]segment.Row, error) { return t.query(ctx, "") }

func (t *Table) query(ctx context.Context, condition string, args ...any) ([]segment.Row, error) {
	rows, err := t.db.QueryContext(ctx, t.selectRow(condition), args...)
	if err != nil {
		return nil, fmt.Errorf("mysqlstore: %w", err)
	}
	defer rows.Close()
	var page []segment.Row
	for rows.Next() {
		r, err := scan(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("mysqlstore: %w", err)
		}
		page = append(page, r)
	}
	return page, rows.Err()
}

// Limit implements [segment.Table].
func (t *Table) Limit() int64 { return t.limit }

func isNumber(err error, number uint16) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == number
}

func wrap(tag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mysqlstore: tag %s: %w", tag, err)
}
