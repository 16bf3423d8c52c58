package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"regexp"
	"strings"
)

// createTable makes the table as Leaf's own script leaf_alloc.sql does.
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

// forms are the columns that natsid uses, with the types that each may have. A table may call the description desc.
var forms = []struct {
	name, want string
	isOptional bool
	types      *regexp.Regexp
}{
	{"biz_tag", "varchar(128)", false, texts},
	{"max_id", "bigint or int", false, regexp.MustCompile(`^(big)?int( unsigned)?$`)}, // as in limits
	{"step", "int", false, regexp.MustCompile(`int( unsigned)?$`)},
	{"update_time", "timestamp or datetime", false, regexp.MustCompile(`^(timestamp|datetime)\b`)},
	{"description", "varchar(256)", true, texts},
	{"desc", "varchar(256)", true, texts},
}

var texts = regexp.MustCompile(`^(var)?(char|binary)$|text$`)

// openSchema creates the table if there is none, and returns its schema, or an error for a column that does not fit.
func openSchema(ctx context.Context, db *sql.DB, database string) (schema, error) {
	all, err := columns(ctx, db, database)
	if err == nil && len(all) == 0 { // another worker may create the table first
		if _, err = db.ExecContext(ctx, createTable); err == nil || isNumber(err, tableExists) {
			all, err = columns(ctx, db, database)
		}
	}
	if err != nil {
		return schema{}, fmt.Errorf("mysqlstore: %w", err)
	}
	s := schema{limit: limits[all["max_id"].kind]}
	for _, f := range forms {
		c, is := all[f.name]
		switch {
		case !is && !f.isOptional:
			return s, fmt.Errorf("%w: table leaf_alloc has no column %s: add it, as %s", ErrRefused, f.name, f.want)
		case is && !f.types.MatchString(c.kind):
			return s, fmt.Errorf("%w: column %s of leaf_alloc is %s: make it %s", ErrRefused, f.name, c.kind, f.want)
		case is && f.isOptional && s.description == "":
			s.description = "`" + f.name + "`"
		}
	}
	inKey := 0 // columns of the primary key: with a second one a tag could have two rows
	for _, c := range all {
		if c.key == "PRI" {
			inKey++
		}
	}
	if key := all["biz_tag"].key; key != "UNI" && (key != "PRI" || inKey > 1) {
		return s, fmt.Errorf("%w: two rows of leaf_alloc can have the same biz_tag: make it the primary key, alone",
			ErrRefused)
	}
	return s, nil
}

// A column is a column's type, without display width, and its index: PRI (primary), UNI (unique), MUL or "".
type column struct{ kind, key string }

// columns returns leaf_alloc's columns, by name; none if there is no such table.
func columns(ctx context.Context, db *sql.DB, database string) (map[string]column, error) {
	rows, err := db.QueryContext(ctx, "SELECT column_name, column_type, column_key FROM information_schema.columns "+
		"WHERE table_schema = ? AND table_name = 'leaf_alloc'", database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := make(map[string]column)
	for rows.Next() {
		var name, kind, key string
		if err := rows.Scan(&name, &kind, &key); err != nil {
			return nil, err
		}
		word, rest, _ := strings.Cut(strings.ToLower(kind), "(")
		if strings.Contains(rest, "unsigned") {
			word += " unsigned"
		}
		all[strings.ToLower(name)] = column{word, key}
	}
	return all, rows.Err()
}

// selectRow returns a query for rows that meet a condition. A row with an invalid value must not make the query fail.
// A value that int64 cannot hold becomes the highest int64, and NULL becomes 0, with which natsid loads no ID.
func (s schema) selectRow(condition string) string {
	description := cmp.Or(s.description, "''")
	return "SELECT biz_tag, COALESCE(LEAST(max_id, 9223372036854775807), 0), COALESCE(step, 0), " +
		"COALESCE(" + description + ", ''), COALESCE(update_time, CURRENT_TIMESTAMP) FROM leaf_alloc " + condition
}
