package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/subjects"
)

type getCmd struct {
	Segment   getSegmentCmd   `cmd:""`
	Snowflake getSnowflakeCmd `cmd:""`
}

func (*getCmd) help() help { return help{summary: "Get IDs."} }

type getSegmentCmd struct {
	Tag tagName `arg:""`
	textFlags
	count
}

func (*getSegmentCmd) help() help {
	return help{
		summary: "Get IDs of a tag.",
		detail: `Examples:
  natsid get segment order          1001
  natsid get segment order -n 100   1002-1101
  natsid get segment so --format 'SO-{date:yyyyMMdd}-{id:6}-{check}'
  natsid get segment order --format 'NO-{mask:k1:9}' --key k1=k1.key`,
		values: map[string]string{
			"tag": tagForm, "n": countHelp, "key": keyHelp,
			"format": "Print each ID as this format writes it, one a line: see natsid read --help. In a radix above " +
				"36 IDs may differ in case alone.",
		},
	}
}

// Run implements the command.
func (c *getSegmentCmd) Run(s *session) error {
	of := func(cl *client.Client) *client.Handle { return cl.Segment(string(c.Tag)) }
	if c.Format == "" && len(c.Key) == 0 {
		return c.get(s, of, nil)
	}
	f, err := c.textFlags.parse(string(c.Tag))
	if err != nil {
		return err
	}
	return c.get(s, of, f)
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
	return c.get(s, func(cl *client.Client) *client.Handle { return cl.Snowflake() }, nil)
}

// count is the flag of commands that get IDs.
type count struct {
	N int `short:"n" default:"1"`
}

const countHelp = "How many IDs. More than one are printed as runs, first-last, one a line."

// getWithin is how long a person at a terminal waits for a worker that can issue.
const getWithin = 2 * time.Second

// get prints IDs of a handle in their wire format, or as f writes each.
func (c count) get(s *session, of func(*client.Client) *client.Handle, f *format.Format) error {
	if c.N < 1 {
		return usage(fmt.Errorf("-n %d: want at least 1", c.N))
	}
	return withConn(s, func(nc *nats.Conn) (idsJSON, error) {
		ctx, cancel := context.WithTimeout(s.ctx, getWithin)
		defer cancel()
		var got idsJSON
		runs, err := of(s.clientOn(nc)).NextN(ctx, c.N)
		for _, r := range runs {
			got.Runs = append(got.Runs, runJSON(r))
		}
		for id := range runs.All() {
			if f == nil || err != nil {
				break
			}
			var text string
			text, err = f.Format(id)
			got.Texts = append(got.Texts, text)
		}
		return got, err
	}, func(out io.Writer, got idsJSON) {
		if f != nil {
			fmt.Fprintln(out, strings.Join(got.Texts, "\n"))
			return
		}
		for _, r := range got.Runs {
			fmt.Fprintln(out, subjects.Run(r))
		}
	})
}

// idsJSON is the output of commands that get IDs.
type idsJSON struct {
	Runs  []runJSON `json:"runs"`
	Texts []string  `json:"texts,omitempty"` // with --format
}

type runJSON struct {
	First subjects.ID `json:"first"`
	Last  subjects.ID `json:"last"`
}
