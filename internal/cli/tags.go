package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type tagCreateCmd struct {
	Tag   string `arg:"" help:"The tag: 1 to 128 of A-Z a-z 0-9 - _ / = and single dots inside."`
	Step  int64  `default:"1000" help:"How many IDs a worker loads at once; 600 times the peak IDs per second lets the store be away for ten minutes."`
	Start int64  `default:"1" help:"The first ID. Above the IDs that are in use already, to move in from elsewhere."`
	Desc  string `placeholder:"TEXT" help:"Description, for people."`
}

// Help is shown below the flags.
func (tagCreateCmd) Help() string {
	return `Examples:
  natsid tag create order
  natsid tag create order.eu --step 10000 --start 5000001 --desc 'orders of Europe'`
}

// Run implements the command.
func (c *tagCreateCmd) Run(s *session) error {
	if err := checkTag(c.Tag); err != nil {
		return err
	}
	if c.Step < 1 || c.Start < 1 { // on the wire 0 is none given
		return usage(fmt.Errorf("tag %q: step %d and start %d, want at least 1", c.Tag, c.Step, c.Start))
	}
	return s.ask(func(ctx context.Context, cl *client.Client) error {
		made, err := cl.CreateTag(ctx, subjects.TagCreate{Tag: c.Tag, Step: c.Step, Start: subjects.Decimal(c.Start), Description: c.Desc})
		if err == nil {
			fmt.Fprintf(s.stdout, "%s: the next ID is %d, %d at a time\n", made.Tag, made.MaxID, made.Step)
		}
		return err
	})
}

type tagUpdateCmd struct {
	Tag     string  `arg:"" help:"The tag."`
	Step    *int64  `help:"How many IDs a worker loads at once, from the next load on."`
	Desc    *string `placeholder:"TEXT" help:"Description, for people; may be empty."`
	MaxID   *int64  `name:"max-id" xor:"raise" help:"The next ID: none below is handed out any more. It only rises."`
	RaiseBy *int64  `name:"raise-by" xor:"raise" help:"Leave so many IDs out above the next one that nobody has loaded."`
}

// Help is shown below the flags.
func (tagUpdateCmd) Help() string {
	return `What is not given stays as it is. After --max-id or --raise-by every worker
throws away what it has loaded below; they know within milliseconds, or, if one
is cut off from NATS at that moment, when it next loads or polls.

Examples:
  natsid tag update order --step 10000 --desc 'orders of Europe'
  natsid tag update order --max-id 5000001     # to move in above IDs that are in use
  natsid tag update order --raise-by 1000000   # after a restore, if in doubt`
}

// Run implements the command.
func (c *tagUpdateCmd) Run(s *session) error {
	u := subjects.TagUpdate{
		Tag: c.Tag, Step: c.Step, Description: c.Desc, MaxID: (*subjects.Decimal)(c.MaxID), RaiseBy: (*subjects.Decimal)(c.RaiseBy),
	}
	if e, ok := errors.AsType[*subjects.Error](u.Check()); ok {
		return usage(fmt.Errorf("tag %q: %s", c.Tag, e.Text))
	}
	return s.ask(func(ctx context.Context, cl *client.Client) error {
		t, err := cl.UpdateTag(ctx, u)
		if err == nil {
			fmt.Fprintf(s.stdout, "%s: the next ID that nobody has loaded is %d, %d at a time\n", t.Tag, t.MaxID, t.Step)
		}
		return err
	})
}

type tagDeleteCmd struct {
	Tag string `arg:"" help:"The tag."`
}

// Help is shown below the flags.
func (tagDeleteCmd) Help() string {
	return `Its IDs are never given again: the next one is kept, and a tag that is made
again by "natsid tag create" goes on there. With --mysql the row stays as it is,
and Leaf nodes go on with it.

Example:
  natsid tag delete order`
}

// Run implements the command.
func (c *tagDeleteCmd) Run(s *session) error {
	if err := checkTag(c.Tag); err != nil {
		return err
	}
	return s.ask(func(ctx context.Context, cl *client.Client) error {
		t, err := cl.DeleteTag(ctx, c.Tag)
		if err == nil {
			fmt.Fprintf(s.stdout, "%s: deleted; made again it goes on from %d\n", t.Tag, t.MaxID)
		}
		return err
	})
}

// describe returns a tag's description on one line, fit for a terminal.
func describe(t subjects.TagInfo) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, t.Description)
	text = strings.Join(strings.Fields(text), " ")
	if t.Unservable != "" {
		text = strings.TrimSpace("(cannot be served: " + t.Unservable + ") " + text)
	}
	if t.Disabled {
		text = strings.TrimSpace("(deleted) " + text)
	}
	return text
}
