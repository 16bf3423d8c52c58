package page

import (
	"errors"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/subjects"
)

// words are the functions that templates call.
var words = template.FuncMap{
	"count": fleetview.Count, "rate": fleetview.PerSecond, "span": fleetview.Span, "clock": fleetview.Clock,
	"seconds": fleetview.Seconds, "ago": ago, "runbook": runbook, "bar": bar,
	"speed": func(v subjects.Fraction) string { return fleetview.PerSecond(float64(v)) },
	"names": names, "operand": operand,
	"late": func(err error) bool { return errors.Is(err, errLate) },
	"iso":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ms":   func(ms int64) string { return fleetview.Signed(time.Duration(ms) * time.Millisecond) },
}

// names writes the first names of a list, and the number of the others.
func names(all []string) string {
	const most = 10
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return strings.Join(all[:most], ", ") + " and " + fleetview.Count(len(all)-most) + " others"
}

// operand writes a tag as the last operand of a command: a tag that begins with a hyphen must not be taken for a
// flag.
func operand(tag string) string {
	if strings.HasPrefix(tag, "-") {
		return "-- " + tag
	}
	return tag
}

// ago writes how long ago a time was, and on hover the time.
func ago(t, now time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	passed := now.Sub(t)
	text := "just now"
	switch unit := max(passed, -passed); {
	case passed < -time.Second:
		text = "in " + fleetview.Span(unit.Truncate(time.Second))
	case unit >= 48*time.Hour:
		text = strconv.Itoa(int(unit.Hours()/24)) + " days ago"
	case unit >= 2*time.Hour:
		text = strconv.Itoa(int(unit.Hours())) + " h ago"
	case unit >= 2*time.Minute:
		text = strconv.Itoa(int(unit.Minutes())) + " min ago"
	case unit >= time.Second:
		text = strconv.Itoa(int(unit.Seconds())) + " s ago"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `" title="` + t.Format("2006-01-02 15:04:05") +
		` UTC">` + text + `</time>`)
}

// runbook returns the address of the runbook's entry for a kind of alarm.
func runbook(kind subjects.Alarm) string {
	return "https://github.com/natsid/natsid/blob/main/docs/operations.md#" + string(kind)
}

// bar writes a coordinate of a drawing.
func bar(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
