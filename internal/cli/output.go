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

// An Output is the output of a command with --json.
type Output struct {
	Command string // without "natsid"
	Value   any    // a value of the printed type
}

// Outputs returns the outputs of all commands with --json. docs/reference.md shows it.
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

// plain replaces characters that control a terminal. Everything that a command prints goes through it.
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

// output is where a command prints.
type output struct {
	stdout, stderr io.Writer
	json           bool // the outcome is printed as JSON, for programs
}

// print prints the outcome of a command: value as JSON on one line with --json, otherwise the text. Both go to standard
// output; messages go to standard error.
func (o *output) print(value any, text func(*sheet)) error {
	all := new(bytes.Buffer) // so that one write reports whether all was written
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

// A sheet is a text for people: tables, facts and sentences. Names of workers and tags, descriptions and alarms come
// from others: a newline or tab in them begins no line or column.
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

// head begins a table: its columns, in capitals, with tabs between them.
func (s *sheet) head(columns string) {
	if s.begun {
		fmt.Fprintln(s)
	}
	s.begun = true
	fmt.Fprintln(s, columns)
}

// row prints a row of a table, or a fact: its name and its value.
func (s *sheet) row(cells ...any) {
	all := make([]string, len(cells))
	for i, c := range cells {
		all[i] = cell(c)
	}
	s.begun = true
	fmt.Fprintln(s, strings.Join(all, "\t"))
}

// line prints a sentence.
func (s *sheet) line(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = clean(text)
		}
	}
	s.begun = true
	fmt.Fprintf(s, format+"\n", args...)
}

// cell returns the text of a value in a table or fact: a time as RFC 3339 in UTC, a duration as 3m20s, and a dash if
// there is no value.
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
	if text == "–" { // the page's sign for no value
		text = ""
	}
	return cmp.Or(text, "-")
}

// exact returns a time with its milliseconds.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// clean returns a text on one line.
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
