package main_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A document longer than this has more than one reader, or says something
// twice. Lines and words are counted as wc does.
var (
	maxLines = map[string]int{"README.md": 155, "CONTRIBUTING.md": 60}
	maxWords = map[string]int{
		"docs/architecture.md": 1450, "docs/operations.md": 4000, "docs/uniqueness.md": 2000, "README.md": 1000,
		"docs/reference.md": 4000, "docs/layouts.md": 350,
		"docs/client-laws.md": 800, "docs/speed.md": 700, "docs/from-sequences.md": 350, "docs/from-leaf.md": 1200,
		"docs/faults.md": 800, "docs/security.md": 1000, "docs/testing.md": 700, "docs/numbers.md": 500,
	}
)

const (
	maxParagraph = 120    // words
	maxAll       = 25_000 // words of README and docs together
)

// flagsOfOthers are flags in documents that belong to other programs.
// They are of docker compose, sha256sum, systemctl, nats and helm.
var flagsOfOthers = []string{"build", "defaults", "ignore-missing", "now", "raw", "set", "subjects"}

func TestDocumentsStayShort(t *testing.T) {
	expectNone(t, longDocuments(documents(t, os.DirFS("."))))
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	expectNone(t, deadLinks(os.DirFS("."), documents(t, os.DirFS("."))))
}

func TestWhatDocumentsNameExists(t *testing.T) {
	expectNone(t, unknownNames(t, documents(t, os.DirFS("."))))
}

func TestCodeThatDocumentsNameExists(t *testing.T) {
	expectNone(t, unknownCode(t, os.DirFS("."), documents(t, os.DirFS("."))))
}

func TestATermIsExplainedOnce(t *testing.T) {
	expectNone(t, repeatedTerms(documents(t, os.DirFS("."))))
}

func TestEveryAlarmHasAnAlertAndEveryAlertARunbookEntry(t *testing.T) {
	page, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, runbook, _ := strings.Cut(string(page), "\n## Runbook\n")
	runbook, _, _ = strings.Cut(runbook, "\n## ")
	entries := map[string]string{}
	for _, e := range strings.Split(runbook, "\n### ")[1:] {
		kind, text, _ := strings.Cut(e, "\n")
		entries[kind] = text
		for _, part := range []string{"Check", "Do"} {
			if strings.Count(text, "*"+part+":*") != 1 {
				t.Errorf("the runbook's entry %s does not say once: %s", kind, part)
			}
		}
	}
	led := set{}
	for _, a := range alerts(t) {
		led[a.entry()] = true
		if name := "Natsid" + camel(a.entry()); a.Alert != name {
			t.Errorf("the alert %s leads to the entry %s, which is that of %s", a.Alert, a.entry(), name)
		}
		if entries[a.entry()] == "" {
			t.Errorf("the alert %s leads to %s, which the runbook lacks", a.Alert, a.Annotations.Runbook)
		}
		if s := a.Labels.Severity; s != "critical" && s != "warning" {
			t.Errorf("the alert %s has the severity %q, want critical or warning", a.Alert, s)
		}
	}
	for _, a := range wire.Alarms() {
		if !led[string(a.Kind)] {
			t.Errorf("deploy/alerts.yml has no alert for the alarm %s", a.Kind)
		}
	}
	for kind := range entries {
		if !led[kind] {
			t.Errorf("no alert leads to the runbook's entry %s", kind)
		}
	}
}

// camel writes clock-skew as ClockSkew.
func camel(kind string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(kind, "-") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// What operators import into Prometheus and Grafana names series, too.
func TestSeriesThatRulesAndBoardsNameExist(t *testing.T) {
	var docs []document
	for _, path := range []string{"deploy/alerts.yml", "deploy/grafana/natsid.json"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, document{path: path, text: string(text)})
	}
	expectNone(t, unknownNames(t, docs))
}

// docs/faults.md is printed by a run of 15 minutes. Its fixed text can be
// changed without one, in both places.
func TestTheFaultsPageHasTheTextOfItsTemplate(t *testing.T) {
	page, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"proof/faults/about.md", "proof/faults/record.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "{{") && !strings.Contains(string(page), line) {
				t.Errorf("docs/faults.md lacks this line of %s: %s", name, line)
			}
		}
	}
}

