package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/natsid/natsid/internal/fleetview"
	"github.com/natsid/natsid/internal/terminal"
	"github.com/natsid/natsid/subjects"
)

// A topView is the fleet at one moment.
type topView struct {
	fleetview.Overview
	at        time.Time
	answered  int
	namespace subjects.Namespace
	alarms    []subjects.AlarmEvent // the latest of the last 24 hours
	today     int                   // how many those are
	unheard   error                 // why the alarms are not as of now
	away      bool                  // NATS is not reached
}

// A styled is a line, and how it is written where there are colours.
type styled struct {
	text, style string
}

// Styles are parameters of a terminal's SGR.
const (
	plain = ""
	bold  = "1"
	grey  = "2"
	red   = "31"
)

var styleOf = map[string]string{fleetview.Good: plain, fleetview.Away: grey, fleetview.Bad: red}

// painted returns lines for a terminal.
func painted(lines []styled, colours bool) []string {
	all := make([]string, 0, len(lines))
	for _, l := range lines {
		if colours && l.style != plain {
			l.text = "\x1b[" + l.style + "m" + l.text + "\x1b[m"
		}
		all = append(all, l.text)
	}
	return all
}

// frame returns the view in so many columns and lines; 0 is as many as it needs.
func (v topView) frame(columns, lines int) []styled {
	top, end := v.head(), v.alarmLines()
	rows := v.table(columns)
	if lines > 0 {
		end = append(end, styled{"q ends", grey})
	}
	if len(end) > 0 {
		end = slices.Insert(end, 0, styled{})
	}
	if lines > 0 {
		if room := lines - len(top) - 1; len(end) > room/3 { // the workers first
			end = end[:max(0, room/3)]
		}
		rows = fitted(rows, lines-len(top)-len(end), v.Ready)
	}
	all := slices.Concat(top, rows, end)
	if lines > 0 && len(all) > lines {
		all = all[:lines]
	}
	for i := range all {
		all[i].text = cut(all[i].text, columns)
	}
	return all
}

// head says how the fleet is as a whole.
func (v topView) head() []styled {
	answered := styled{fmt.Sprintf("natsid %s  %s UTC  %d of %d answered, %d serving", v.namespace,
		v.at.UTC().Format(time.TimeOnly), v.answered, len(v.Rows), v.Ready), bold}
	lines := []styled{answered, {fmt.Sprintf("segment %s IDs/s, snowflake %s IDs/s, %s requests/s, %s waiting, "+
		"alarms in 24 h: %s", fleetview.PerSecond(v.Segments), fleetview.PerSecond(v.Snowflakes),
		fleetview.PerSecond(v.Requests), fleetview.Count(v.Waiting), fleetview.Count(v.today)), plain}}
	if v.away {
		lines = append(lines, styled{"NATS does not answer: connecting again. What follows is of before.", red})
	}
	if v.Registry != nil {
		lines = append(lines, styled{"The worker numbers cannot be read: " + v.Registry.Error(), red})
	}
	if v.Versions > 1 {
		lines = append(lines, styled{fmt.Sprintf("The workers are of %d versions.", v.Versions), plain})
	}
	return append(lines, styled{})
}

func (v topView) alarmLines() []styled {
	var lines []styled
	if v.unheard != nil {
		lines = append(lines, styled{"The alarms that are kept cannot be read: " + v.unheard.Error(), red})
	}
	for _, e := range v.alarms {
		lines = append(lines, styled{
			fmt.Sprintf("%s %s %s: %s", fleetview.Clock(e.Time, v.at), e.Kind, e.Instance, e.Message), red})
	}
	return lines
}

// topColumns are the columns of the table. Where there is no room, those go first that are needed least.
var topColumns = []struct {
	title string
	need  int
	of    func(fleetview.Row) string
}{
	{"WORKER", 9, func(r fleetview.Row) string { return r.Name() }},
	{"STATE", 8, func(r fleetview.Row) string { return r.State }},
	{"NUMBER", 5, func(r fleetview.Row) string { return number(r) }},
	{"WINDOW", 3, func(r fleetview.Row) string { return unless(r.Window == 0, "-", fleetview.Span(r.Window)) }},
	{"OFFSET", 2, func(r fleetview.Row) string {
		return fleetview.Signed(time.Duration(r.OffsetMs) * time.Millisecond)
	}},
	{"REQ/S", 6, func(r fleetview.Row) string { return unless(!r.Known, "...", fleetview.PerSecond(r.Requests)) }},
	{"IDS/S", 7, func(r fleetview.Row) string { return unless(!r.Known, "...", fleetview.PerSecond(r.IDs)) }},
	{"WAITING", 4, func(r fleetview.Row) string { return fleetview.Count(r.Waiting) }},
	{"LAG", 4, func(r fleetview.Row) string { return fleetview.Seconds(r.Lag) }},
	{"VERSION", 1, func(r fleetview.Row) string { return cmp.Or(r.Version, "-") }},
}

func number(r fleetview.Row) string {
	if r.Statistics.Number == nil {
		return "-"
	}
	return strconv.Itoa(*r.Statistics.Number)
}

func unless(not bool, instead, text string) string {
	if not {
		return instead
	}
	return text
}

// leastName is how many columns of a name are shown before other columns are dropped.
const leastName = 16

