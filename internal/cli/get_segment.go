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

type getSegmentCmd struct {
	Tag string `arg:""`
	count
}

func (*getSegmentCmd) help() help {
	return help{
		summary: "Get IDs of a tag.",
		detail: `Examples:
  natsid get segment order          1001
  natsid get segment order -n 100   1002-1101`,
		values: map[string]string{"tag": tagForm, "n": countHelp},
	}
}

// Run implements the command.
func (c *getSegmentCmd) Run(s *session) error {
	if err := errors.Join(c.check(), checkTag(c.Tag)); err != nil {
		return err
	}
	return s.withClient(func(ctx context.Context, cl *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, getWithin)
		defer cancel()
		return s.printRuns(cl.Segment(c.Tag).NextN(ctx, c.N))
	})
}

// getWithin is how long a person at a terminal waits for a worker that can issue.
const getWithin = 2 * time.Second

// count is the flag of commands that get IDs.
type count struct {
	N int `short:"n" default:"1"`
}

const countHelp = "How many IDs. More than one are printed as runs, first-last, one a line."

func (c count) check() error {
	if c.N < 1 {
		return usage(fmt.Errorf("-n %d: want at least 1", c.N))
	}
	return nil
}

// printRuns prints IDs in their wire format.
func (o *output) printRuns(runs client.Runs, err error) error {
	if err != nil {
		return err
	}
	got := idsJSON{}
	for _, r := range runs {
		got.Runs = append(got.Runs, runJSON{subjects.Decimal(r.First), subjects.Decimal(r.Last)})
	}
	return o.print(got, func(out io.Writer) {
		for _, r := range runs {
			fmt.Fprintln(out, r)
		}
	})
}

// idsJSON is the output of commands that get IDs.
type idsJSON struct {
	Runs []runJSON `json:"runs"`
}

type runJSON struct {
	First subjects.Decimal `json:"first"`
	Last  subjects.Decimal `json:"last"`
}
