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
		detail: `Creates a tag for each sequence, which begins above the numbers that were given
out. Nothing is changed in the database, and no tag is changed. Without --yes the
command shows what it would do. It can be repeated: a tag that is high enough
stays as it is. The exit code is 1 if any sequence is refused.

While old writers go on, give --margin, and run the SQL that is printed before the
first ID is requested: docs/from-sequences.md has the whole cut-over. PGPASSWORD or
~/.pgpass keep the password of PostgreSQL out of the command line.

Examples:
  natsid import postgres://reader@db/shop
  natsid import postgres://reader@db/shop --schema sales --prefix shop. --margin 100000 --yes
  natsid import 'mysql://reader:password@db:3306/shop' --schema shop --yes`,
		values: map[string]string{
			"url":    "The database: postgres://user:password@host:port/database, or mysql:// and the same.",
			"schema": "Only this schema; in MySQL, a database. By default all that are not the system's.",
			"prefix": "What a tag's name begins with, before the table's; by default the schema and a dot.",
			"margin": "How many numbers the old writers may still take before the new ones begin.",
			"step":   "The step of each tag that is created.",
			"yes":    "Create the tags.",
		},
	}
}

// Run implements the command.
func (c *importCmd) Run(s *session) error {
	if c.Margin < 0 || c.Margin > subjects.MaxRaise || c.Step < 1 {
		return usage(fmt.Errorf("margin %d, want 0 to %d; step %d, want at least 1",
			c.Margin, int64(subjects.MaxRaise), c.Step))
	}
	all, err := c.read(s.ctx)
	if err != nil {
		return err
	}
	sequences.Plan(all, sequences.Options{Prefix: c.Prefix, Margin: c.Margin, Step: c.Step})
	err = s.withClient(func(ctx context.Context, cl *client.Client) error {
		for i := range all {
			if err := c.settle(ctx, cl, &all[i]); err != nil {
				return fmt.Errorf("tag %s: %w; run the command again, it leaves out completed tags", all[i].Tag, err)
			}
		}
		return nil
	})
	switch {
	case err != nil && !c.Yes && exitCode(err) == exitNobody:
		fmt.Fprintf(s.stderr, "natsid: the sequences are compared with no tags: %s\n", errorText(err))
	case err != nil:
		return err
	}
	if err := s.print(all, func(out io.Writer) { c.print(out, all) }); err != nil {
		return err
	}
	refused := 0
	for _, q := range all {
		if q.State == sequences.Refused {
			refused++
		}
	}
	if refused > 0 {
		return fmt.Errorf("%s of %d refused: see the notes", numberOf(refused, "sequence"), len(all))
	}
	return nil
}

// read reads the sequences of the database that the URL names.
func (c *importCmd) read(ctx context.Context) (all []sequences.Sequence, err error) {
	switch scheme, _, _ := strings.Cut(c.URL, "://"); scheme {
	case "postgres", "postgresql":
		all, err = sequences.Postgres(ctx, c.URL, c.Schema)
	case "mysql":
		all, err = sequences.MySQL(ctx, c.URL, c.Schema)
	default:
		err = sequences.ErrMalformed
	}
	switch {
	case errors.Is(err, sequences.ErrMalformed):
		return nil, usage(err)
	case err != nil:
		return nil, fmt.Errorf("read the database: %v", err) // a deadline in it is not that of a worker
	case len(all) == 0:
		return nil, fmt.Errorf("no sequence in %s", cmp.Or(c.Schema, "any schema of the database"))
	}
	return all, nil
}

// settle compares a plan with the tag that exists, and creates a missing one with --yes.
func (c *importCmd) settle(ctx context.Context, cl *client.Client, q *sequences.Sequence) error {
	if q.State == sequences.Refused {
		return nil
	}
	page, err := cl.ListTags(ctx, subjects.TagList{Tag: q.Tag})
	switch {
	case err != nil:
		return err
	case len(page) > 0 && !page[0].Disabled:
		at := page[0].MaxID
		if q.State = "exists"; at < q.Start {
			q.Refuse("the tag is at %d: natsid tag update %s --max-id %d", at, q.Tag, q.Start)
		}
		q.Notes = append(q.Notes, fmt.Sprintf("the tag is at %d; unless an import made it, discard what workers have "+
			"loaded below: natsid tag update %s --max-id %[1]d", at, q.Tag))
		return nil
	case !c.Yes:
		return nil
	}
	q.State = "created"
	_, err = cl.CreateTag(ctx, subjects.TagCreate{Tag: q.Tag, Step: q.Step, Start: q.Start})
	return err
}

// print prints a row for each sequence, then the SQL.
func (c *importCmd) print(out io.Writer, all []sequences.Sequence) {
	fmt.Fprintln(out, "SEQUENCE\tCOLUMN\tTAG\tSTART\tSTEP\tSTATE\tNOTES")
	sql := ""
	for _, q := range all {
		notes := cmp.Or(q.Why, strings.Join(q.Notes, "; "), "-")
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n",
			q.Name, cmp.Or(q.Column, "-"), q.Tag, q.Start, q.Step, q.State, notes)
		if q.SQL != "" {
			sql += "  " + q.SQL + "\n"
		}
	}
	if sql != "" {
		fmt.Fprintf(out, "\nThis ends each sequence below its tag. Run it before an ID is requested:\n%s", sql)
	}
	if !c.Yes {
		fmt.Fprintln(out, "\nNothing was changed. Run it again with --yes.")
	}
}
