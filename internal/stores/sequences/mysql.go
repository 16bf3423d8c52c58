package sequences

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// counters lists the columns with AUTO_INCREMENT. BIGINT UNSIGNED goes beyond an ID.
const counters = `SELECT t.TABLE_SCHEMA, t.TABLE_NAME, c.COLUMN_NAME, t.AUTO_INCREMENT, @@auto_increment_increment
FROM information_schema.TABLES t JOIN information_schema.COLUMNS c
  ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.EXTRA LIKE '%auto_increment%'
WHERE t.TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') AND ? IN ('', t.TABLE_SCHEMA)
ORDER BY 1, 2`

// MySQL reads the AUTO_INCREMENT columns of a schema, or with "" of all that are not the system's. A Sequence has the
// name of its table.
//
// A tag begins at AUTO_INCREMENT, which is above the numbers of statements that have not committed, and above the
// column's maximum: databases before MySQL 8 and MariaDB 10.2 forget AUTO_INCREMENT when they stop.
func MySQL(ctx context.Context, address, schema string) (all []Sequence, err error) {
	db, err := open(address)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	// MySQL 8 shows statistics that may be a day old. MariaDB has no such variable.
	const unknownVariable = 1193
	_, err = db.ExecContext(ctx, "SET SESSION information_schema_stats_expiry = 0")
	if e, ok := errors.AsType[*mysql.MySQLError](err); err != nil && (!ok || e.Number != unknownVariable) {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, counters, schema)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		s := Sequence{max: math.MaxInt64}
		var next sql.Null[uint64]
		if err := rows.Scan(&s.schema, &s.table, &s.column, &next, &s.Increment); err != nil {
			return nil, err
		}
		s.Name, s.name = s.schema+"."+s.table, s.table
		if !next.Valid {
			s.Refuse("its AUTO_INCREMENT is not known: natsid tag create TAG --start N, above all its numbers")
		} else if next.V > math.MaxInt64 {
			s.Refuse("it is at %d, beyond 63 bits", next.V)
		}
		s.used = int64(next.V) - 1
		all = append(all, s)
	}
	for i := range all {
		all[i].atLeast(ctx, db)
	}
	return all, errors.Join(rows.Err(), ctx.Err())
}

// open returns a connection to the database of a URL.
func open(address string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, ErrMalformed
	}
	cfg, err := mysql.ParseDSN("tcp(" + u.Host + ")" + cmp.Or(u.Path, "/") + "?" + u.RawQuery)
	if err != nil {
		return nil, ErrMalformed
	}
	cfg.User, cfg.Timeout, cfg.Logger = u.User.Username(), connectWithin, &mysql.NopLogger{}
	cfg.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, ErrMalformed
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1) // a variable of the session holds
	return db, nil
}

// atLeast raises used to the column's maximum, and refuses a column that cannot be read.
func (s *Sequence) atLeast(ctx context.Context, db *sql.DB) {
	quote := func(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
	query := fmt.Sprintf("SELECT MAX(%s) FROM %s.%s", quote(s.column), quote(s.schema), quote(s.table))
	var highest sql.NullInt64
	if err := db.QueryRowContext(ctx, query).Scan(&highest); err != nil {
		s.Refuse("column %s cannot be read: %v", s.column, err)
	} else if highest.Valid {
		s.holds(highest.Int64)
	}
}
