package main_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"testing"
)

// codeMaps are the documents that name files and functions of the code.
var codeMaps = []string{"docs/architecture.md", "docs/testing.md", "CONTRIBUTING.md"}

var (
	codeFile = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	codeName = regexp.MustCompile("`([a-zA-Z]+\\.[a-zA-Z]+)`")
)

// unknownCode returns a fault for each file that is not there, and for each
// type.method and package.Name that no file declares.
func unknownCode(t *testing.T, fsys fs.FS, docs []document) (faults []string) {
	t.Helper()
	names := declared(t, fsys)
	for _, d := range docs {
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
