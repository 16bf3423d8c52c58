package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// layoutJSON is a layout. A field without bits is absent.
type layoutJSON struct {
	Layout  string           `json:"layout"`
	UnitMs  int64            `json:"unit_ms"` // the length of a tick
	Epoch   time.Time        `json:"epoch"`
	Ends    time.Time        `json:"ends"`
	Largest subjects.Decimal `json:"largest"` // largest ID
	Fields  []layoutField    `json:"fields"`
}

// layoutField is a field's capacity in a unit, such as years, beside the need.
type layoutField struct {
	Field    string  `json:"field"`
	Bits     int     `json:"bits"`
	Capacity float64 `json:"capacity"`
	Unit     string  `json:"unit"`
	Need     int64   `json:"need,omitempty"`
}

// printLayout prints a layout, beside the needs for which it was planned, unless they are zero.
func printLayout(s *session, l snowflake.Layout, needs snowflake.Needs) error {
	d := layoutJSON{
		Layout: l.String(), UnitMs: l.Unit, Epoch: time.UnixMilli(l.Epoch).UTC(), Ends: l.Ends(),
		Largest: subjects.Decimal(int64(1)<<l.Bits() - 1), Fields: fieldsOf(l, needs),
	}
	return s.print(d, func(out io.Writer) { d.print(out, l, needs != snowflake.Needs{}) })
}

func (d layoutJSON) print(out io.Writer, l snowflake.Layout, planned bool) {
	fmt.Fprintf(out, "%s, ticks of %v\n\n%s\n", l, tickOf(l), picture(l))
	printFields(out, d.Fields, planned)
	warns := l.Ends().AddDate(-snowflake.LastYears, 0, 0)
	fmt.Fprintf(out, "\nbegins   %s\n", d.Epoch.Format(millis))
	fmt.Fprintf(out, "ends     %s; workers warn from %s on\n", l.Ends().Format(millis), warns.Format(time.DateOnly))
	fmt.Fprintf(out, "largest  %d, %d digits; %s\n", d.Largest, len(fmt.Sprint(int64(d.Largest))), inJavaScript(l))
	fmt.Fprintf(out, "spare    %d of 63 bits\n", 63-l.Bits())
	fmt.Fprintf(out, "use      natsid --layout %s --epoch %s", l, d.Epoch.Format(time.RFC3339Nano))
	if l.Site > 0 {
		fmt.Fprintf(out, " --site N    N is 0 to %d", l.Sites()-1)
	}
	fmt.Fprintln(out)
}

func inJavaScript(l snowflake.Layout) string {
	if l.Bits() > 53 {
		return "not safe in JavaScript numbers, which go to 2^53: keep IDs as strings there"
	}
	return "safe in JavaScript numbers, which go to 2^53"
}

const millis = "2006-01-02 15:04:05.000 MST"

func tickOf(l snowflake.Layout) time.Duration { return time.Duration(l.Unit) * time.Millisecond }

// printFields prints a table of the capacity of each field, beside the need if there is a plan.
func printFields(table io.Writer, fields []layoutField, planned bool) {
	if planned {
		fmt.Fprintln(table, "FIELD\tBITS\tNEED\tCAPACITY\tHEADROOM")
	} else {
		fmt.Fprintln(table, "FIELD\tBITS\tCAPACITY")
	}
	for _, f := range fields {
		if planned {
			fmt.Fprintf(table, "%s\t%d\t%d\t%s %s\t%.1fx\n",
				f.Field, f.Bits, f.Need, amount(f.Capacity), f.Unit, f.Capacity/float64(f.Need))
		} else {
			fmt.Fprintf(table, "%s\t%d\t%s %s\n", f.Field, f.Bits, amount(f.Capacity), f.Unit)
		}
	}
}

// fieldsOf returns the fields that have bits.
func fieldsOf(l snowflake.Layout, needs snowflake.Needs) []layoutField {
	tick, machines := tickOf(l).Seconds(), "machines"
	if l.Site > 0 {
		machines = "machines a site"
	}
	all := []layoutField{
		{"time", l.Time, math.Ldexp(tick, l.Time) / snowflake.Year.Seconds(), "years", needs.Years},
		{"site", l.Site, math.Ldexp(1, l.Site), "sites", needs.Sites},
		{"machine", l.Worker, math.Ldexp(1, l.Worker), machines, needs.Machines},
		{"business", l.Business, math.Ldexp(1, l.Business), "businesses", needs.Businesses},
		{"sequence", l.Sequence, math.Ldexp(1, l.Sequence) / tick, "IDs/s a machine", needs.Peak},
	}
	return slices.DeleteFunc(all, func(f layoutField) bool { return f.Bits == 0 })
}

func amount(v float64) string {
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// picture draws the bits of an ID: each field with its width, and above it the numbers of its first and last bit.
func picture(l snowflake.Layout) string {
	var numbers, top, fields, bottom strings.Builder
	high := 63
	for _, f := range []struct {
		name string
		bits int
	}{
		{"zero", 64 - l.Bits()}, {"time", l.Time}, {"site", l.Site},
		{"machine", l.Worker}, {"business", l.Business}, {"sequence", l.Sequence},
	} {
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
