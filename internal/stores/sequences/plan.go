// Package sequences reads how far the sequences of PostgreSQL and the AUTO_INCREMENT columns of MySQL are, and plans
// the tags that continue them. It changes nothing in a database.
package sequences

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/natsid/natsid/subjects"
)

// A Sequence is a source of numbers in a database.
type Sequence struct {
	Schema, Name  string
	Table, Column string // what it fills; "" for a sequence of no column
	Increment     int64
	Next          int64    // neither the sequence has given out a number from here on, nor does the column hold one
	Max           int64    // the sequence gives out none above
	Lowest        *int64   // the lowest MAXVALUE that the sequence can have; nil without MAXVALUE, as in MySQL
	Refusal       string   // why it cannot be continued; "" if it can
	Notes         []string // for people
}

// String returns the full name of a sequence.
func (s Sequence) String() string { return s.Schema + "." + s.Name }

// A Plan is the tag that is to continue a sequence. Without a Refusal, Tag and Start are fit for its creation.
type Plan struct {
	Sequence
	Tag   string
	Start int64
	// SQL makes the sequence fail, instead of giving out a number that is not below Start; "" where none can. The
	// database refuses it where the sequence has given out such a number.
	SQL string
}

// New plans a tag for each sequence. Its name is prefix and the table, or the sequence if it fills none; the prefix "."
// stands for the schema and a dot. Its IDs begin margin numbers above what was given out, but the sequence's maximum
// needs no margin. Two sequences of one tag are both refused.
func New(all []Sequence, prefix string, margin int64) []Plan {
	plans, uses := []Plan{}, map[string]int{}
	for _, s := range all {
		p := Plan{Sequence: s, Tag: name(s, prefix)}
		p.place(margin)
		plans = append(plans, p)
		uses[p.Tag]++
	}
	for i := range plans {
		if p := &plans[i]; uses[p.Tag] > 1 {
			p.refuse("tag %s would continue %d sequences: %s", p.Tag, uses[p.Tag], p.byHand())
		}
	}
	return plans
}

func name(s Sequence, prefix string) string {
	if prefix == "." {
		prefix = s.Schema + "."
	}
	if s.Table != "" {
		return prefix + s.Table
	}
	return prefix + s.Name
}

// place sets where the tag begins, or why there can be none.
func (p *Plan) place(margin int64) {
	if p.Refusal != "" {
		return
	}
	if p.Next > math.MaxInt64-2*subjects.MaxRaise {
		p.refuse("it is at %d, at the end of 64 bits", p.Next)
		return
	}
	p.Start = p.Next + margin
	if p.Max < p.Start { // no overflow: Start is not near the end
		p.Start = max(p.Next, p.Max+1)
	}
	p.Start = max(p.Start, 1)
	if err := subjects.CheckTag(p.Tag); err != nil {
		p.refuse("%q cannot be a tag: %s", p.Tag, p.byHand())
	}
	if p.Increment != 1 {
		p.note("its numbers are %d apart; those of the tag are dense", p.Increment)
	}
	switch {
	case p.Lowest == nil:
	case p.Start <= *p.Lowest:
		p.note("no MAXVALUE can end it below %d: give --margin %d or more", p.Start, *p.Lowest-p.Start+margin+1)
	default:
		p.SQL = fmt.Sprintf("ALTER SEQUENCE %s.%s MAXVALUE %d NO CYCLE;", quoted(p.Schema), quoted(p.Name), p.Start-1)
	}
}

func (p *Plan) byHand() string {
	return fmt.Sprintf("name one yourself: natsid tag create TAG --start %d", p.Start)
}

// refuse keeps the first refusal.
func (s *Sequence) refuse(format string, args ...any) {
	if s.Refusal == "" {
		s.Refusal = fmt.Sprintf(format, args...)
	}
}

func (s *Sequence) note(format string, args ...any) {
	s.Notes = append(slices.Clip(s.Notes), fmt.Sprintf(format, args...))
}

// above notes a column that holds a number that the sequence has not given out yet.
func (s *Sequence) above(highest int64) {
	if highest < s.Next {
		return
	}
	s.note("%s.%s holds %d, which it has not given out", s.Table, s.Column, highest)
	s.Next = after(highest)
}

// after returns the number after n. That after the last is refused by [Plan.place], like all of the last.
func after(n int64) int64 {
	if n < math.MaxInt64 {
		n++
	}
	return n
}

// quoted returns an identifier of SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
