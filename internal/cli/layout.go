package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/snowflake"
)

// layoutFlags say how snowflakes are laid out.
type layoutFlags struct {
	Layout string `env:"NATSID_LAYOUT" default:"leaf" help:"How a snowflake's bits are split: leaf (41+10+12), js53 (41+6+6), article (39+2+7+4+7), or widths of time+machine+sequence or time+site+machine+business+sequence, with @10ms or @1s behind for longer ticks. All workers of a namespace must have the same."`
	Epoch  string `env:"NATSID_EPOCH" placeholder:"TIME" help:"Begin of the snowflakes' time: a date, an RFC 3339 time, or Unix ms; by default the layout's own, which is Leaf's but for article. All workers of a namespace must have the same."`
}

func (f layoutFlags) layout() (snowflake.Layout, error) {
	l, err := snowflake.ParseLayout(f.Layout)
	if err == nil && f.Epoch != "" {
		if l.Epoch, err = parseEpoch(f.Epoch); err == nil {
			err = l.Validate()
		}
	}
	return l, err
}

// parseEpoch returns the Unix ms that s says.
func parseEpoch(s string) (int64, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return ms, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, s); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, fmt.Errorf("epoch %q: want a date, which begins at midnight UTC, as 2018-09-22; a time, as 2018-09-22T00:00:00+08:00; or Unix milliseconds", s)
}

type layoutCmd struct {
	Years      int64         `help:"How many years, from the epoch on, the time field must last."`
	Sites      int64         `help:"Sites that number their own machines; 1 unless given."`
	Machines   int64         `help:"Machines, that is workers, in one site."`
	Businesses int64         `help:"Businesses to tell apart in IDs; 1 unless given."`
	Peak       int64         `help:"IDs/s of one machine at its peak."`
	Unit       time.Duration `help:"Length of a tick, in whole ms; 1ms unless given."`
	layoutFlags
}

// Help is shown below the flags.
func (layoutCmd) Help() string {
	return `With needs it plans the narrowest layout that meets them; its time begins today
unless --epoch says otherwise. Without, it describes the one given.

Examples:
  natsid layout --years 10 --sites 4 --machines 100 --businesses 10 --peak 100000
  natsid layout --years 30 --machines 50 --peak 2000 --unit 10ms --epoch 2026-01-01
  natsid layout --layout js53`
}

// Run implements the command.
func (c *layoutCmd) Run(s *session, call *kong.Context) error {
	if c.Years == 0 && c.Sites == 0 && c.Machines == 0 && c.Businesses == 0 && c.Peak == 0 && c.Unit == 0 {
		l, err := c.layout()
		if err != nil {
			return usage(err)
		}
		return describeLayout(s.stdout, l, snowflake.Needs{})
	}
	if given(call, "layout") {
		return usage(errors.New("--layout is to describe a layout, needs are to plan one: give either"))
	}
	return c.plan(s, time.Now())
}

func (c *layoutCmd) plan(s *session, now time.Time) error {
	needs, err := c.needs()
	if err != nil {
		return usage(err)
	}
	epoch := now.Truncate(24 * time.Hour).UnixMilli() // of UTC
	if c.Epoch != "" {
		if epoch, err = parseEpoch(c.Epoch); err != nil {
			return usage(err)
		}
	}
	l, err := snowflake.Plan(needs, epoch)
	if fit, ok := errors.AsType[*snowflake.FitError](err); ok {
		return fmt.Errorf("%w; %s", err, c.advice(fit))
	}
	if err != nil {
		return usage(err)
	}
	if !now.Before(l.Ends()) {
		return fmt.Errorf("the time field of %s would have ended on %s: years count from the epoch on; ask for more of them, or for a later --epoch", l, l.Ends().Format(time.DateOnly))
	}
	return describeLayout(s.stdout, l, needs)
}

func (c *layoutCmd) needs() (snowflake.Needs, error) {
	if c.Years == 0 || c.Machines == 0 || c.Peak == 0 {
		return snowflake.Needs{}, errors.New("a plan needs --years, --machines and --peak")
	}
	n := snowflake.Needs{Years: c.Years, Sites: c.Sites, Machines: c.Machines, Businesses: c.Businesses, Peak: c.Peak, Unit: c.Unit.Milliseconds()}
	if c.Sites == 0 {
		n.Sites = 1
	}
	if c.Businesses == 0 {
		n.Businesses = 1
	}
	if c.Unit == 0 {
		n.Unit = 1
	} else if c.Unit%time.Millisecond != 0 {
		return n, fmt.Errorf("--unit %v: want whole milliseconds", c.Unit)
	}
	return n, nil
}

// advice says what would fit instead.
func (c *layoutCmd) advice(fit *snowflake.FitError) string {
	one := flagsOf(fit.Largest)
	nearest := flagsOf(fit.Nearest)
	if c.Unit != 0 {
		nearest = append(nearest, fmt.Sprintf("--unit %v", c.Unit))
	}
	if c.Epoch != "" {
		nearest = append(nearest, "--epoch "+c.Epoch)
	}
	text := "the nearest that fits: natsid layout " + strings.Join(nearest, " ")
	if len(one) == 0 {
		return "no need alone can be lowered so that it fits; " + text
	}
	return fmt.Sprintf("with all else kept, at most %s would fit; %s", strings.Join(one, " or "), text)
}

