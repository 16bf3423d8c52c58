package subjects

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"math"
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

// A Run is consecutive IDs, from First to Last, both included. A valid run has 0 <= First <= Last.
type Run struct {
	First, Last ID
}

// Len returns the number of IDs in the run. It overflows for 0 to 2^63-1 only.
func (r Run) Len() int64 { return int64(r.Last - r.First + 1) }

// String returns the run as on the wire: "1001-1100", or "1001" for one ID.
func (r Run) String() string { return string(AppendRun(nil, r.First, r.Last)) }

// Runs are the IDs of one call, as disjoint runs.
type Runs []Run

// All returns the IDs one after the other, in the order of the runs.
func (r Runs) All() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for _, run := range r {
			for id := run.First; ; id++ {
				if !yield(id) {
					return
				}
				if id == run.Last { // before id can overflow
					break
				}
			}
		}
	}
}

// Len returns the number of IDs.
func (r Runs) Len() int {
	var n int64
	for _, run := range r {
		n += run.Len()
	}
	return int(n)
}

// AppendRun appends the run from first to last to dst, which holds the runs of a reply so far: one run a line, without
// a newline after the last.
func AppendRun(dst []byte, first, last ID) []byte {
	if len(dst) > 0 {
		dst = append(dst, '\n')
	}
	dst = strconv.AppendInt(dst, int64(first), 10)
	if last == first {
		return dst
	}
	return strconv.AppendInt(append(dst, '-'), int64(last), 10)
}

// ParseRuns reads the body of a reply. It rejects every body that [AppendRun] does not write, such as an empty body,
// a sign, a leading zero, a run that ends before it begins, or a newline at the end: so a client notices a reply that
// is not natsid's.
func ParseRuns(body []byte) (Runs, error) {
	runs := make(Runs, 0, bytes.Count(body, []byte{'\n'})+1)
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		run, ok := parseRun(line)
		if !ok {
			return nil, fmt.Errorf("subjects: line %d of the reply is %+.24q, not a run of IDs", len(runs)+1, line)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func parseRun(line []byte) (Run, bool) {
	head, tail, isRange := bytes.Cut(line, []byte{'-'})
	first, ok := parseID(head)
	if !ok || !isRange {
		return Run{first, first}, ok
	}
	last, ok := parseID(tail)
	return Run{first, last}, ok && first < last
}

// parseID reads the one spelling of an ID, or of 0.
func parseID(text []byte) (ID, bool) {
	n, ok := parseDecimal(text, math.MaxInt64)
	return ID(n), ok
}

// parseDecimal reads digits as a decimal 0..limit in canonical form.
func parseDecimal(digits []byte, limit int64) (int64, bool) {
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || n > limit {
		return 0, false
	}
	return n, true
}
