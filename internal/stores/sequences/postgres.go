package sequences

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, ErrMalformed // pgx may repeat the URL
	}
	cfg.ConnectTimeout = connectWithin
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var standby bool
	// Without row_security, a policy that hides rows is an error.
	_, err = conn.Exec(ctx, "SET row_security = off")
	if err := errors.Join(err, conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby)); err != nil {
		return nil, err
	}
	if standby {
		return nil, errors.New("it is a standby, whose sequences may lag: name the primary")
	}
	rows, err := conn.Query(ctx, catalog, schema)
	if err != nil {
		return nil, err
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Sequence, err error) {
		err = row.Scan(&s.schema, &s.name, &s.table, &s.column, &s.Increment, &s.max, &s.lowest, &s.cycles, &s.readable,
			&s.columnReadable)
		return s, err
	})
	for i := range all {
		if err := all[i].read(ctx, conn); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].Name, err)
		}
	}
	return all, err
}

// read reads how far a sequence is. It refuses one that the role may not read, which would look unused, and one that no
// tag can continue.
func (s *Sequence) read(ctx context.Context, conn *pgx.Conn) error {
	s.Name = s.schema + "." + s.name
	full, role := quoted(s.schema, s.name), quoted(conn.Config().User)
	switch {
	case !s.readable:
		s.Refuse("%[1]s may not read it: GRANT USAGE ON SCHEMA %[2]s TO %[1]s; GRANT SELECT ON SEQUENCE %[3]s TO %[1]s",
			role, quoted(s.schema), full)
	case s.Increment < 0:
		s.Refuse("it descends, and IDs rise")
	case s.cycles:
		s.Refuse("it cycles, so its numbers repeat: ALTER SEQUENCE %s NO CYCLE", full)
	}
	if s.State == Refused {
		return nil
	}
	var last int64
	var called bool
	if err := conn.QueryRow(ctx, "SELECT last_value, is_called FROM "+full).Scan(&last, &called); err != nil {
		return err
	}
	*s.lowest = max(*s.lowest, last)
	if s.used = last; !called {
		s.used-- // last is the next; one that is below all numbers becomes the highest, which is refused
	}
	if !s.columnReadable {
		if s.table != "" {
			s.note("%s.%s was not read: it may hold numbers that were not given out", s.table, s.column)
		}
		return nil
	}
	var highest *int64
	query := fmt.Sprintf("SELECT max(%s) FROM %s", quoted(s.column), quoted(s.schema, s.table))
	err := conn.QueryRow(ctx, query).Scan(&highest)
	if highest != nil {
		s.holds(*highest)
	}
	return err
}
