package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/natsid/natsid/internal/app"
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
		{"tag list", []subjects.TagInfo{}}, {"tag list --stats", []wire.WorkerStats{}},
		{"store move", movedJSON{}},
		{"resume", resumeJSON{}},
		{"explain", explainedJSON{}}, {"audit", auditJSON{}},
		{"status", statusJSON{}}, {"workers", []numberRow{}},
		{"health", healthJSON{}},
		{"stamp", stampJSON{}}, {"stamp --repair", stampStatusJSON{}}, {"stamp --status", stampStatusJSON{}},
		{"bench segment", benchJSON{}}, {"bench snowflake", benchJSON{}},
		{"leaf", leafJSON{}},
		{"decode", partsJSON{}}, {"layout", layoutJSON{}},
		{"test-server", testServerJSON{}},
		{"permissions", rightsJSON{}}, {"config", []valueJSON{}}, {"--version", versionJSON{}},
	}
}

// plain prints what a terminal shows and does not obey: names of workers and tags, descriptions and alarms are what
// others wrote. Everything that a command prints goes through it.
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

// print prints the outcome of a command: value as JSON on one line with --json, otherwise the output of text. Both go
// to standard output; messages go to standard error. Tabs in the text make columns, aligned over adjacent lines.
func (o *output) print(value any, text func(out io.Writer)) error {
	var all bytes.Buffer // so that one write reports whether all was written
	if o.json {
		out := json.NewEncoder(&all)
		out.SetEscapeHTML(false)
		if err := out.Encode(value); err != nil {
			return err
		}
	} else {
		out := tabwriter.NewWriter(&all, 0, 0, 2, ' ', 0)
		text(out)
		if err := out.Flush(); err != nil {
			return err
		}
	}
	_, err := o.stdout.Write(all.Bytes())
	return err
}

// numberOf returns a number of things: "1 tag", "2 tags", "2 entries", "2 processes".
func numberOf(n int, thing string) string {
	stem, isY := strings.CutSuffix(thing, "y")
	switch {
	case n == 1:
		return "1 " + thing
	case isY:
		return fmt.Sprintf("%d %sies", n, stem)
	case strings.HasSuffix(thing, "s"):
		return fmt.Sprintf("%d %ses", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}

// asks asks a question, and reports whether the answer is yes.
func (o *output) asks(question string) bool {
	fmt.Fprintf(o.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // no answer means no
	a := strings.ToLower(strings.TrimSpace(answer))
	return a == "y" || a == "yes"
}

// agree returns an error unless the answer to a question is yes, or was given before, by --yes.
func (o *output) agree(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !isTerminal(os.Stdin):
		return errNoTerminal
	case !o.asks(question):
		return errors.New("nothing was changed")
	}
	return nil
}

var errNoTerminal = usage(errors.New("there is no terminal to ask on; give --yes"))

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
