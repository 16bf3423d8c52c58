package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const prefix = "//mutant:"

// A seam is a named piece of a source file.
type seam struct {
	name     string
	path     string // absolute
	position token.Position
	from, to int   // offsets of what it names
	fault    error // why it names nothing
}

// find returns all seams of the Go files of the folders, by name.
func find(folders []string) (map[string][]seam, error) {
	all := make(map[string][]seam)
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			seams, err := read(path)
			if err != nil {
				return nil, err
			}
			for _, s := range seams {
				all[s.name] = append(all[s.name], s)
			}
		}
	}
	return all, nil
}

// read returns the seams of the file at path.
func read(path string) ([]seam, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return seamsOf(files, file, strings.Split(string(src), "\n")), nil
}

// seamsOf returns the seams of a file with these lines.
func seamsOf(files *token.FileSet, file *ast.File, lines []string) (found []seam) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			name, ok := strings.CutPrefix(comment.Text, prefix)
			if !ok {
				continue
			}
			at := files.Position(comment.Pos())
			s := seam{name: strings.TrimSpace(name), path: at.Filename, position: at}
			s.from, s.to, s.fault = named(files, file, codeLine(lines, at.Line))
			if s.fault != nil {
				s.fault = fmt.Errorf("seam %q at %s %w", s.name, at, s.fault)
			}
			found = append(found, s)
		}
	}
	return found
}

// codeLine returns the number of the first line from line on that holds more than a comment.
func codeLine(lines []string, line int) int {
	for line < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[line-1]), "//") {
		line++
	}
	return line
}

// named returns the offsets of what begins on a line: of the outermost statement, case, struct field or declaration.
func named(files *token.FileSet, file *ast.File, line int) (from, to int, err error) {
	var nodes []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		if !nameable(n) || files.Position(n.Pos()).Line != line {
			return true
		}
		nodes = append(nodes, n)
		return false // what it contains is not outermost
	})
	if len(nodes) != 1 {
		return 0, 0, fmt.Errorf("must name one statement, case, field or declaration, but %d begin on line %d",
			len(nodes), line)
	}
	return files.Position(nodes[0].Pos()).Offset, files.Position(nodes[0].End()).Offset, nil
}

// nameable reports whether a seam can name n.
func nameable(n ast.Node) bool {
	switch n.(type) {
	case *ast.BlockStmt: // the body of something that a seam can name
		return false
	case ast.Stmt, ast.Decl, *ast.Field:
		return true
	}
	return false
}

// edited is a seam, and the edit that is made there.
type edited struct {
	seam
	Edit
}

// change returns source code that begins at an offset of its file, with the edits, none of which may overlap.
func change(src []byte, offset int, all []edited) ([]byte, error) {
	// From the end of the code to its start, so that the offsets of the edits still to be made stay right.
	slices.SortFunc(all, func(a, b edited) int { return b.from - a.from })
	end := len(src)
	for _, e := range all {
		from, to := e.from-offset, e.to-offset
		if to > end {
			return nil, fmt.Errorf("its edit of seam %q overlaps another of its edits", e.name)
		}
		end = from
		code := e.code
		if e.before {
			code += "\n" + string(src[from:to])
		}
		src = slices.Concat(src[:from], []byte(code), src[to:])
	}
	return src, nil
}
