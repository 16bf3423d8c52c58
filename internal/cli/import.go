package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/stores/sequences"
	"github.com/natsid/natsid/subjects"
)

type importCmd struct {
	URL    string `arg:""`
	Schema string `placeholder:"NAME"`
	Prefix string `default:"." placeholder:"TEXT"`
	Margin int64  `placeholder:"N"`
	Step   int64  `default:"${default_step}"`
	Yes    bool
}

func (*importCmd) help() help {
	return help{
		summary: "Continue the sequences of PostgreSQL, or the AUTO_INCREMENT of MySQL, by tags.",
		detail: `Reads how far each sequence is, and creates a tag that begins above. Nothing is
changed in the database, and no tag is lowered or raised. Without --yes the
command shows what it would do. It can be repeated: a tag that is high enough
stays as it is. The exit code is 1 if any sequence is refused.

While the old writers go on, give --margin, and run the SQL that is printed before
the first ID is requested: docs/from-sequences.md has the whole cut-over.

PGPASSWORD or ~/.pgpass keep the password of PostgreSQL out of the command line.

Examples:
  natsid import postgres://reader@db/shop
  natsid import postgres://reader@db/shop --schema sales --prefix shop. --margin 100000 --yes
  natsid import 'mysql://reader:password@db:3306/shop' --schema shop --yes`,
		values: map[string]string{
			"url":    "The database: postgres://user:password@host:port/database, or mysql://…",
			"schema": "Only this schema; in MySQL, a database. By default all that are not the system's.",
			"prefix": "What a tag's name begins with, before the table's; by default the schema and a dot.",
			"margin": "How many numbers the old writers may still take before the new ones begin.",
			"step":   "The step of each tag that is created.",
			"yes":    "Create the tags.",
		},
	}
}

// importRow is a sequence and the tag that continues it.
type importRow struct {
	Sequence  string           `json:"sequence"`         // schema.name; in MySQL, database.table
	Column    string           `json:"column,omitempty"` // table.column, which the sequence fills
	Increment int64            `json:"increment"`
	Tag       string           `json:"tag"`
	Start     subjects.Decimal `json:"start"` // 0 for a sequence that was refused
	Step      int64            `json:"step"`
	State     string           `json:"state"`         // absent, created, exists or refused
	Why       string           `json:"why,omitempty"` // it was refused
	SQL       string           `json:"sql,omitempty"` // makes the sequence fail before it reaches start
	Notes     []string         `json:"notes,omitempty"`
}

// Run implements the command.
func (c *importCmd) Run(s *session) error {
	if c.Margin < 0 || c.Margin > subjects.MaxRaise || c.Step < 1 {
		return usage(fmt.Errorf("margin %d and step %d, want at most %d, and a step of at least 1",
			c.Margin, c.Step, int64(subjects.MaxRaise)))
	}
	found, err := c.read(s.ctx)
	if err != nil {
		return err
	}
	all := []importRow{}
	for _, p := range sequences.New(found, c.Prefix, c.Margin) {
		all = append(all, c.row(p))
	}
	err = s.withClient(func(ctx context.Context, cl *client.Client) error {
		for i := range all {
			if err := all[i].settle(ctx, cl, c.Yes); err != nil {
				return fmt.Errorf("tag %s: %w; run the command again, it leaves out completed tags", all[i].Tag, err)
			}
		}
		return nil
	})
	if err != nil && (c.Yes || exitCode(err) != exitNobody) {
		return err
	}
	if err != nil {
		fmt.Fprintf(s.stderr, "natsid: the sequences are compared with no tags: %s\n", errorText(err))
	}
	if err := s.print(all, func(out io.Writer) { c.print(out, all) }); err != nil {
		return err
	}
	return refusals(all)
}

// read reads the sequences of the database that the URL names.
func (c *importCmd) read(ctx context.Context) (found []sequences.Sequence, err error) {
	switch scheme, _, _ := strings.Cut(c.URL, "://"); scheme {
	case "postgres", "postgresql":
		found, err = sequences.Postgres(ctx, c.URL, c.Schema)
	case "mysql":
		found, err = sequences.MySQL(ctx, c.URL, c.Schema)
	default:
		err = sequences.ErrMalformed
	}
	switch {
	case errors.Is(err, sequences.ErrMalformed):
		return nil, usage(fmt.Errorf("the URL of the database is malformed: %w", err))
	case err != nil:
		return nil, fmt.Errorf("read the database: %w", err)
	case len(found) == 0:
		return nil, fmt.Errorf("no sequence in %s", cmp.Or(c.Schema, "any schema of the database"))
	}
	return found, nil
}

func (c *importCmd) row(p sequences.Plan) importRow {
	r := importRow{Sequence: p.String(), Increment: p.Increment, Tag: p.Tag, Start: subjects.Decimal(p.Start),
		Step: c.Step, State: "absent", SQL: p.SQL, Notes: p.Notes}
	if p.Table != "" {
		r.Column = p.Table + "." + p.Column
	}
	if p.Refusal != "" {
		r.refuse(p.Refusal)
	}
	return r
}

func (r *importRow) refuse(why string) { r.Start, r.SQL, r.State, r.Why = 0, "", "refused", why }

// settle compares the plan with the tag that there is, and creates a missing one.
func (r *importRow) settle(ctx context.Context, cl *client.Client, create bool) error {
	if r.Why != "" {
		return nil
	}
	page, err := cl.ListTags(ctx, subjects.TagList{Tag: r.Tag})
	switch {
	case err != nil:
		return err
	case len(page) > 0 && !page[0].Disabled && page[0].MaxID < r.Start:
		r.refuse(fmt.Sprintf("the tag is at %d: natsid tag update %s --max-id %d", page[0].MaxID, r.Tag, r.Start))
		return nil
	case len(page) > 0 && !page[0].Disabled:
		r.State = "exists"
		r.Notes = append(r.Notes, fmt.Sprintf("the tag is at %d", page[0].MaxID))
		return nil
	case !create:
		return nil
	}
	created, err := cl.CreateTag(ctx, subjects.TagCreate{Tag: r.Tag, Step: r.Step, Start: r.Start})
	if err == nil && created.MaxID < r.Start {
		err = fmt.Errorf("it was created at %d, below %d", created.MaxID, r.Start)
	}
	r.State = "created"
	return err
}

// print prints a row for each sequence, then the SQL.
func (c *importCmd) print(out io.Writer, all []importRow) {
	fmt.Fprintln(out, "SEQUENCE\tCOLUMN\tTAG\tSTART\tSTEP\tSTATE\tNOTES")
	var sql []string
	for _, r := range all {
		notes := r.Notes
		if r.Why != "" {
			notes = []string{r.Why}
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", r.Sequence, cmp.Or(r.Column, "-"), r.Tag, r.Start, r.Step, r.State,
			cmp.Or(strings.Join(notes, "; "), "-"))
		if r.SQL != "" {
			sql = append(sql, "  "+r.SQL+"\n")
		}
	}
	if len(sql) > 0 {
		fmt.Fprintf(out, "\nThis SQL ends each sequence below the start of its tag. Run it before an ID is requested:\n%s",
			strings.Join(sql, ""))
	}
	if !c.Yes {
		fmt.Fprintln(out, "\nNothing was changed. Run it again with --yes.")
	}
}

// refusals returns an error if any sequence was refused.
func refusals(all []importRow) error {
	n := 0
	for _, r := range all {
		if r.Why != "" {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s of %d refused; the others are as shown", numberOf(n, "sequence"), len(all))
}
