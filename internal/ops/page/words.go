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
	"seconds": fleetview.Seconds, "day": day, "bar": bar,
	"speed": func(v subjects.Fraction) string { return fleetview.PerSecond(float64(v)) },
	"names": names, "operand": operand,
	"late":  func(err error) bool { return errors.Is(err, errLate) },
	"lower": strings.ToLower, "iso": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ms": func(ms int64) string { return fleetview.Signed(time.Duration(ms) * time.Millisecond) },
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

func day(t time.Time) string { return t.UTC().Format("2006-01-02") }

// bar writes a coordinate of a drawing.
func bar(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
