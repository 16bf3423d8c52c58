package sequences

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// connectWithin bounds how long a database may take to let us in.
const connectWithin = 10 * time.Second

// ErrMalformed is returned for a URL that cannot be read. Errors of this package never repeat a URL, which may have a
// password.
var ErrMalformed = errors.New("want postgres://user:password@host:port/database or " +
	"mysql://user:password@host:port/database, with other than letters and digits in a password as %40")

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
// Next is above all numbers that a sequence has given out by then. The only row of a sequence has last_value and
// is_called, which one SELECT reads together. A session that takes numbers in advance (CACHE) raises last_value by all
// of them before it gives out the first, and a rollback does not lower it. A crash raises it: PostgreSQL logs
// 32 numbers ahead. Two things could lower it, and both are looked for: a standby lags, so it is refused; and setval,
// or rows that came with numbers of their own, show in the column's maximum.
func Postgres(ctx context.Context, url, schema string) ([]Sequence, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, ErrMalformed
	}
	cfg.ConnectTimeout = connectWithin
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var standby bool
	if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return nil, err
	}
	if standby {
		return nil, errors.New("it is a standby, whose sequences may lag: name the primary")
	}
	// A policy that hides rows becomes an error.
	if _, err := conn.Exec(ctx, "SET row_security = off"); err != nil {
		return nil, err
	}
	return listed(ctx, conn, schema)
}

// A listing is a sequence as the catalog has it.
type listing struct {
	Sequence
	cycles, readable, columnReadable bool
}

func listed(ctx context.Context, conn *pgx.Conn, schema string) (all []Sequence, err error) {
	rows, err := conn.Query(ctx, catalog, schema)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l listing, err error) {
		err = row.Scan(&l.Schema, &l.Name, &l.Table, &l.Column, &l.Increment, &l.Max, &l.Lowest, &l.cycles,
			&l.readable, &l.columnReadable)
		return l, err
	})
	for _, l := range found {
		if l.check(conn.Config().User); l.Refusal == "" {
			if err := l.read(ctx, conn); err != nil {
				return nil, fmt.Errorf("read %s: %w", l, err)
			}
		}
		all = append(all, l.Sequence)
	}
	return all, err
}

// check refuses a sequence that the role may not read, which would look unused, and one that no tag can continue.
func (l *listing) check(role string) {
	switch {
	case !l.readable:
		l.refuse("%[1]s may not read it: GRANT USAGE ON SCHEMA %[2]s TO %[1]s; GRANT SELECT ON SEQUENCE %[2]s.%[3]s TO %[1]s",
			quoted(role), quoted(l.Schema), quoted(l.Name))
	case l.Increment < 0:
		l.refuse("it descends, and IDs rise")
	case l.cycles:
		l.refuse("it cycles, so its numbers repeat: ALTER SEQUENCE %s.%s NO CYCLE", quoted(l.Schema), quoted(l.Name))
	}
}

// read reads how far a sequence is.
func (l *listing) read(ctx context.Context, conn *pgx.Conn) error {
	var last int64
	var called bool
	from := pgx.Identifier{l.Schema, l.Name}.Sanitize()
	if err := conn.QueryRow(ctx, "SELECT last_value, is_called FROM "+from).Scan(&last, &called); err != nil {
		return err
	}
	*l.Lowest = max(*l.Lowest, last)
	if l.Next = last; called {
		l.Next = after(last)
	}
	switch {
	case l.columnReadable:
		var highest *int64
		query := fmt.Sprintf("SELECT max(%s) FROM %s", quoted(l.Column), pgx.Identifier{l.Schema, l.Table}.Sanitize())
		if err := conn.QueryRow(ctx, query).Scan(&highest); err != nil {
			return err
		}
		if highest != nil {
			l.above(*highest)
		}
	case l.Table != "":
		l.note("%s.%s was not read: it may hold numbers that were not given out", l.Table, l.Column)
	}
	return nil
}
