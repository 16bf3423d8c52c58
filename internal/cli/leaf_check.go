package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/subjects"
)

type leafCmd struct {
	Check leafCheckCmd `cmd:""`
}

func (*leafCmd) help() help { return help{summary: "Move from Leaf to natsid: see docs/from-leaf.md."} }

// leafCheckCmd has the settings of MySQL, too.
type leafCheckCmd struct{}

func (*leafCheckCmd) help() help {
	return help{
		summary: "Show which rows of Leaf's table need a decision before tags move, and whether the table went back.",
		detail: `Reads leaf_alloc. A row needs a decision if its step or max_id is below 1, or if
its biz_tag cannot be requested over NATS. If workers guard the table already, its
max_id is compared with their marks: one below its mark went back. The exit code
is 1 if any row has a problem. Nothing is changed.

Example:
  natsid leaf check --mysql 'user:password@tcp(db:3306)/leaf'`,
	}
}

// leafRow is a row of Leaf's table.
type leafRow struct {
	Tag     string            `json:"tag"`
	MaxID   subjects.Decimal  `json:"max_id"`
	Step    int64             `json:"step"`
	Mark    *subjects.Decimal `json:"mark,omitempty"` // of the guard, if it has one
	Problem string            `json:"problem,omitempty"`
}

// Run implements the command.
func (c *leafCheckCmd) Run(s *session) error {
	table, err := s.openTable(s.ctx)
	if err != nil {
		return err
	}
	defer table.Close()
	// The marks are read before the table: both only rise, so a max_id below its mark is no race.
	marks, unguarded := c.marks(s)
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
	defer cancel()
	rows, err := table.AllRows(ctx)
	if err != nil {
		return fmt.Errorf("read the table: %w", err)
	}
	all, problems := []leafRow{}, 0
	for _, r := range rows {
		row := leafRow{Tag: r.Name, MaxID: subjects.Decimal(r.MaxID), Step: r.Step}
		if m, ok := marks[r.Name]; ok {
			row.Mark = new(subjects.Decimal(m.Mark))
		}
		if row.Problem = row.problem(); row.Problem != "" {
			problems++
		}
		all = append(all, row)
	}
	if unguarded != nil {
		fmt.Fprintf(s.stderr, "natsid: the table is compared with no marks: %v\n", unguarded)
	}
	if err := s.print(all, func(out io.Writer) { printLeafRows(out, all) }); err != nil {
		return err
	}
	if problems > 0 {
		return fmt.Errorf("%s of %d need a decision: see docs/from-leaf.md", numberOf(problems, "row"), len(all))
	}
	return nil
}

// marks returns the marks that guard the table, or why there are none.
func (*leafCheckCmd) marks(s *session) (marks map[string]kvstore.Present, err error) {
	err = s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		r, err := kvstore.Inspect(ctx, buckets.OnJetStream(js), s.namespace().SegmentBucket())
		if errors.Is(err, buckets.ErrNoBucket) {
			return fmt.Errorf("no worker has kept marks in namespace %s", s.namespace())
		}
		marks = r.Marks
		return err
	})
	return marks, err
}

// problem returns why a row needs a decision, "" if it needs none.
func (r leafRow) problem() string {
	switch e, malformed := errors.AsType[*subjects.Error](subjects.CheckTag(r.Tag)); {
	case malformed:
		return "cannot be requested: " + e.Text
	case r.Step < 1:
		return "step is below 1: correct it"
	case r.MaxID < 1:
		return "max_id is below 1: correct it"
	case r.Mark != nil && r.MaxID < *r.Mark:
		return fmt.Sprintf("max_id went back: raise it to %d before Leaf loads again", *r.Mark)
	}
	return ""
}

func printLeafRows(table io.Writer, rows []leafRow) {
	fmt.Fprintln(table, "TAG\tMAX_ID\tSTEP\tMARK\tPROBLEM")
	for _, r := range rows {
		tag, mark, problem := r.Tag, "-", "-"
		if subjects.CheckTag(tag) != nil {
			tag = strconv.Quote(tag)
		}
		if r.Mark != nil {
			mark = fmt.Sprint(*r.Mark)
		}
		if r.Problem != "" {
			problem = r.Problem
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", tag, r.MaxID, r.Step, mark, problem)
	}
}
