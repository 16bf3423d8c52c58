package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// layoutCmd has the flags --layout and --epoch, too.
type layoutCmd struct {
	Years      int64 `placeholder:"N"`
	Sites      int64 `placeholder:"N"`
	Machines   int64 `placeholder:"N"`
	Businesses int64 `placeholder:"N"`
	Peak       int64 `placeholder:"N"`
	Unit       time.Duration
}

func (*layoutCmd) help() help {
	return help{
		summary: "Plan or describe the layout of snowflakes.",
		detail: `Given needs, it plans the narrowest layout that meets them; its time begins
today unless --epoch says otherwise. Without needs it describes --layout.

Examples:
  natsid layout --years 10 --sites 4 --machines 100 --businesses 10 --peak 100000
  natsid layout --years 30 --machines 50 --peak 2000 --unit 10ms --epoch 2026-01-01
  natsid layout --layout js53`,
		values: map[string]string{
			"years":      "How many years, from the epoch, the time field must last.",
			"sites":      "Sites that number their own machines. The default is 1.",
			"machines":   "Machines, that is workers, in one site.",
			"businesses": "Businesses that IDs distinguish. The default is 1.",
			"peak":       "Peak of one machine, in IDs per second.",
			"unit":       "Length of a tick, in whole milliseconds. The default is 1ms.",
		},
	}
}

// Run implements the command.
func (c *layoutCmd) Run(s *session) error {
	if *c != (layoutCmd{}) {
		if onCommandLine(s.call, "layout") {
			return usage(errors.New("--layout describes a layout, needs plan a new one: give one or the other"))
		}
		return c.plan(s, time.Now())
	}
	l, err := s.layout()
	if err != nil {
		return err
	}
	return printLayout(s, l, snowflake.Needs{})
}

// plan prints the narrowest layout for the needs, as of now.
func (c *layoutCmd) plan(s *session, now time.Time) error {
	needs, err := c.needs()
	if err != nil {
		return usage(err)
	}
	epoch, err := s.epoch(now)
	if err != nil {
		return err
	}
	l, err := snowflake.Plan(needs, epoch)
	if fit, ok := errors.AsType[*snowflake.FitError](err); ok {
		return fmt.Errorf("%w; %s", err, c.advice(fit, s.given["epoch"].Text))
	}
	if err != nil {
		return usage(err)
	}
	if !now.Before(l.Ends()) {
		return fmt.Errorf("the time field of %s would have ended on %s: years count from the epoch; "+
			"give more years, or a later --epoch", l, l.Ends().Format(time.DateOnly))
	}
	return printLayout(s, l, needs)
}

func (c *layoutCmd) needs() (snowflake.Needs, error) {
	if c.Years == 0 || c.Machines == 0 || c.Peak == 0 {
		return snowflake.Needs{}, errors.New("a plan needs --years, --machines and --peak")
	}
	if c.Unit%time.Millisecond != 0 {
		return snowflake.Needs{}, fmt.Errorf("--unit %v: want whole milliseconds", c.Unit)
	}
	return snowflake.Needs{
		Years: c.Years, Machines: c.Machines, Peak: c.Peak,
		Sites: cmp.Or(c.Sites, 1), Businesses: cmp.Or(c.Businesses, 1), Unit: cmp.Or(c.Unit.Milliseconds(), 1),
	}, nil
}

// advice returns needs that would fit instead.
func (c *layoutCmd) advice(fit *snowflake.FitError, epoch string) string {
	one := flagsOf(fit.Largest)
	nearest := flagsOf(fit.Nearest)
	if c.Unit != 0 {
		nearest = append(nearest, fmt.Sprintf("--unit %v", c.Unit))
	}
	if epoch != "" {
		nearest = append(nearest, "--epoch "+epoch)
	}
	text := "the nearest that fits: natsid layout " + strings.Join(nearest, " ")
	if len(one) == 0 {
		return "no need alone can be lowered so that it fits; " + text
	}
	return fmt.Sprintf("with all else kept, at most %s would fit; %s", strings.Join(one, " or "), text)
}

// flagsOf returns needs as flags, without those that are 0.
func flagsOf(n snowflake.Needs) (flags []string) {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"years", n.Years}, {"sites", n.Sites}, {"machines", n.Machines},
		{"businesses", n.Businesses}, {"peak", n.Peak},
	} {
		if f.value != 0 {
			flags = append(flags, fmt.Sprintf("--%s %d", f.name, f.value))
		}
	}
	return flags
}
