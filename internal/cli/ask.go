package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/subjects"
)

// defaultURL is where commands look for NATS unless told otherwise.
const defaultURL = "nats://127.0.0.1:4222"

// dial connects to NATS, for one command.
func (s *session) dial() (*nats.Conn, error) {
	url := s.line.NATS
	if url == "" {
		url = defaultURL
	}
	opts := []nats.Option{nats.Name("natsid command"), nats.Timeout(client.DefaultTimeout)}
	if s.line.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(s.line.NATSCreds))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot reach NATS at %s: %w; start natsid, or name another with --nats URL", app.Redact(url), app.WithoutURL(err))
	}
	return nc, nil
}

// ask runs f with a client.
func (s *session) ask(f func(ctx context.Context, c *client.Client) error) error {
	nc, err := s.dial()
	if err != nil {
		return err
	}
	defer nc.Close()
	return f(s.ctx, client.New(nc, subjects.Namespace(s.line.Namespace)))
}

// printRuns prints IDs exactly as the wire has them.
func (s *session) printRuns(runs []subjects.Run, err error) error {
	if err != nil {
		return err
	}
	for _, r := range runs {
		fmt.Fprintln(s.stdout, r)
	}
	return nil
}

type count struct {
	N int `short:"n" default:"1" help:"How many IDs; more than one are printed as runs, first-last."`
}

func (c count) check() error {
	if c.N < 1 {
		return usage(fmt.Errorf("-n %d: want at least 1", c.N))
	}
	return nil
}

type getSegmentCmd struct {
	Tag string `arg:"" help:"The tag: 1 to 128 of A-Z a-z 0-9 - _ / = and single dots inside."`
	count
}

// Help is shown below the flags.
func (getSegmentCmd) Help() string {
	return `Examples:
  natsid get segment order          1001
  natsid get segment order -n 100   1002-1101`
}

// Run implements the command.
func (c *getSegmentCmd) Run(s *session) error {
	// Before NATS is asked: a tag with a space or an empty token could not
	// even be sent.
	if err := errors.Join(c.check(), checkTag(c.Tag)); err != nil {
		return err
	}
	return s.ask(func(ctx context.Context, cl *client.Client) error {
		return s.printRuns(cl.SegmentN(ctx, c.Tag, c.N))
	})
}

func checkTag(tag string) error {
	if e, ok := errors.AsType[*subjects.Error](subjects.CheckTag(tag)); ok {
		return usage(fmt.Errorf("tag %q: %s", tag, e.Text))
	}
	return nil
}

type getSnowflakeCmd struct{ count }

// Help is shown below the flags.
func (getSnowflakeCmd) Help() string {
	return `Example:
  natsid get snowflake -n 3`
}

// Run implements the command.
func (c *getSnowflakeCmd) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.ask(func(ctx context.Context, cl *client.Client) error {
		return s.printRuns(cl.SnowflakeN(ctx, c.N))
	})
}

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
	return s.ask(func(ctx context.Context, cl *client.Client) error {
		made, err := cl.CreateTag(ctx, subjects.TagCreate{Tag: c.Tag, Step: c.Step, Start: subjects.Decimal(c.Start), Description: c.Desc})
		if err == nil {
			fmt.Fprintf(s.stdout, "%s: the next ID is %d, %d at a time\n", made.Tag, made.MaxID, made.Step)
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
