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
}

func (*readCmd) help() help {
	return help{
		summary: "Read the text of an ID.",
		detail: `Prints the ID, or says where the text is wrong and why: it never guesses. With
--format nothing is asked of a worker.

Examples:
  natsid read SO-20261125-000042-7 --tag so
  natsid read SO-000042-7 --format 'SO-{id:6}-{check}'`,
		values: map[string]string{
			"text":    "The text, as natsid get segment --text prints it.",
			"tag":     "The tag whose format it has.",
			"format":  "The format, in place of a tag's.",
			"lenient": "In Crockford's base32, read o as 0, i and l as 1, and lower case.",
		},
	}
}

// Run implements the command.
func (c *readCmd) Run(s *session) error {
	var opts []format.Option
	if c.Lenient {
		opts = append(opts, format.Lenient())
	}
	print := func(out io.Writer, got idJSON) { fmt.Fprintln(out, int64(got.ID)) }
	if c.Format != "" {
		got, err := readText(c.Text, c.Format, opts)
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
		return readText(c.Text, f.String(), opts)
	}, print)
}

func readText(text, of string, opts []format.Option) (got idJSON, err error) {
	f, err := format.Parse(of, opts...)
	if err != nil {
		return got, usage(err)
	}
	id, err := f.Read(text)
	if err != nil {
		return got, fmt.Errorf("%q is no text of %s: %w", text, of, err)
	}
	return idJSON{subjects.Decimal(id)}, nil
}

// idJSON is the output of a command that prints one ID.
type idJSON struct {
	ID subjects.Decimal `json:"id"`
}
