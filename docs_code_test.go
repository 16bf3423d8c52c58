package main_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

// codeMaps are the documents that name files and functions of the code.
var codeMaps = []string{"docs/architecture.md", "docs/testing.md", "CONTRIBUTING.md"}

// promised are the packages that other programs may rely on.
var promised = []string{"client", "client/clienttest", "e2e", "format", "number", "snowflake", "stamp", "subjects"}

const maxColumns = 120 // of a line of Go, with tabs of 4

func TestGoLinesFitTheScreen(t *testing.T) {
	expectNone(t, wideLines(t, os.DirFS(".")))
}

func TestPromisedPackagesHaveExamples(t *testing.T) {
	expectNone(t, withoutExample(t, os.DirFS(".")))
}

func TestWrongGoIsSeen(t *testing.T) {
	const example = "package client_test\n\nfunc Example() {\n\tprintln()\n\t// Output: x\n}\n"
	wide := "package client\n\n//" + strings.Repeat(" ", maxColumns-2) + "x\n"
	for _, tc := range []struct {
		law, path, src string
		want           string // part of the fault
	}{
		{"an example without", "client/a_test.go", strings.Replace(example, "Output", "Hint", 1), "no example"},
		{"a wide line", "client/b.go", wide, "121 columns"},
		{"a tab is four columns", "client/b.go", strings.Replace(wide, "// ", "\t//", 1), "124 columns"},
		{"another module's lines are its own", "proof/bench/b.go", wide, "121 columns"},
	} {
		t.Run(tc.law, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for _, dir := range promised {
				fsys[dir+"/a_test.go"] = &fstest.MapFile{Data: []byte(example)}
			}
			fsys[tc.path] = &fstest.MapFile{Data: []byte(tc.src)}
			expect(t, tc.want, slices.Concat(wideLines(t, fsys), withoutExample(t, fsys)))
		})
	}
}

var (
	codeFile = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	// A name, or what follows -run and -bench.
	testName     = regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w+)`|-(?:run|bench) '?([A-Z][\\w|]+)")
	testFunction = regexp.MustCompile(`^(Test|Benchmark|Fuzz)[A-Z]`)

	codeName = regexp.MustCompile("`([a-zA-Z]+\\.[a-zA-Z]+)`")
)

// unknownCode returns a fault for each file that is not there, for each
// type.method and package.Name that no file declares, and for each test that no
// file has.
func unknownCode(t *testing.T, fsys fs.FS, docs []document) (faults []string) {
	t.Helper()
	names := declared(t, fsys)
	for _, d := range docs {
		for _, m := range testName.FindAllStringSubmatch(d.text, -1) {
			for part := range strings.SplitSeq(m[1]+m[2], "|") {
				if !names.test(part) {
					faults = append(faults, fmt.Sprintf("%s names the test %s, which no file has", d.path, part))
				}
			}
		}
		if !slices.Contains(codeMaps, d.path) {
			continue
		}
		for _, m := range codeFile.FindAllStringSubmatch(d.text, -1) {
			if _, err := fs.Stat(fsys, m[1]); err != nil {
				faults = append(faults, fmt.Sprintf("%s names the file %s, which does not exist", d.path, m[1]))
			}
		}
		for _, m := range codeName.FindAllStringSubmatch(d.text, -1) {
			if ext := path.Ext(m[1]); ext != ".go" && ext != ".json" && !names[m[1]] {
				faults = append(faults, fmt.Sprintf("%s names %s, which no file declares", d.path, m[1]))
			}
		}
	}
	return faults
}

// test reports whether a test, benchmark or fuzz target has part of this name.
func (names set) test(part string) bool {
	for name := range names {
		_, function, _ := strings.Cut(name, ".")
		if testFunction.MatchString(function) && strings.Contains(function, part) {
			return true
		}
	}
	return false
}

// declared returns what the files of this module declare: type.method and
// package.Name.
func declared(t *testing.T, fsys fs.FS) set {
	t.Helper()
	names := set{}
	for _, f := range readModule(t, fsys) {
		src, err := fs.ReadFile(fsys, f.path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				names[receiver(d, f.name)+"."+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						names[f.name+"."+typ.Name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// receiver returns the type of a method, and the package of a function.
func receiver(d *ast.FuncDecl, pkg string) string {
	if d.Recv == nil {
		return pkg
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if ident, ok := typ.(*ast.Ident); ok {
		return ident.Name
	}
	return pkg // generic: none is named in a document
}

// withoutExample returns a fault for each promised package that shows no use
// whose output a test checks.
func withoutExample(t *testing.T, fsys fs.FS) (faults []string) {
	t.Helper()
	for _, dir := range promised {
		paths, err := fs.Glob(fsys, dir+"/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(paths, func(p string) bool { return hasExample(t, fsys, p) }) {
			faults = append(faults, fmt.Sprintf("package %s is promised and has no example with an output", dir))
		}
	}
	return faults
}

func hasExample(t *testing.T, fsys fs.FS, p string) bool {
	t.Helper()
	src, err := fs.ReadFile(fsys, p)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), p, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(doc.Examples([]*ast.File{file}...), func(e *doc.Example) bool { return e.Output != "" })
}

// wideLines returns a fault for each file of Go with lines of too many columns.
func wideLines(t *testing.T, fsys fs.FS) (faults []string) {
	t.Helper()
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(p) > 1 && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(fsys, p)
		for i, line := range strings.Split(string(src), "\n") {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > maxColumns {
				faults = append(faults, fmt.Sprintf("%s:%d has %d columns, want at most %d", p, i+1, n, maxColumns))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return faults
}
