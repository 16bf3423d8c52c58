package sequences

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net"
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
// Next is AUTO_INCREMENT, which is above the numbers of statements that have not committed, and above the column's
// maximum: databases before MySQL 8 and MariaDB 10.2 forget AUTO_INCREMENT when they stop.
func MySQL(ctx context.Context, address, schema string) ([]Sequence, error) {
	cfg, err := config(address)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, ErrMalformed
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(1)
	// MySQL 8 shows statistics that may be a day old. MariaDB has no such variable.
	const unknownVariable = 1193
	_, err = db.ExecContext(ctx, "SET SESSION information_schema_stats_expiry = 0")
	if e, ok := errors.AsType[*mysql.MySQLError](err); err != nil && (!ok || e.Number != unknownVariable) {
		return nil, err
	}
	all, err := counted(ctx, db, schema)
	for i := range all {
		all[i].atLeast(ctx, db)
	}
	return all, errors.Join(err, ctx.Err())
}

// config returns the driver's form of a URL.
func config(address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User == nil {
		return nil, ErrMalformed
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName, cfg.Timeout = u.User.Username(), strings.TrimPrefix(u.Path, "/"), connectWithin
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr, cfg.Logger = "tcp", u.Host, &mysql.NopLogger{}
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	for name, values := range u.Query() {
		if name != "tls" {
			return nil, fmt.Errorf("its option %s is not known; tls=true, skip-verify or preferred is", name)
		}
		cfg.TLSConfig = values[0]
	}
	return cfg, nil
}

func counted(ctx context.Context, db *sql.DB, schema string) (all []Sequence, err error) {
	rows, err := db.QueryContext(ctx, counters, schema)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		s := Sequence{Max: math.MaxInt64}
		var next sql.Null[uint64]
		if err := rows.Scan(&s.Schema, &s.Table, &s.Column, &next, &s.Increment); err != nil {
			return nil, err
		}
		s.Name = s.Table
		switch {
		case !next.Valid:
			s.refuse("its AUTO_INCREMENT is not known: ANALYZE TABLE, and try again")
		case next.V > math.MaxInt64:
			s.refuse("it is at %d, beyond 63 bits", next.V)
		}
		s.Next = int64(next.V)
		all = append(all, s)
	}
	return all, rows.Err()
}

// atLeast raises Next above the column's maximum, and refuses a column that cannot be read.
func (s *Sequence) atLeast(ctx context.Context, db *sql.DB) {
	quote := func(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
	query := fmt.Sprintf("SELECT MAX(%s) FROM %s.%s", quote(s.Column), quote(s.Schema), quote(s.Table))
	var highest sql.NullInt64
	if err := db.QueryRowContext(ctx, query).Scan(&highest); err != nil {
		s.refuse("column %s cannot be read: %v", s.Column, err)
	} else if highest.Valid {
		s.above(highest.Int64)
	}
}
