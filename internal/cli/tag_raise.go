package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type tagRaiseCmd struct {
	All   bool   `required:""`
	By    int64  `required:"" placeholder:"N"`
	Yes   bool   `short:"y"`
	After string `placeholder:"TAG"`
}

func (*tagRaiseCmd) help() help {
	return help{
		summary: "Raise every tag, after the store was restored from a backup.",
		detail: `A restored store gives out again what was loaded since the backup. Where the
workers cannot know all of it, they refuse segments until every tag has been
raised by more than that. N is more than the IDs of any one tag that were issued
since the backup; skipped IDs cost nothing. When the last tag is raised, the
workers serve again; none is restarted.

A tag that the restored store lacks is not raised. Create it with "natsid tag
create TAG --start M", M above every ID in use, then run "natsid store confirm":
until then workers that refused segments create no tag on first use.

The command shows what it will do and asks first. If it is interrupted, --after
continues behind the last tag it named, so that no tag is raised twice. To raise
one tag, use "natsid tag update TAG --raise-by N".

Examples:
  natsid tag raise --all --by 10000000
  natsid tag raise --all --by 10000000 --yes     # in a script`,
		values: map[string]string{
			"all":   "All tags, deleted ones included.",
			"by":    "How many IDs of each tag to skip, up to 1099511627776.",
			"yes":   "Do not ask.",
			"after": "Continue behind this tag.",
		},
	}
}

// Run implements the command.
func (c *tagRaiseCmd) Run(s *session) error {
	r := subjects.TagRaise{By: subjects.Decimal(c.By), After: c.After}
	if e, ok := errors.AsType[*subjects.Error](r.Check()); ok {
		return usage(errors.New("--" + e.Text))
	}
	return s.withClient(func(ctx context.Context, cl *client.Client) error {
		count, err := c.show(ctx, s, cl)
		if err != nil {
			return err
		}
		if err := c.confirm(s); err != nil {
			return err
		}
		return c.raise(ctx, s, cl, r, count)
	})
}

// show prints what will be done, and returns how many tags there are.
func (c *tagRaiseCmd) show(ctx context.Context, s *session, cl *client.Client) (count int, err error) {
	var highest subjects.TagInfo
	for after := c.After; ; {
		page, err := cl.ListTags(ctx, subjects.TagList{After: after})
		if err != nil {
			return 0, err
		}
		if len(page) == 0 {
			break
		}
		for _, t := range page {
			if t.MaxID >= highest.MaxID {
				highest = t
			}
		}
		count, after = count+len(page), page[len(page)-1].Tag
	}
	if count == 0 {
		_, err = fmt.Fprintln(s.stderr, "There are no tags to raise.")
		return 0, err
	}
	_, err = fmt.Fprintf(s.stderr, "This raises %s by %d each. The highest now is %s at %d. "+
		"It cannot be undone.\n", numberOf(count, "tag"), c.By, highest.Tag, highest.MaxID)
	return count, err
}

// confirm asks whether to continue.
func (c *tagRaiseCmd) confirm(s *session) error {
	if c.Yes {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return usage(errors.New("there is no terminal to ask on; give --yes"))
	}
	fmt.Fprint(s.stderr, "Continue? [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // none is no
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// isTerminal reports whether someone can type into f.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// raise raises page after page, and shows how far it is.
func (c *tagRaiseCmd) raise(ctx context.Context, s *session, cl *client.Client, r subjects.TagRaise, count int) error {
	for done := 0; ; {
		raised, err := cl.RaiseTags(ctx, r)
		if err != nil {
			return c.interrupted(r, done, err)
		}
		if len(raised.Tags) == 0 {
			return s.print(raisedJSON{done, subjects.Decimal(c.By)}, func(out io.Writer) error {
				_, err := fmt.Fprintf(out, "Raised: %s. "+
					"Workers that waited for it serve segments again, and create no tag on first use until "+
					"`natsid store confirm`.\n", numberOf(done, "tag"))
				return err
			})
		}
		done, r.After = done+len(raised.Tags), raised.Tags[len(raised.Tags)-1].Tag
		fmt.Fprintf(s.stderr, "%d of %s, up to %s\n", done, numberOf(max(count, done), "tag"), r.After)
	}
}

type raisedJSON struct {
	Tags int              `json:"tags"` // that were raised
	By   subjects.Decimal `json:"by"`
}

// interrupted says how to continue. The page under way may have been raised in part; raised again it costs holes.
func (c *tagRaiseCmd) interrupted(r subjects.TagRaise, done int, err error) error {
	command := fmt.Sprintf("natsid tag raise --all --by %d", c.By)
	if r.After != "" {
		command += " --after " + r.After
	}
	return fmt.Errorf("%w; raised so far: %s, continue with `%s`: at most the next %d are raised a second time",
		err, numberOf(done, "tag"), command, subjects.MaxRaised)
}
