package main_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

var update = flag.Bool("update", false, "rewrite what documents take from the code")

// Between these two lines a document repeats what the code says. The name says
// which part.
var made = regexp.MustCompile(`(?ms)^<!-- made: ([a-z -]+) -->\n(.*?)^<!-- end -->$`)

// An entry of the runbook about an alarm begins with what the code says of that alarm.
var alarmEntry = regexp.MustCompile(`(?m)^### ([a-z-]+)\n\n\*Event:\* .*\n\n\*Do:\* .*\n`)

// parts returns what documents take from the code, by name.
func parts() map[string]string {
	all := map[string]string{
		"settings": settingsTable(), "outputs": outputsTable(), "exit codes": exitsTable(),
		"subjects":       subjectsTable(wire.Subjects(subjects.DefaultNamespace)),
		"inner subjects": subjectsTable(wire.Inner(subjects.DefaultNamespace)),
		"codes":          codesTable(), "imports": house(),
		"alarms": alarmsTable(), "metrics": metricsTable(metrics.Series()),
		"stage metrics": metricsTable(metrics.StageSeries()),
	}
	for _, a := range wire.Alarms() {
		all["alarm "+string(a.Kind)] = fmt.Sprintf("### %s\n\n*Event:* %s\n\n*Do:* %s\n",
			a.Kind, sentence(a.Happened), sentence(a.Do))
	}
	return all
}

