package cli

import (
	"fmt"
	"io"

	"github.com/natsid/natsid/snowflake"
)

// decodeCmd has the flags --layout and --epoch too.
type decodeCmd struct {
	ID int64 `arg:""`
}

func (*decodeCmd) help() help {
	return help{
		summary: "Show the fields of a snowflake.",
		detail: `Examples:
  natsid decode 2124263042718941184
  natsid decode --layout article 270162187289683973`,
		values: map[string]string{"id": "The snowflake, in decimal."},
	}
}

// Run implements the command.
func (c *decodeCmd) Run(s *session) error {
	l, err := s.layout()
	if err != nil {
		return err
	}
	p, err := l.Decode(c.ID)
	if err != nil {
		return fmt.Errorf("%w; give the layout of the workers with --layout", err)
	}
	return printParts(s.stdout, l, p)
}

// layout returns what --layout and --epoch say.
func (s *session) layout() (snowflake.Layout, error) {
	cfg, err := s.config()
	if err != nil {
		return snowflake.Layout{}, err
	}
	return cfg.Layout, usage(cfg.Layout.Validate())
}

func printParts(out io.Writer, l snowflake.Layout, p snowflake.Parts) error {
	fmt.Fprintf(out, "time      %s\n", p.Time.Format(millis))
	if l.Site > 0 {
		fmt.Fprintf(out, "site      %d\nmachine   %d\n", p.Site, p.Machine)
	}
	fmt.Fprintf(out, "worker    %d\n", p.Worker)
	if l.Business > 0 {
		fmt.Fprintf(out, "business  %d\n", p.Business)
	}
	_, err := fmt.Fprintf(out, "sequence  %d\n", p.Sequence)
	return err
}
