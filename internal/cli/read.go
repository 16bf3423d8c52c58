package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/subjects"
)

type readCmd struct {
	Text    string `arg:""`
	Tag     string `placeholder:"TAG" xor:"of"`
	Format  string `placeholder:"FORMAT" xor:"of"`
	Lenient bool
	keyFlags
}

func (*readCmd) help() help {
	return help{
		summary: "Read the text of an ID.",
		detail: `Prints the ID, or says where the text is wrong and why: it never guesses. With
--format nothing is asked of a worker.

Examples:
  natsid read SO-20261125-000042-7 --tag so
  natsid read SO-000042-7 --format 'SO-{id:6}-{check}'
  natsid read SO-620441183-7 --tag so --key k1.key`,
		values: map[string]string{
			"text":    "The text, as natsid get segment --text prints it.",
			"tag":     "The tag whose format it has.",
			"format":  "The format, in place of a tag's.",
			"key":     keyHelp,
			"lenient": "In Crockford's base32, read o as 0, i and l as 1, and lower case.",
		},
	}
}

// Run implements the command.
func (c *readCmd) Run(s *session) error {
	if err := c.keyFlags.read(s); err != nil {
		return err
	}
	if c.Lenient {
		s.formats = append(s.formats, format.Lenient())
	}
	print := func(out io.Writer, got idJSON) { fmt.Fprintln(out, int64(got.ID)) }
	if c.Format != "" {
		f, err := format.Parse(c.Format, s.formats...)
		if err != nil {
			return usage(err)
		}
		got, err := readText(c.Text, f)
		if err != nil {
			return err
		}
		return s.print(got, func(out io.Writer) { print(out, got) })
	}
	if c.Tag == "" {
		return usage(errors.New("which format has the text? give --tag or --format"))
	}
	return ask(s, func(ctx context.Context, cl *client.Client) (got idJSON, err error) {
		f, err := cl.Segment(c.Tag).Format(ctx)
		if err != nil {
			return got, err
		}
		return readText(c.Text, f)
	}, print)
}

func readText(text string, f *format.Format) (got idJSON, err error) {
	id, err := f.Read(text)
	if _, wrong := errors.AsType[*format.ReadError](err); wrong {
		err = fmt.Errorf("%q is no text of %s: %w", text, f, err)
	}
	return idJSON{subjects.Decimal(id)}, err
}

// idJSON is the output of a command that prints one ID.
type idJSON struct {
	ID subjects.Decimal `json:"id"`
}
