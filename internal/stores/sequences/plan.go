// Package sequences reads how far the sequences of PostgreSQL and the AUTO_INCREMENT columns of MySQL are, and plans
// the tags that continue them. It changes nothing in a database.
package sequences

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/natsid/natsid/subjects"
)

// ErrMalformed is returned for a URL that cannot be read. Errors of this package never repeat a URL, which may have a
// password.
var ErrMalformed = errors.New("the URL of the database is malformed, or has a wrong option: " +
	"want postgres://user:password@host:port/database, or the same with mysql, and a password's @ as %40")

// Refused is the state of a sequence that no tag can continue.
const Refused = "refused"

// A Sequence is a source of numbers in a database, and the tag that is to continue it.
type Sequence struct {
	Name      string           `json:"sequence"`         // schema.name; in MySQL, database.table
	Column    string           `json:"column,omitempty"` // table.column, which the sequence fills
	Increment int64            `json:"increment"`
	Tag       string           `json:"tag"`
	Start     subjects.Decimal `json:"start"` // the tag's first ID; 0 if the sequence is refused
	Step      int64            `json:"step"`
	State     string           `json:"state"`         // absent, created, exists or refused
	Why       string           `json:"why,omitempty"` // it is refused
	// SQL makes the sequence fail instead of giving out a number that is not below Start; "" where none can. It fails
	// itself if the sequence has given out such a number.
	SQL   string   `json:"sql,omitempty"`
	Notes []string `json:"notes,omitempty"`

	schema, name, table, column string
	// used is the highest number that the sequence has given out or the column holds; max the highest that the sequence
	// can give out.
	used, max int64
	lowest    *int64 // the lowest MAXVALUE that the sequence can have; nil in MySQL, which has none
}

// Options are how [Plan] makes tags.
type Options struct {
	Prefix string // of each name, before the table, or before a sequence of no table; "." is the schema and a dot
	Margin int64  // numbers that the sequence may still give out, 0 to [subjects.MaxRaise]
	Step   int64  // of each tag
}

// Plan sets which tag is to continue each sequence, and where it begins. Two sequences of one tag are both refused.
func Plan(all []Sequence, o Options) {
	uses := map[string]int{}
	for i := range all {
		all[i].place(o)
		uses[all[i].Tag]++
	}
	for i := range all {
		if s := &all[i]; uses[s.Tag] > 1 {
			s.Refuse("tag %s would continue %d sequences: %s", s.Tag, uses[s.Tag], s.byHand())
		}
	}
}

func (s *Sequence) place(o Options) {
	if o.Prefix == "." {
		o.Prefix = s.schema + "."
	}
	s.Tag, s.Step = o.Prefix+s.name, o.Step
	if s.table != "" {
		s.Tag, s.Column = o.Prefix+s.table, s.table+"."+s.column
	}
	if s.used > math.MaxInt64-2*subjects.MaxRaise { // so nothing below overflows
		s.Refuse("it is at %d, at the end of 64 bits", s.used)
	}
	if s.Why != "" {
		return
	}
	start := s.used + 1 + o.Margin
	if s.max < start { // beyond max nothing is given out that needs a margin
		start = max(s.used, s.max) + 1
	}
	start = max(start, 1)
	s.Start, s.State = subjects.Decimal(start), "absent"
	if s.Increment != 1 {
		s.note("its numbers are %d apart; those of the tag are dense", s.Increment)
	}
	switch {
	case subjects.CheckTag(s.Tag) != nil:
		s.Refuse("%q cannot be a tag: %s", s.Tag, s.byHand())
	case s.lowest != nil && start <= *s.lowest:
		s.note("no MAXVALUE can end it below %d: give --margin %d or more", start, *s.lowest-start+o.Margin+1)
	case s.lowest != nil:
		s.SQL = fmt.Sprintf("ALTER SEQUENCE %s MAXVALUE %d NO CYCLE;", quoted(s.schema, s.name), start-1)
	}
}

func (s *Sequence) byHand() string { return fmt.Sprintf("natsid tag create TAG --start %d", s.Start) }

// Refuse keeps the first refusal.
func (s *Sequence) Refuse(format string, args ...any) {
	if s.State != Refused {
		s.State, s.Why = Refused, fmt.Sprintf(format, args...)
		s.Start, s.SQL = 0, ""
	}
}

func (s *Sequence) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// holds raises used to the highest number of the column.
func (s *Sequence) holds(highest int64) {
	if highest > s.used {
		s.note("%s.%s holds %d, which it has not given out", s.table, s.column, highest)
		s.used = highest
	}
}

// quoted returns a name of SQL.
func quoted(parts ...string) string {
	for i, p := range parts {
		parts[i] = `"` + strings.ReplaceAll(p, `"`, `""`) + `"`
	}
	return strings.Join(parts, ".")
}
