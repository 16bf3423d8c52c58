package main_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// apiFile has the names that other programs may rely on: a change of one is seen in a diff.
const apiFile = "docs/api.txt"

func TestThePromisedAPIIsThatOfTheFile(t *testing.T) {
	var api bytes.Buffer
	for _, pkg := range promised {
		api.WriteString("package " + pkg + "\n\n" + strings.Join(exported(t, pkg), "\n") + "\n\n")
	}
	text := bytes.TrimSuffix(api.Bytes(), []byte("\n"))
	was, err := os.ReadFile(apiFile)
	switch {
	case *update:
		err = os.WriteFile(apiFile, text, 0o644)
	case err == nil && !bytes.Equal(was, text):
		t.Errorf("%s is not what the code says: if the API is to change, go test . -run API -update", apiFile)
	}
	if err != nil {
		t.Error(err)
	}
}

// exported returns the exported declarations of a package without comments and bodies, sorted.
func exported(t *testing.T, pkg string) (decls []string) {
	t.Helper()
	files, err := filepath.Glob(pkg + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")) {
					continue
				}
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var b strings.Builder
			if err := printer.Fprint(&b, fset, decl); err != nil {
				t.Fatal(err)
			}
			decls = append(decls, strings.ReplaceAll(b.String(), "\n\n", "\n"))
		}
	}
	slices.Sort(decls)
	return decls
}