// Each check is seen to find what it looks for.
func TestAWrongDocumentIsSeen(t *testing.T) {
	long := strings.Repeat("word ", maxParagraph+1)
	for _, tc := range []struct {
		law, path, text string
		want            string // part of the fault
	}{
		{"a long paragraph", "docs/a.md", long, "has 121 words"},
		{"a long list item", "docs/a.md", "- a\n- " + long, "has 121 words"},
		{"a long table cell", "docs/a.md", "| a | " + long + " |", "has 121 words"},
		{"too many lines", "README.md", strings.Repeat("\n", 156), "156 lines"},
		{"too many words in all", "docs/a.md", strings.Repeat("word\n\n", maxAll), "README and docs have 25002 words"},
		{"too many words", "docs/architecture.md", strings.Repeat("word\n\n", 1451), "1451 words"},

		{"a link to no file", "docs/a.md", "[b](main.go)", "docs/main.go"},
		{"a link to no heading", "docs/a.md", "[b](#none)", "no such heading"},
		{"a link to no heading elsewhere", "docs/a.md", "[b](../README.md#none)", "no such heading"},

		{"no flag", "docs/a.md", "`--none`", "--none"},
		{"no variable", "docs/a.md", "NATSID_NONE", "NATSID_NONE"},
		{"no metric", "docs/a.md", "natsid_none", "natsid_none"},
		{"no alarm", "docs/a.md", "id.alarm.none", "id.alarm.none"},
		{"no alarm by its name alone", "docs/a.md", "`clock-steps`", "clock-steps"},
		{"no code", "docs/a.md", "answered 502", "502"},

		{"no function", "docs/architecture.md", "`thing.done`", "thing.done"},
		{"no file", "docs/architecture.md", "`lib/things.go`", "lib/things.go"},
		{"no test", "docs/a.md", "-run 'Things|Others'", "Others"},

		{"one term twice", "docs/glossary.md", "- **a**, **b**: x\n- **b**: y", `"b"`},
	} {
		t.Run(tc.law, func(t *testing.T) {
			fsys := fstest.MapFS{
				"README.md": {Data: []byte("# Readme\n")},
				"main.go":   {Data: []byte("package main")},
				"thing.go":  {Data: []byte("package main\nfunc (t *thing) do() {}\nfunc TestThings() {}\n")},
			}
			fsys[tc.path] = &fstest.MapFile{Data: []byte(tc.text)}
			docs := documents(t, fsys)
			expect(t, tc.want, slices.Concat(
				longDocuments(docs), deadLinks(fsys, docs), unknownNames(t, docs), unknownCode(t, fsys, docs),
				repeatedTerms(docs)))
		})
	}
}

func expectNone(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults {
		t.Error(fault)
	}
}

// A document is a file in Markdown.
type document struct {
	path  string
	text  string
	prose []string // its lines, those of code blocks and comments empty
}

// documents returns the Markdown of the root and of docs.
func documents(t *testing.T, fsys fs.FS) (docs []document) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := fs.Glob(fsys, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			text, err := fs.ReadFile(fsys, p)
			if err != nil {
				t.Fatal(err)
			}
			docs = append(docs, document{p, string(text), prose(string(text))})
		}
	}
	return docs
}

func prose(text string) []string {
	lines := strings.Split(text, "\n")
	code := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if code || fence || strings.HasPrefix(line, "<!--") {
			lines[i] = ""
		}
		code = code != fence
	}
	return lines
}

func longDocuments(docs []document) (faults []string) {
	all := 0
	for _, d := range docs {
		if d.path == "README.md" || path.Dir(d.path) == "docs" {
			all += len(strings.Fields(d.text))
		}
		if n, limit := strings.Count(d.text, "\n"), maxLines[d.path]; limit > 0 && n > limit {
			faults = append(faults, fmt.Sprintf("%s has %d lines, want at most %d", d.path, n, limit))
		}
		if n, limit := len(strings.Fields(d.text)), maxWords[d.path]; limit > 0 && n > limit {
			faults = append(faults, fmt.Sprintf("%s has %d words, want at most %d", d.path, n, limit))
		}
		for _, p := range paragraphs(d.prose) {
			words := strings.Fields(p)
			if n := len(words); n > maxParagraph {
				faults = append(faults, fmt.Sprintf(
					"%s: the paragraph that starts with %q has %d words, want at most %d",
					d.path, strings.Join(words[:6], " "), n, maxParagraph))
			}
		}
	}
	if all > maxAll {
		faults = append(faults, fmt.Sprintf("README and docs have %d words, want at most %d", all, maxAll))
	}
	return faults
}

var listItem = regexp.MustCompile(`^\s*([-*]|\d+\.) `)

