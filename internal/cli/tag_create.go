package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type tagCreateCmd struct {
	Tag   tagName `arg:""`
	Step  int64   `default:"${default_step}"`
	Start int64   `default:"1"`
	Desc  string  `placeholder:"TEXT"`
	Order string  `enum:",loose,strict" default:"" placeholder:"ORDER"`
}

func (*tagCreateCmd) help() help {
	return help{
		summary: "Create a tag, or revive a deleted one.",
		detail: `Examples:
  natsid tag create order
  natsid tag create invoice --order strict
  natsid tag create order.eu --step 10000 --start 5000001 --desc 'orders of Europe'`,
		values: map[string]string{
			"tag": tagForm,
			"step": "How many IDs a worker loads at once. With 600 times the peak of IDs per second " +
				"a worker can do without the store for ten minutes.",
			"start": "The first ID. To take over a sequence from elsewhere, choose one above all IDs in use.",
			"desc":  "Description, for people.",
			"order": orderHelp,
		},
	}
}

// Run implements the command.
func (c *tagCreateCmd) Run(s *session) error {
	if c.Step < 1 || c.Start < 1 { // 0 on the wire means the default
		return usage(fmt.Errorf("tag %q: step %d and start %d, want at least 1", c.Tag, c.Step, c.Start))
	}
	t := subjects.TagCreate{Tag: string(c.Tag), Step: c.Step, Start: subjects.Decimal(c.Start), Description: c.Desc,
		Order: c.Order}
	return ask(s, func(ctx context.Context, cl *client.Client) (subjects.TagInfo, error) {
		return cl.CreateTag(ctx, t)
	}, func(out io.Writer, created subjects.TagInfo) {
		fmt.Fprintf(out, "%s: next ID %d, step %d\n", created.Tag, created.MaxID, created.Step)
		if created.StrictFrom != nil {
			fmt.Fprintf(out, "strict from %s on: until then clients may use IDs that they hold\n",
				created.StrictFrom.Format(time.RFC3339))
		}
	})
}
