package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type tagUpdateCmd struct {
	Tag     string  `arg:""`
	Step    *int64  `placeholder:"N"`
	Desc    *string `placeholder:"TEXT"`
	MaxID   *int64  `placeholder:"ID" xor:"raise"`
	RaiseBy *int64  `placeholder:"N" xor:"raise"`
	Force   bool
}

func (*tagUpdateCmd) help() help {
	return help{
		summary: "Change a tag's step or description, or raise its next ID.",
		detail: `What is not given stays as it is. After --max-id or --raise-by every worker
discards what it has loaded below the new ID: within milliseconds, or, if it is
cut off from NATS at that moment, at its next load or poll.

Examples:
  natsid tag update order --step 10000 --desc 'orders of Europe'
  natsid tag update order --max-id 5000001     # start above IDs that are in use
  natsid tag update order --raise-by 1000000   # after a restore, if in doubt`,
		values: map[string]string{
			"tag":      "The tag.",
			"step":     "How many IDs a worker loads at once, from the next load on.",
			"desc":     "Description, for people; may be empty.",
			"max-id":   "The next ID: no ID below it is issued any more. It only rises.",
			"raise-by": "How many IDs to skip above those that workers have loaded.",
			"force":    "Skip more than 1099511627776 (2^40) IDs at once; they are lost for good.",
		},
	}
}

// Run implements the command.
func (c *tagUpdateCmd) Run(s *session) error {
	u := subjects.TagUpdate{
		Tag: c.Tag, Step: c.Step, Description: c.Desc,
		MaxID: (*subjects.Decimal)(c.MaxID), RaiseBy: (*subjects.Decimal)(c.RaiseBy), Force: c.Force,
	}
	if e, ok := errors.AsType[*subjects.Error](u.Check()); ok {
		return usage(fmt.Errorf("tag %q: %s", c.Tag, e.Text))
	}
	return s.withClient(func(ctx context.Context, cl *client.Client) error {
		t, err := cl.UpdateTag(ctx, u)
		if err != nil {
			return err
		}
		return s.print(t, func(out io.Writer) error {
			_, err := fmt.Fprintf(out, "%s: next unreserved ID %d, step %d\n", t.Tag, t.MaxID, t.Step)
			return err
		})
	})
}