// table returns the workers, those first that need a look, each with why it does.
func (v topView) table(columns int) []styled {
	rows := slices.Clone(v.Rows)
	rank := map[string]int{fleetview.Bad: 0, fleetview.Away: 1, fleetview.Good: 2}
	slices.SortStableFunc(rows, func(a, b fleetview.Row) int { return cmp.Compare(rank[a.Class], rank[b.Class]) })
	shown := slices.Clone(topColumns)
	cells := make([][]string, len(rows)+1)
	widths := make([]int, len(shown))
	for i, c := range shown {
		for at := range cells {
			text := c.title
			if at > 0 {
				text = terminal.Clean(c.of(rows[at-1]))
			}
			cells[at] = append(cells[at], text)
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	kept := fit(widths, columns)
	lines := make([]styled, 0, len(cells))
	for at, row := range cells {
		var line strings.Builder
		for n, i := range kept {
			text := cut(row[i], widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if n > 0 {
				line.WriteString("  ")
			}
			if left := i < 2 || i == len(topColumns)-1; left {
				line.WriteString(text + pad)
			} else {
				line.WriteString(pad + text)
			}
		}
		text := strings.TrimRight(line.String(), " ")
		if at == 0 {
			lines = append(lines, styled{text, bold})
			continue
		}
		r := rows[at-1]
		lines = append(lines, styled{text, styleOf[r.Class]})
		for _, why := range r.Why {
			lines = append(lines, styled{"  " + why, styleOf[r.Class]})
		}
	}
	return lines
}

// fit returns the columns of the table that fit, and shortens that of the names if it must.
func fit(widths []int, columns int) (kept []int) {
	sum := -2
	for i, w := range widths {
		kept, sum = append(kept, i), sum+w+2
	}
	if columns == 0 {
		return kept
	}
	for sum > columns && len(kept) > 1 {
		if spare := widths[0] - leastName; spare > 0 {
			short := min(spare, sum-columns)
			widths[0], sum = widths[0]-short, sum-short
			continue
		}
		least := slices.MinFunc(kept, func(a, b int) int { return cmp.Compare(topColumns[a].need, topColumns[b].need) })
		sum -= widths[least] + 2
		kept = slices.DeleteFunc(kept, func(i int) bool { return i == least })
	}
	return kept
}

// fitted returns as many lines of the table as there is room for, and says that there are more.
func fitted(rows []styled, room, serving int) []styled {
	if len(rows) <= room || room < 1 {
		return rows[:max(0, min(len(rows), room))]
	}
	more := styled{fmt.Sprintf("... %d more lines; those that serve, %d, come last", len(rows)-room+1, serving), grey}
	return append(slices.Clone(rows[:room-1]), more)
}

// cut returns text on one line of so many columns, 0 for any number.
func cut(text string, columns int) string {
	r := []rune(terminal.Clean(text))
	switch {
	case columns == 0 || len(r) <= columns:
	case columns < 4:
		r = r[:columns]
	default:
		r = append(r[:columns-3], '.', '.', '.')
	}
	return string(r)
}

// topJSON is what --json prints.
type topJSON struct {
	Time       time.Time             `json:"time"`
	Answered   int                   `json:"answered"` // workers
	Serving    int                   `json:"serving"`
	Segments   float64               `json:"segment_ids_per_second"`
	Snowflakes float64               `json:"snowflake_ids_per_second"`
	Requests   float64               `json:"requests_per_second"`
	Waiting    int                   `json:"waiting"`
	Trouble    string                `json:"trouble,omitempty"` // why the worker numbers are not as of now
	Alarms     []subjects.AlarmEvent `json:"alarms"`            // the latest of the last 24 hours
	AlarmsIn24 int                   `json:"alarms_in_24h"`
	Workers    []topWorkerJSON       `json:"workers"` // by name
}

// topWorkerJSON is a worker, as it was when it last answered.
type topWorkerJSON struct {
	Name     string            `json:"name"`
	Answered bool              `json:"answered"`
	State    string            `json:"state"`
	Why      []string          `json:"why,omitempty"`
	Number   *int              `json:"number"`                        // null if it has none
	Window   float64           `json:"window_seconds"`                // left
	OffsetMs int64             `json:"offset_ms"`                     // its clock minus JetStream's
	Requests *float64          `json:"requests_per_second,omitempty"` // absent before it is known
	IDs      *float64          `json:"ids_per_second,omitempty"`
	Waiting  int               `json:"waiting"`
	Lag      subjects.Fraction `json:"lag_seconds"`
	Version  string            `json:"version"`
}

func (v topView) json() topJSON {
	out := topJSON{
		Time: v.at.UTC(), Answered: v.answered, Serving: v.Ready, Segments: v.Segments, Snowflakes: v.Snowflakes,
		Requests: v.Requests, Waiting: v.Waiting, AlarmsIn24: v.today, Workers: []topWorkerJSON{},
		Alarms: append([]subjects.AlarmEvent{}, v.alarms...),
	}
	if v.Registry != nil {
		out.Trouble = v.Registry.Error()
	}
	for _, r := range v.Rows {
		w := topWorkerJSON{
			Name: r.Name(), Answered: r.Answered, State: r.State, Why: r.Why, Number: r.Statistics.Number,
			Window: r.Window.Seconds(), OffsetMs: r.OffsetMs, Waiting: r.Waiting, Lag: r.Lag, Version: r.Version,
		}
		if r.Known {
			w.Requests, w.IDs = &r.Requests, &r.IDs
		}
		out.Workers = append(out.Workers, w)
	}
	return out
}