func TestReferenceIsMadeFromTheCode(t *testing.T) {
	left := parts()
	for _, d := range documents(t, os.DirFS(".")) {
		take := func(block, name string) (part string, ok bool) {
			if part, ok = left[name]; !ok {
				t.Errorf("%s has a part %q, which is not made from the code, or stands in two places", d.path, name)
				return block, false
			}
			delete(left, name)
			return part, true
		}
		text := made.ReplaceAllStringFunc(d.text, func(block string) string {
			name := made.FindStringSubmatch(block)[1]
			part, ok := take(block, name)
			if !ok {
				return block
			}
			return fmt.Sprintf("<!-- made: %s -->\n%s<!-- end -->", name, part)
		})
		text = alarmEntry.ReplaceAllStringFunc(text, func(block string) string {
			part, _ := take(block, "alarm "+alarmEntry.FindStringSubmatch(block)[1])
			return part
		})
		if text == d.text {
			continue
		}
		if !*update {
			t.Errorf("%s is not what the code says: run go test . -run TestReference -update", d.path)
		} else if err := os.WriteFile(d.path, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	for name := range left {
		t.Errorf("no document shows %q: write <!-- made: %s --> and <!-- end --> where it belongs, or an alarm's "+
			"entry with *Event:* . and *Do:* .", name, name)
	}
}

// A table is Markdown: the first row is its head.
func table(rows ...[]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	return b.String()
}

// literal marks a text as code, if there is one.
func literal(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// sentence writes a clause as a sentence.
func sentence(clause string) string {
	if clause == "" {
		return ""
	}
	if strings.HasPrefix(clause, "`") {
		return clause + "."
	}
	return strings.ToUpper(clause[:1]) + clause[1:] + "."
}

func exitsTable() string {
	rows := [][]string{{"exit code", "meaning"}}
	for _, e := range cli.Exits() {
		rows = append(rows, []string{strconv.Itoa(e.Code), e.Meaning})
	}
	return table(rows...)
}

func settingsTable() string {
	var b strings.Builder
	group := ""
	var rows [][]string
	flush := func() {
		if len(rows) > 1 {
			fmt.Fprintf(&b, "### %s\n\n%s\n", group, table(rows...))
		}
	}
	for _, s := range app.Settings() {
		if s.Group != group {
			flush()
			group, rows = s.Group, [][]string{{"flag", "default; valid", "meaning"}}
		}
		flag := literal("--" + s.Flag)
		if s.Env != "NATSID_"+strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_")) {
			flag += ", " + literal(s.Env)
		}
		valid := literal(s.Default)
		if valid != "" && s.Range != "" {
			valid += "; "
		}
		rows = append(rows, []string{flag, valid + s.Range, s.Help})
	}
	flush()
	return b.String()
}

// outputsTable shows what commands print with --json, those that print the same in one row.
func outputsTable() string {
	rows := [][]string{{"command", "prints"}}
	for _, o := range cli.Outputs() {
		command, prints := literal(o.Command), shape(reflect.TypeOf(o.Value))
		if last := rows[len(rows)-1]; last[1] == prints {
			last[0] += ", " + command
			continue
		}
		rows = append(rows, []string{command, prints})
	}
	return table(rows...)
}

// shape returns the names of the fields of a type's JSON. What stands elsewhere in the reference is named.
func shape(t reflect.Type) string {
	for name, known := range map[string]any{
		"Tag": subjects.TagInfo{}, "statistics": wire.WorkerStats{},
	} {
		switch t {
		case reflect.TypeOf(known):
			return "a [" + name + "](#json)"
		case reflect.SliceOf(reflect.TypeOf(known)):
			return "an array of [" + name + "](#json)"
		}
	}
	return literal(names(t))
}

func names(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return names(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "[" + names(t.Elem()) + "]"
	case t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]():
		return ""
	}
	var all []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			below := names(f.Type)
			if below != "" {
				below = ":" + below
			}
			all = append(all, strconv.Quote(name)+below)
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

func subjectsTable(infos []wire.SubjectInfo) string {
	rows := [][]string{{"subject", "body", "reply"}}
	for _, s := range infos {
		rows = append(rows, []string{literal(s.Subject), s.Body, s.Reply})
	}
	return table(rows...)
}

func codesTable() string {
	rows := [][]string{{"code", "meaning", "what the caller does"}}
	for _, c := range subjects.Codes() {
		rows = append(rows, []string{c.Code.String(), c.Meaning, c.Do})
	}
	return table(rows...)
}

// alarmsTable links each kind to its entry in the runbook, which explains it.
func alarmsTable() string {
	var kinds []string
	for _, a := range wire.Alarms() {
		kinds = append(kinds, fmt.Sprintf("[%s](operations.md#%[1]s)", a.Kind))
	}
	return strings.Join(kinds, ",\n") + "\n"
}

func metricsTable(series []metrics.SeriesInfo) string {
	rows := [][]string{{"metric", "meaning"}}
	for _, s := range series {
		labels := ""
		if s.Labels != "" {
			labels = "{" + strings.ReplaceAll(s.Labels, ", ", ",") + "}"
		}
		help := s.Help
		if s.Type == "histogram" {
			help = "Histogram: " + help
		}
		rows = append(rows, []string{literal(s.Name + labels), help})
	}
	return table(rows...)
}

// An alert is a rule of deploy/alerts.yml.
type alert struct {
	Alert, Expr string
	Labels      struct{ Severity string }
	Annotations struct {
		Summary, Description string
		Runbook              string `yaml:"runbook_url"`
	}
}

const runbook = "https://github.com/natsid/natsid/blob/main/docs/operations.md#"

// entry returns the entry of the runbook to which the alert leads.
func (a alert) entry() string { return strings.TrimPrefix(a.Annotations.Runbook, runbook) }

// alerts returns the rules of deploy/alerts.yml that are alerts.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	text, err := os.ReadFile("deploy/alerts.yml")
	if err == nil {
		err = yamlv3.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				all = append(all, r)
			}
		}
	}
	return all
}

// house shows the floors and their rooms. Rooms of one folder share a line.
func house() string {
	var b strings.Builder
	b.WriteString("```\n")
	for _, f := range floors {
		fmt.Fprintf(&b, "%s: %s\n", strings.ToUpper(f.name), f.says)
		folders := map[string][]string{}
		for dir := range f.rows {
			folder, room := path.Split(strings.Replace(dir, ".", "main.go", 1))
			folders[folder] = append(folders[folder], room)
		}
		for _, folder := range slices.Sorted(maps.Keys(folders)) {
			slices.Sort(folders[folder])
			line := fmt.Sprintf("    %-20s %s", folder, strings.Join(folders[folder], " "))
			fmt.Fprintln(&b, strings.TrimRight(line, " "))
		}
	}
	b.WriteString("```\n")
	return b.String()
}
