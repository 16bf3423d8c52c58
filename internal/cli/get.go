package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type getCmd struct {
	Segment   getSegmentCmd   `cmd:""`
	Snowflake getSnowflakeCmd `cmd:""`
}

func (*getCmd) help() help { return help{summary: "Get IDs."} }

type getSegmentCmd struct {
	Tag  tagName `arg:""`
	Text bool
	keyFlags
	count
}

func (*getSegmentCmd) help() help {
	return help{
		summary: "Get IDs of a tag.",
		detail: `Examples:
  natsid get segment order          1001
  natsid get segment order -n 100   1002-1101
  natsid get segment so --text      SO-20261125-000042-7
  natsid get segment so --text --key k1.key`,
		values: map[string]string{
			"tag": tagForm, "n": countHelp, "key": keyHelp,
			"text": "Print each ID as the format of the tag writes it, one a line.",
		},
	}
}

// Run implements the command.
func (c *getSegmentCmd) Run(s *session) error {
	if len(c.Key) > 0 && !c.Text {
		return usage(errors.New("--key is for texts: give --text, too"))
	}
	if err := c.keyFlags.read(s); err != nil {
		return err
	}
	handle := func(cl *client.Client) *client.Handle { return cl.Segment(string(c.Tag)) }
	if c.Text {
		return c.getTexts(s, handle)
	}
	return c.get(s, handle)
}

type getSnowflakeCmd struct{ count }

func (*getSnowflakeCmd) help() help {
	return help{
		summary: "Get snowflakes.",
		detail: `Example:
  natsid get snowflake -n 3`,
		values: map[string]string{"n": countHelp},
	}
}

// Run implements the command.
func (c *getSnowflakeCmd) Run(s *session) error {
	return c.get(s, func(cl *client.Client) *client.Handle { return cl.Snowflake() })
}

// count is the flag of commands that get IDs.
type count struct {
	N int `short:"n" default:"1"`
}

const countHelp = "How many IDs. More than one are printed as runs, first-last, one a line."

// getWithin is how long a person at a terminal waits for a worker that can issue.
const getWithin = 2 * time.Second

// get prints IDs of a handle in their wire format.
func (c count) get(s *session, of func(*client.Client) *client.Handle) error {
	if c.N < 1 {
		return usage(fmt.Errorf("-n %d: want at least 1", c.N))
	}
	return ask(s, func(ctx context.Context, cl *client.Client) (idsJSON, error) {
		ctx, cancel := context.WithTimeout(ctx, getWithin)
		defer cancel()
		var got idsJSON
		runs, err := of(cl).NextN(ctx, c.N)
		for _, r := range runs {
			got.Runs = append(got.Runs, runJSON{subjects.Decimal(r.First), subjects.Decimal(r.Last)})
		}
		return got, err
	}, func(out io.Writer, got idsJSON) {
		for _, r := range got.Runs {
			fmt.Fprintln(out, subjects.Run{First: int64(r.First), Last: int64(r.Last)})
		}
	})
}

// getTexts prints the texts of IDs.
func (c count) getTexts(s *session, of func(*client.Client) *client.Handle) error {
	if c.N < 1 {
		return usage(fmt.Errorf("-n %d: want at least 1", c.N))
	}
	return ask(s, func(ctx context.Context, cl *client.Client) (texts textsJSON, err error) {
		ctx, cancel := context.WithTimeout(ctx, getWithin)
		defer cancel()
		f, err := of(cl).Format(ctx)
		if err != nil {
			return texts, err
		}
		runs, err := of(cl).NextN(ctx, c.N)
		for id := range runs.All() {
			text, err := f.Format(int64(id))
			if err != nil {
				return texts, err
			}
			texts.Texts = append(texts.Texts, text)
		}
		return texts, err
	}, func(out io.Writer, got textsJSON) {
		for _, text := range got.Texts {
			fmt.Fprintln(out, text)
		}
	})
}

// textsJSON is the output of commands that get the texts of IDs.
type textsJSON struct {
	Texts []string `json:"texts"`
}

// idsJSON is the output of commands that get IDs.
type idsJSON struct {
	Runs []runJSON `json:"runs"`
}

type runJSON struct {
	First subjects.Decimal `json:"first"`
	Last  subjects.Decimal `json:"last"`
}
