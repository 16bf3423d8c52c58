package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// An Output is what a command prints with --json.
type Output struct {
	Command string // without "natsid"
	Value   any    // any value of the type that is printed
}

// Outputs returns what each command prints with --json. docs/reference.md is made from it.
func Outputs() []Output {
	return []Output{
		{"serve", app.Where{}},
		{"get segment", idsJSON{}}, {"get snowflake", idsJSON{}},
		{"read", idJSON{}},
		{"throttle", wire.Throttle{}},
		{"tag create", subjects.TagInfo{}}, {"tag update", subjects.TagInfo{}}, {"tag delete", subjects.TagInfo{}},
		{"tag list", []subjects.TagInfo{}}, {"tag stats", []wire.WorkerStats{}},
		{"store move", movedJSON{}},
		{"resume", lineage.Plan{}},
		{"explain", explainedJSON{}}, {"audit", auditJSON{}},
		{"status", statusJSON{}}, {"workers", []numberRow{}},
		{"health", healthJSON{}},
		{"stamp run", stampJSON{}}, {"stamp status", stampStatusJSON{}}, {"stamp repair", stampStatusJSON{}},
		{"bench segment", benchJSON{}}, {"bench snowflake", benchJSON{}},
		{"leaf", leafJSON{}},
		{"decode", partsJSON{}}, {"layout", layoutJSON{}},
		{"test-server", testServerJSON{}},
		{"permissions", rightsJSON{}}, {"config", []app.Value{}}, {"--version", versionJSON{}},
	}
}

// plain replaces characters that control a terminal: names come from others. All that a command prints goes through
// it.
type plain struct{ io.Writer }

// Write implements [io.Writer].
func (p plain) Write(text []byte) (int, error) {
	_, err := p.Writer.Write(bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, text))
	return len(text), err
}

type output struct {
	stdout, stderr io.Writer
	json           bool // set by --json: the outcome is printed for programs
}

// print prints the outcome of a command on standard output: the value as one line of JSON with --json, otherwise the
// text. Other messages go to standard error.
func (o *output) print(value any, text func(*sheet)) error {
	all := new(bytes.Buffer) // one write, whose error says whether all was written
	if o.json {
		out := json.NewEncoder(all)
		out.SetEscapeHTML(false)
		if err := out.Encode(value); err != nil {
			return err
		}
	} else {
		all = typeset(text)
	}
	_, err := o.stdout.Write(all.Bytes())
	return err
}

// A sheet is a text for people: tables, facts and sentences. Some values are written by others, such as descriptions
// of tags: a newline or tab in a value must not begin a line or column, and becomes a space.
type sheet struct {
	*tabwriter.Writer
	begun bool
}

func typeset(text func(*sheet)) *bytes.Buffer {
	all := new(bytes.Buffer)
	s := &sheet{Writer: tabwriter.NewWriter(all, 0, 0, 2, ' ', 0)}
	text(s)
	_ = s.Flush() // cannot fail
	return all
}

// head begins a table. columns are its headings, in capitals, separated by tabs.
func (s *sheet) head(columns string) {
	if s.begun {
		fmt.Fprintln(s)
	}
	s.begun = true
	fmt.Fprintln(s, columns)
}

// row prints a row of a table, or a fact: a name and its value.
func (s *sheet) row(cells ...any) {
	all := make([]string, len(cells))
	for i, c := range cells {
		all[i] = cell(c)
	}
	s.begun = true
	fmt.Fprintln(s, strings.Join(all, "\t"))
}

func (s *sheet) line(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = clean(text)
		}
	}
	s.begun = true
	fmt.Fprintf(s, format+"\n", args...)
}

// cell returns the text of a value in a table or fact: a time as RFC 3339 in UTC, a duration as 3m20s, no value as a
// dash.
func cell(value any) (text string) {
	switch v := value.(type) {
	case time.Time:
		if !v.IsZero() {
			text = v.UTC().Format(time.RFC3339)
		}
	case time.Duration:
		text = fleetview.Span(v)
	case *int:
		if v != nil {
			text = strconv.Itoa(*v)
		}
	default:
		text = clean(fmt.Sprint(v))
	}
	if text == "–" { // so fleetview writes that there is no value
		text = ""
	}
	return cmp.Or(text, "-")
}

// exact returns a time as RFC 3339 in UTC, with milliseconds.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// clean returns a text in which each newline, tab and other white space is a space.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
}

// numberOf returns a number of things: "1 tag", "2 tags", "2 entries".
func numberOf(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, isY := strings.CutSuffix(thing, "y"); isY {
		thing = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
