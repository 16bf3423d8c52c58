package wire_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

func TestEveryAlarmIsExplainedAndASubject(t *testing.T) {
	var listed []string
	for _, a := range wire.Alarms() {
		listed = append(listed, string(a.Kind))
		wantClause(t, string(a.Kind), a.Happened)
		wantClause(t, string(a.Kind), a.Do)
		subject := wire.AlarmSubject("id", a.Kind)
		if !regexp.MustCompile(`^id\.alarm\.[a-z]+(-[a-z]+)*$`).MatchString(subject) {
			t.Errorf("subject %q", subject)
		}
	}
	declared := slices.Sorted(maps.Values(constants(t, "alarm.go", "Alarm")))
	if slices.Sort(listed); !slices.Equal(declared, listed) {
		t.Errorf("declared are %q, listed %q", declared, listed)
	}
}

func TestEveryCodeIsExplained(t *testing.T) {
	var listed []string
	for _, c := range subjects.Codes() {
		listed = append(listed, c.Code.String())
		wantClause(t, c.Code.String(), c.Meaning)
		wantClause(t, c.Code.String(), c.Do)
	}
	declared := constants(t, "../../subjects/code.go", "Code")
	if want := slices.Sorted(maps.Values(declared)); !slices.Equal(want, listed) {
		t.Errorf("declared are %q, listed %q", want, listed)
	}
}

// workerid may not import wire, so it has kinds of its own. The other
// packages that raise alarms name a constant of wire.
func TestEachKindOfAlarmIsRaised(t *testing.T) {
	raised := map[string]bool{}
	for _, file := range sources(t, "../../workerid") {
		for _, kind := range constants(t, file, "Alarm") {
			raised[kind] = true
		}
	}
	kinds := constants(t, "alarm.go", "Alarm")
	for _, dir := range []string{"..", "../../worker", "../../segment", "../../kvregistry"} {
		for _, file := range sources(t, dir) {
			ast.Inspect(parse(t, file), func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && kinds[sel.Sel.Name] != "" {
					raised[kinds[sel.Sel.Name]] = true
				}
				return true
			})
		}
	}
	for _, a := range wire.Alarms() {
		if !raised[string(a.Kind)] {
			t.Errorf("%s is raised by nobody", a.Kind)
		}
		delete(raised, string(a.Kind))
	}
	for kind := range raised {
		t.Errorf("kind %s is raised but not in the table of wire.Alarms", kind)
	}
}

// wantClause checks that a text fits a cell of a Markdown table.
func wantClause(t *testing.T, of, text string) {
	t.Helper()
	if text == "" || strings.ContainsAny(text, "|\n") || strings.HasSuffix(text, ".") {
		t.Errorf("%s: %q is not one clause", of, text)
	}
}

// sources returns the Go files below dir, without tests.
func sources(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	return files
}

// constants returns the values, by name, of the constants of a type in a file.
func constants(t *testing.T, file, typ string) map[string]string {
	t.Helper()
	values := map[string]string{}
	ast.Inspect(parse(t, file), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != typ || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			values[spec.Names[0].Name] = unquoted(lit.Value)
		}
		return true
	})
	return values
}

func unquoted(literal string) string {
	if s, err := strconv.Unquote(literal); err == nil {
		return s
	}
	return literal
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