// flagsOf returns the needs as they are given, without those that are 0.
func flagsOf(n snowflake.Needs) (flags []string) {
	for _, f := range []struct {
		name  string
		value int64
	}{{"years", n.Years}, {"sites", n.Sites}, {"machines", n.Machines}, {"businesses", n.Businesses}, {"peak", n.Peak}} {
		if f.value != 0 {
			flags = append(flags, fmt.Sprintf("--%s %d", f.name, f.value))
		}
	}
	return flags
}

// describeLayout shows a layout to people, beside the needs that it was
// planned for unless they are zero.
func describeLayout(out io.Writer, l snowflake.Layout, needs snowflake.Needs) error {
	fmt.Fprintf(out, "%s, ticks of %v\n\n%s\n", l, tickOf(l), picture(l))
	if err := capacities(out, l, needs); err != nil {
		return err
	}
	begins := time.UnixMilli(l.Epoch).UTC()
	fmt.Fprintf(out, "\nbegins   %s\nends     %s; workers warn from %s on\n",
		begins.Format(millis), l.Ends().Format(millis), l.Ends().AddDate(-snowflake.LastYears, 0, 0).Format(time.DateOnly))
	largest, safe := int64(1)<<l.Bits()-1, "safe in JavaScript numbers, which go to 2^53"
	if l.Bits() > 53 {
		safe = "not safe in JavaScript numbers, which go to 2^53: keep IDs as strings there"
	}
	fmt.Fprintf(out, "largest  %d, %d digits; %s\nspare    %d of 63 bits\n", largest, len(strconv.FormatInt(largest, 10)), safe, 63-l.Bits())
	fmt.Fprintf(out, "use      natsid --layout %s --epoch %s", l, begins.Format(time.RFC3339Nano))
	if l.Site > 0 {
		fmt.Fprintf(out, " --site N    N is 0 to %d", l.Sites()-1)
	}
	_, err := fmt.Fprintln(out)
	return err
}

const millis = "2006-01-02 15:04:05.000 MST"

func tickOf(l snowflake.Layout) time.Duration { return time.Duration(l.Unit) * time.Millisecond }

// capacities prints a table of what each field has room for.
func capacities(out io.Writer, l snowflake.Layout, needs snowflake.Needs) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	planned := needs != snowflake.Needs{}
	if planned {
		fmt.Fprintln(table, "FIELD\tBITS\tNEED\tCAPACITY\tHEADROOM")
	} else {
		fmt.Fprintln(table, "FIELD\tBITS\tCAPACITY")
	}
	machines := "machines"
	if l.Site > 0 {
		machines += " a site"
	}
	for _, f := range []struct {
		name     string
		bits     int
		capacity float64
		what     string
		need     int64
	}{
		{"time", l.Time, math.Ldexp(tickOf(l).Seconds(), l.Time) / snowflake.Year.Seconds(), "years", needs.Years},
		{"site", l.Site, math.Ldexp(1, l.Site), "sites", needs.Sites},
		{"machine", l.Worker, math.Ldexp(1, l.Worker), machines, needs.Machines},
		{"business", l.Business, math.Ldexp(1, l.Business), "businesses", needs.Businesses},
		{"sequence", l.Sequence, math.Ldexp(1, l.Sequence) / tickOf(l).Seconds(), "IDs/s a machine", needs.Peak},
	} {
		switch {
		case f.bits == 0:
		case planned:
			fmt.Fprintf(table, "%s\t%d\t%d\t%s %s\t%.1fx\n", f.name, f.bits, f.need, amount(f.capacity), f.what, f.capacity/float64(f.need))
		default:
			fmt.Fprintf(table, "%s\t%d\t%s %s\n", f.name, f.bits, amount(f.capacity), f.what)
		}
	}
	return table.Flush()
}

func amount(v float64) string {
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// picture draws the bits of an ID: each field with its width, and above it
// the numbers of its first and last bit.
func picture(l snowflake.Layout) string {
	var numbers, top, fields, bottom strings.Builder
	high := 63
	for _, f := range []struct {
		name string
		bits int
	}{{"zero", 64 - l.Bits()}, {"time", l.Time}, {"site", l.Site}, {"machine", l.Worker}, {"business", l.Business}, {"sequence", l.Sequence}} {
		if f.bits == 0 {
			continue
		}
		left, right, width := strconv.Itoa(high), "", strconv.Itoa(f.bits)
		if f.bits > 1 {
			right = strconv.Itoa(high - f.bits + 1)
		}
		inside := max(f.bits, len(f.name)+len(width)+3)
		above, below := "┬", "┴"
		if high == 63 {
			above, below = "┌", "└"
		}
		fmt.Fprintf(&numbers, " %s%*s", left, inside-len(left), right)
		fmt.Fprint(&top, above, strings.Repeat("─", inside))
		fmt.Fprintf(&fields, "│ %s%*s ", f.name, inside-2-len(f.name), width)
		fmt.Fprint(&bottom, below, strings.Repeat("─", inside))
		high -= f.bits
	}
	return fmt.Sprintf("%s\n%s┐\n%s│\n%s┘\n", strings.TrimRight(numbers.String(), " "), &top, &fields, &bottom)
}
