package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
)

// The table as Leaf's own script leaf_alloc.sql creates it.
const createTable = `CREATE TABLE leaf_alloc (
  biz_tag varchar(128) NOT NULL DEFAULT '',
  max_id bigint(20) NOT NULL DEFAULT '1',
  step int(11) NOT NULL,
  description varchar(256) DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB`

// A schema is the properties in which tables leaf_alloc differ.
type schema struct {
	description string // quoted name of the description column, "" if there is none
	limit       int64  // highest value of the max_id column
}

// limits are the highest values of the types that a max_id column may have.
var limits = map[string]int64{
	"bigint": math.MaxInt64, "bigint unsigned": math.MaxInt64,
	"int": math.MaxInt32, "int unsigned": math.MaxUint32,
}

// openSchema creates the table if there is none, and returns its schema.
func openSchema(ctx context.Context, db *sql.DB, database string) (schema, error) {
	types, err := columns(ctx, db, database)
	if err == nil && len(types) == 0 {
		types, err = create(ctx, db, database)
	}
	if err != nil {
		return schema{}, fmt.Errorf("mysqlstore: %w", err)
	}
	for _, name := range []string{"biz_tag", "max_id", "step", "update_time"} {
		if types[name] == "" {
			return schema{}, fmt.Errorf("%w: table leaf_alloc has no column %s", ErrRefused, name)
		}
	}
	s := schema{limit: limits[types["max_id"]]}
	if s.limit == 0 {
		return schema{}, fmt.Errorf("%w: column max_id of leaf_alloc is %s, want bigint or int",
			ErrRefused, types["max_id"])
	}
	for _, name := range []string{"description", "desc"} {
		if types[name] != "" {
			s.description = "`" + name + "`"
			break
		}
	}
	return s, nil
}

// create creates the table, unless another worker was faster, and returns its columns.
func create(ctx context.Context, db *sql.DB, database string) (map[string]string, error) {
	if _, err := db.ExecContext(ctx, createTable); err != nil && !isNumber(err, tableExists) {
		return nil, err
	}
	return columns(ctx, db, database)
}

// columns returns the types of leaf_alloc's columns, by name, without display widths; none if there is no such table.
func columns(ctx context.Context, db *sql.DB, database string) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT column_name, column_type FROM information_schema.columns "+
		"WHERE table_schema = ? AND table_name = 'leaf_alloc'", database)
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

// selectRow returns a query for rows, to be completed by a condition. One odd row must not hide the others: a value
// that int64 cannot hold becomes the highest int64, and a missing one becomes 0, which cannot be served.
func (s schema) selectRow(condition string) string {
	description := cmp.Or(s.description, "''")
	return "SELECT biz_tag, COALESCE(LEAST(max_id, 9223372036854775807), 0), COALESCE(step, 0), " +
		"COALESCE(" + description + ", ''), COALESCE(update_time, CURRENT_TIMESTAMP) FROM leaf_alloc " + condition
}
