package page

import (
	"errors"
	"html/template"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
)

// words are the functions that templates call.
var words = template.FuncMap{
	"count": fleetview.Count, "rate": fleetview.PerSecond, "span": fleetview.Span, "clock": fleetview.Clock,
	"seconds": fleetview.Seconds, "ago": ago, "runbook": runbook,
	"speed": func(v wire.Fraction) string { return fleetview.PerSecond(float64(v)) },
	"names": fleetview.Names, "operand": fleetview.Operand, "limits": fleetview.Limits,
	"why": fleetview.Why, "typed": typed,
	"late": func(err error) bool { return errors.Is(err, errLate) },
	"iso":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ms":   func(ms int64) string { return fleetview.Signed(time.Duration(ms) * time.Millisecond) },
}

// typed writes a sentence as HTML. Parts in backquotes are commands, which begin with the argument natsid.
func typed(natsid, text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		if part = template.HTMLEscapeString(part); i%2 == 1 {
			part = "<code>" + strings.Replace(part, "natsid", natsid, 1) + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String())
}

// ago writes how long ago t was; on hover the browser shows t.
func ago(t, now time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	text := "just now"
	if passed := now.Sub(t).Truncate(time.Second); passed >= time.Second {
		text = fleetview.Span(passed) + " ago"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `" title="` + t.Format("2006-01-02 15:04:05") +
		` UTC">` + text + `</time>`)
}

// runbook returns the address of the runbook's entry for a kind of alarm.
func runbook(kind wire.Alarm) string {
	return "https://github.com/natsid/natsid/blob/main/docs/operations.md#" + string(kind)
}
