package sequences

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// connectWithin bounds how long a connection may take.
const connectWithin = 10 * time.Second

// catalog lists sequences, with the column that owns each: by OWNED BY, as serial does, or as an identity. It says
// whether the role may read the sequence, and the column's numbers.
const catalog = `SELECT n.nspname, c.relname, coalesce(t.relname, ''), coalesce(a.attname, ''),
  s.seqincrement, s.seqmax, greatest(s.seqmin + 1, s.seqstart), s.seqcycle,
  has_schema_privilege(n.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'SELECT'),
  coalesce(has_column_privilege(t.oid, a.attnum, 'SELECT')
    AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype), false)
FROM pg_sequence s
JOIN pg_class c ON c.oid = s.seqrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
  AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
LEFT JOIN pg_class t ON t.oid = d.refobjid
LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema' AND $1::text IN ('', n.nspname::text)
ORDER BY 1, 2`

// Postgres reads the sequences of a schema, or with "" of all that are not the system's.
//
// A tag begins above all numbers that a sequence has given out by then. The only row of a sequence has last_value and
// is_called, which one SELECT reads together. A session that takes numbers in advance (CACHE) raises last_value by all
// of them before it gives out the first, and a rollback does not lower it. A crash may raise it: PostgreSQL logs 32
// numbers ahead. A standby lags, so it is refused. What setval took back, and rows that came with numbers of their own,
// show in the column's maximum.
func Postgres(ctx context.Context, url, schema string) (all []Sequence, err error) {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, ErrMalformed // pgx may repeat the URL
	}
	cfg.ConnectTimeout = connectWithin
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// Without row_security, a policy that hides rows is an error.
	standby, err := ask(ctx, conn, "SELECT pg_is_in_recovery()::text FROM set_config('row_security', 'off', false)")
	if err != nil {
		return nil, err
	}
	if standby[0][0] != "false" {
		return nil, errors.New("it is a standby, whose sequences may lag: name the primary")
	}
	rows, err := ask(ctx, conn, catalog, schema)
	for _, row := range rows {
		s := Sequence{Name: row[0] + "." + row[1], schema: row[0], name: row[1], table: row[2], column: row[3]}
		if err := s.read(ctx, conn, cfg.User, row[4:]); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		all = append(all, s)
	}
	return all, err
}

// ask returns the rows of a query, as PostgreSQL writes their values; "" is also what stands for NULL.
func ask(ctx context.Context, conn *pgconn.PgConn, query string, args ...string) (rows [][]string, err error) {
	var values [][]byte
	for _, a := range args {
		values = append(values, []byte(a))
	}
	r := conn.ExecParams(ctx, query, values, nil, nil, nil).Read()
	for _, row := range r.Rows {
		var texts []string
		for _, value := range row {
			texts = append(texts, string(value))
		}
		rows = append(rows, texts)
	}
	return rows, r.Err
}

// numbers reads integers.
func numbers(texts []string, into ...*int64) (err error) {
	for i := range into {
		*into[i], err = strconv.ParseInt(texts[i], 10, 64)
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads how far a sequence is. It refuses one that the role may not read, which would look unused, and one that no
// tag can continue.
func (s *Sequence) read(ctx context.Context, conn *pgconn.PgConn, role string, listed []string) error {
	var lowest int64
	if err := numbers(listed, &s.Increment, &s.max, &lowest); err != nil {
		return err
	}
	full, role := quoted(s.schema, s.name), quoted(role)
	cycles, readable, columnReadable := listed[3] == "t", listed[4] == "t", listed[5] == "t"
	switch {
	case !readable:
		s.Refuse("%[1]s may not read it: GRANT USAGE ON SCHEMA %[2]s TO %[1]s; GRANT SELECT ON SEQUENCE %[3]s TO %[1]s",
			role, quoted(s.schema), full)
	case s.Increment < 0:
		s.Refuse("it descends, and IDs rise")
	case cycles:
		s.Refuse("it cycles, so its numbers repeat: ALTER SEQUENCE %s NO CYCLE", full)
	}
	if s.State == Refused {
		return nil
	}
	rows, err := ask(ctx, conn, "SELECT last_value, is_called::int FROM "+full)
	if err != nil {
		return err
	}
	var last, called int64
	if err := numbers(rows[0], &last, &called); err != nil {
		return err
	}
	lowest, s.used = max(lowest, last), last-1+called // a sum below all numbers becomes the highest, which is refused
	s.lowest = &lowest
	if !columnReadable {
		if s.table != "" {
			s.note("%s.%s was not read: it may hold numbers that were not given out", s.table, s.column)
		}
		return nil
	}
	rows, err = ask(ctx, conn, fmt.Sprintf("SELECT max(%s) FROM %s", quoted(s.column), quoted(s.schema, s.table)))
	if err != nil || rows[0][0] == "" { // without rows
		return err
	}
	var highest int64
	err = numbers(rows[0], &highest)
	s.holds(highest)
	return err
}
