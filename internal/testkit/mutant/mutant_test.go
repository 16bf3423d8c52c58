package mutant

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `package p

type counter struct {
	n int //mutant:field
}

//mutant:declaration
func (c *counter) add(by int) int {
	c.n += by //mutant:add
	//mutant:check
	// Why it is checked.
	if c.n > 9 {
		c.n = 0
	}
	switch {
	case by == 0: //mutant:case
		return -1
	case by == 1: return 1; //mutant:one
	}
	for { //mutant:loop
		break
	}
	//mutant:call
	func() {
		c.n--
	}()
	return c.n
}
`

func folder(t *testing.T, src string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestASeamNamesTheOutermostThingThatBeginsOnItsLine(t *testing.T) {
	dir := folder(t, source)
	seams, err := find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"field": "n int",
		"add":   "c.n += by",
		"check": "if c.n > 9 {\n\t\tc.n = 0\n\t}",
		"case":  "case by == 0: //mutant:case\n\t\treturn -1",
		"one":   "case by == 1: return 1",
		"loop":  "for { //mutant:loop\n\t\tbreak\n\t}",
		"call":  "func() {\n\t\tc.n--\n\t}()",
	} {
		s, err := lookup(seams, name)
		if err != nil {
			t.Error(err)
		} else if got := source[s.from:s.to]; got != want {
			t.Errorf("seam %s names %q, want %q", name, got, want)
		}
	}
	s, err := lookup(seams, "declaration")
	if err != nil || !strings.HasPrefix(source[s.from:s.to], "func (c *counter) add") {
		t.Errorf("seam declaration names %q, %v", source[s.from:s.to], err)
	}
}

func TestEachFaultIsReported(t *testing.T) {
	const head = "package p\n\nfunc f() {\n"
	for name, c := range map[string]struct {
		src   string
		edits []Edit
		want  string // part of the error; "" for none
	}{
		"none":                     {"f() //mutant:a\n", []Edit{Delete("a")}, ""},
		"a seam that is missing":   {"f()\n", []Edit{Delete("a")}, `no code bears seam "a"`},
		"a seam at two places":     {"f() //mutant:a\nf() //mutant:a\n", []Edit{Delete("a")}, "ambiguous"},
		"two statements on a line": {"f(); f() //mutant:a\n", []Edit{Delete("a")}, "2 begin on line 4"},
		"no statement on its line": {
			"f() //mutant:b\n\n//mutant:a\n", []Edit{Delete("a"), Delete("b")}, "0 begin on line",
		},
		"a seam without a mutant": {
			"f() //mutant:a\nf() //mutant:b\n", []Edit{Delete("a")}, `no mutant edits seam "b"`,
		},
		"an edit within another": {
			"if true { //mutant:a\nf() //mutant:b\n}\n", []Edit{Delete("a"), Delete("b")}, "overlaps",
		},
		"the same statement twice":  {"f() //mutant:a\n", []Edit{Delete("a"), Delete("a")}, "overlaps"},
		"text without a seam":       {"f()\n", []Edit{Text("p.go", "f()\n}", "}")}, ""},
		"text that is missing":      {"f()\n", []Edit{Text("p.go", "g()", "")}, "0 times"},
		"text at two places":        {"f()\n", []Edit{Text("p.go", "f()", "")}, "2 times"},
		"text that is no directive": {"f() // mutant:a\n", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dirs := []string{folder(t, head+c.src+"}\n")}
			t.Chdir(dirs[0])
			m := Mutant{Name: "m", Edits: c.edits}
			seams, err := find(dirs)
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(faults(seams, []Mutant{m})...)
			if err == nil {
				_, err = apply(seams, m)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestANameIsUsedOnce(t *testing.T) {
	err := errors.Join(faults(nil, []Mutant{{Name: "a"}, {Name: "a"}})...)
	if err == nil || !strings.Contains(err.Error(), `two mutants are named "a"`) {
		t.Errorf("got %v", err)
	}
}