// paragraphs returns the paragraphs, list items and table cells of a text.
func paragraphs(lines []string) (found []string) {
	var open []string
	shut := func() {
		found = append(found, strings.Join(open, " "))
		open = nil
	}
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "|"):
			shut()
			found = append(found, strings.Split(line, "|")...)
			continue
		case line == "", strings.HasPrefix(line, "#"), listItem.MatchString(line):
			shut()
		}
		open = append(open, listItem.ReplaceAllString(line, ""))
	}
	shut()
	return found
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// deadLinks returns a fault for each link to a file or heading that is not there.
func deadLinks(fsys fs.FS, docs []document) (faults []string) {
	headings := map[string][]string{}
	for _, d := range docs {
		headings[d.path] = anchors(d.prose)
	}
	for _, d := range docs {
		for _, m := range link.FindAllStringSubmatch(strings.Join(d.prose, "\n"), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := d.path
			if file != "" {
				target = path.Join(path.Dir(d.path), file)
			}
			if _, err := fs.Stat(fsys, target); err != nil {
				faults = append(faults, fmt.Sprintf("%s links to %s, which does not exist", d.path, target))
			} else if anchor != "" && !slices.Contains(headings[target], anchor) {
				faults = append(faults, fmt.Sprintf("%s links to #%s of %s: no such heading", d.path, anchor, target))
			}
		}
	}
	return faults
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchors returns the names that GitHub gives to the headings.
func anchors(lines []string) (names []string) {
	seen := map[string]int{}
	for _, line := range lines {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		name = strings.ReplaceAll(notInAnchor.ReplaceAllString(name, ""), " ", "-")
		if n := seen[name]; n > 0 {
			names = append(names, fmt.Sprintf("%s-%d", name, n))
		} else {
			names = append(names, name)
		}
		seen[name]++
	}
	return names
}

type set map[string]bool

// A naming finds names of one kind in documents, and knows which exist.
type naming struct {
	kind  string
	find  *regexp.Regexp // its first group is the name
	exist set
}

func unknownNames(t *testing.T, docs []document) (faults []string) {
	for _, n := range namings(t) {
		for _, d := range docs {
			for _, m := range n.find.FindAllStringSubmatch(d.text, -1) {
				if !n.exist[m[1]] {
					faults = append(faults, fmt.Sprintf("%s names the %s %s: there is none", d.path, n.kind, m[0]))
				}
			}
		}
	}
	return faults
}

func namings(t *testing.T) []naming {
	flags, err := commandLineFlags()
	if err != nil {
		t.Fatal(err)
	}
	variables, kinds, codes, series := set{"NATSID_WORKER_NUMBER": true}, set{}, set{}, set{}
	for _, s := range app.Settings() {
		variables[s.Env] = true
	}
	for _, a := range wire.Alarms() {
		kinds[string(a.Kind)] = true
	}
	for _, c := range subjects.Codes() {
		codes[c.Code.String()] = true
	}
	for _, s := range slices.Concat(metrics.Series(), metrics.StageSeries()) {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			series[s.Name+suffix] = true
		}
	}
	return []naming{
		{"flag", regexp.MustCompile(`--([a-z][a-z-]+)`), flags},
		{"environment variable", regexp.MustCompile(`\b(NATSID_[A-Z_]+|NATS_[A-Z]+)\b`), variables},
		{"metric", regexp.MustCompile(`\b(natsid_[a-z_]+)`), series},
		{"alarm", regexp.MustCompile(`\bid\.alarm\.([a-z-]+)`), kinds},
		{"alarm", regexp.MustCompile("`((?:clock|marks|numbers?|state|table|time)-[a-z-]+)`"), kinds},
		{"code", regexp.MustCompile(`\b(?:answer|answers|answered|code|get|gets) ([45]\d\d)\b`), codes},
	}
}

// commandLineFlags returns the flags in the help of all commands. Each help takes a parser of its own.
var commandLineFlags = sync.OnceValues(func() (set, error) {
	flags := set{}
	for _, name := range flagsOfOthers {
		flags[name] = true
	}
	for _, command := range []string{
		"connection", "serve", "permissions", "get segment", "get snowflake", "bench segment", "bench snowflake",
		"tag create", "tag update", "tag delete", "tag list",
		"throttle", "explain", "audit", "store move", "resume", "stamp run", "status", "workers",
		"health", "read", "decode", "number", "layout",
	} {
		var help, stderr bytes.Buffer
		ctx, args := context.Background(), append([]string{"help"}, strings.Fields(command)...)
		if code := cli.Main(ctx, args, &help, &stderr); code != 0 {
			return nil, fmt.Errorf("natsid help %s: exit code %d: %s", command, code, &stderr)
		}
		for _, m := range regexp.MustCompile(`--(\[no-\])?([a-z][a-z-]+)`).FindAllStringSubmatch(help.String(), -1) {
			flags[m[2]] = true
			flags["no-"+m[2]] = flags["no-"+m[2]] || m[1] != ""
		}
	}
	return flags, nil
})

var term = regexp.MustCompile(`\*\*([^*]+)\*\*`)

// repeatedTerms returns a fault for each term that the glossary explains twice.
func repeatedTerms(docs []document) (faults []string) {
	seen := set{}
	for _, d := range docs {
		if d.path != "docs/glossary.md" {
			continue
		}
		for _, m := range term.FindAllStringSubmatch(strings.Join(d.prose, "\n"), -1) {
			if seen[m[1]] {
				faults = append(faults, fmt.Sprintf("%s explains %q twice", d.path, m[1]))
			}
			seen[m[1]] = true
		}
	}
	return faults
}
