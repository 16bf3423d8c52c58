package subjects

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
)

// An ID is what natsid issues: 1 to 2^63-1. The zero value is no ID. In requests about tags the type also counts IDs.
//
// It prints as a decimal. JSON carries it as a string, because JavaScript rounds numbers above 2^53, and SQL as a
// BIGINT. A column that may be NULL is a sql.Null[ID]. All methods that read an ID accept the same texts: a decimal of
// 0 to 2^63-1 without sign, space or leading zero. So an ID has one spelling only.
type ID int64

// ParseID returns the ID that a text spells.
func ParseID(text string) (ID, error) {
	id, ok := parseID([]byte(text))
	if !ok {
		return 0, fmt.Errorf("subjects: %.40q is not an ID: want a decimal of 0 to 2^63-1 "+
			"without sign, space or leading zero", text)
	}
	return id, nil
}

// String returns the ID as a decimal.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText returns the ID as a decimal, also for keys of JSON objects. The error is nil.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(id), 10), nil }

// UnmarshalText reads a text that [ParseID] accepts. After an error of any method that reads an ID, the ID is zero.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// MarshalJSON returns the ID as a string. The error is nil.
func (id ID) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, id.String()), nil
}

// UnmarshalJSON reads a string, or a number, which JavaScript may have rounded. null changes nothing, as package
// encoding/json demands.
func (id *ID) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if n := len(data); n >= 2 && data[0] == '"' && data[n-1] == '"' {
		data = data[1 : n-1]
	}
	return id.UnmarshalText(data)
}

// Value returns the ID as an int64. The error is nil.
func (id ID) Value() (driver.Value, error) { return int64(id), nil }

// Scan reads a column of type BIGINT or of a text type. NULL is an error.
func (id *ID) Scan(column any) error {
	switch v := column.(type) {
	case int64:
		return id.UnmarshalText(strconv.AppendInt(nil, v, 10))
	case []byte:
		return id.UnmarshalText(v)
	case string:
		return id.UnmarshalText([]byte(v))
	case nil:
		*id = 0
		return errors.New("subjects: NULL is not an ID: scan a column that may be NULL into a sql.Null[subjects.ID]")
	}
	*id = 0
	return fmt.Errorf("subjects: a column of type %T is not an ID: keep IDs as BIGINT", column)
}
