package fleetview

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// Count writes a whole number, or the number that a pointer points to, with commas: 1,234,567.
func Count(n any) string {
	text, sign := fmt.Sprint(reflect.Indirect(reflect.ValueOf(n))), ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// PerSecond writes a rate per second, rounded to a few significant digits.
func PerSecond(v float64) string {
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "–"
	case v == 0:
		return "0"
	case v < 0.1:
		return "<0.1"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return Count(int64(math.Round(v)))
}

// Seconds writes a number of seconds; an infinity is a dash.
func Seconds(f wire.Fraction) string {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) || float64(f) > 1e9 {
		return "–"
	}
	return Span(time.Duration(float64(f) * float64(time.Second)))
}

// Span writes a duration in its two largest units: 3m20s.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Span(-d)
	case d < time.Millisecond:
		return d.Truncate(time.Microsecond).String()
	case d < time.Second:
		return d.Truncate(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Signed writes the offset of a clock with its sign.
func Signed(d time.Duration) string {
	if d > 0 {
		return "+" + Span(d)
	}
	return Span(d)
}

// Moment returns the time of a number of Unix milliseconds; the zero time for 0.
func Moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Clock writes a time in UTC, with its day unless it is today. The zero time is a dash.
func Clock(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	if t, now = t.UTC(), now.UTC(); t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

// Names writes the first names of a list, and the number of the others.
func Names(all []string) string {
	const most = 10
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return strings.Join(all[:most], ", ") + " and " + Count(len(all)-most) + " others"
}

// Operand writes a tag as the last operand of a command. It puts -- before a tag that begins with a hyphen, which would
// be taken for a flag.
func Operand(tag string) string {
	if strings.HasPrefix(tag, "-") {
		return "-- " + tag
	}
	return tag
}

// Limits writes the order, period, bounds and limits of a tag; "" if there are none.
func Limits(t subjects.TagInfo) string {
	var all []string
	if t.Strict {
		all = append(all, "strict")
	}
	if t.Period != "" {
		all = append(all, strings.TrimSpace(t.Period+" "+t.Zone))
	}
	for _, l := range []struct {
		form  string
		value int64
	}{
		{"from %d", int64(t.Min)}, {"up to %d", int64(t.Max)}, {"holes up to %d", int64(t.MaxHole)},
		{"%d a request", int64(t.MaxBatch)}, {"%d/s", t.Rate}, {"throttled to %d/s", t.Throttle},
	} {
		if l.value > 0 {
			all = append(all, fmt.Sprintf(l.form, l.value))
		}
	}
	return strings.Join(all, ", ")
}
