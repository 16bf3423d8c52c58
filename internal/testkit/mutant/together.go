package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
)

// chosen is the environment variable that names a mutant. A binary with many mutants runs as that one.
const chosen = "NATSID_MUTANT"

// A crowd is mutants that are built together: they edit nothing but bodies of functions. Each
// function has a copy of its body for each mutant that edits it, as a function literal with the
// same results: so what the body declares hides nothing that it did not hide before.
type crowd struct {
	files map[string]*file
	has   map[string]bool // the names of the mutants
}

// A file is a source file, and the mutants of its functions.
type file struct {
	src     []byte
	imports int // the offset after the package clause
	bodies  []*body
}

// A body is the code between the braces of a function.
type body struct {
	from, to int
	results  string // of the function, as they are written
	copies   []copied
}

// A copied is the body of a function with the edits of one mutant.
type copied struct {
	mutant string
	all    []edited
}

// gather returns those of the mutants that can be built together, for the tests of one folder.
func gather(seams map[string][]seam, mutants []Mutant, in string) (*crowd, error) {
	c := &crowd{files: map[string]*file{}, has: map[string]bool{}}
	for _, m := range mutants {
		if m.In != in {
			continue
		}
		if err := c.add(seams, m); err != nil {
			return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
		}
	}
	return c, nil
}

// add adds a mutant, unless it edits more than bodies.
func (c *crowd) add(seams map[string][]seam, m Mutant) error {
	edits := map[*body][]edited{}
	for _, e := range m.Edits {
		s, err := e.place(seams)
		if err != nil {
			return err
		}
		if c.files[s.path] == nil {
			if c.files[s.path], err = parse(s.path); err != nil {
				return err
			}
		}
		all := c.files[s.path].bodies
		n := slices.IndexFunc(all, func(b *body) bool { return b.from <= s.from && s.to <= b.to })
		if n < 0 {
			return nil
		}
		edits[all[n]] = append(edits[all[n]], edited{s, e})
	}
	for b, all := range edits {
		b.copies = append(b.copies, copied{m.Name, all})
	}
	c.has[m.Name] = true
	return nil
}

// sources returns the files of the crowd, by path, with the copies of all bodies.
func (c *crowd) sources() (_ map[string][]byte, err error) {
	all := make(map[string][]byte)
	for n, path := range slices.Sorted(maps.Keys(c.files)) {
		if all[path], err = c.files[path].source(fmt.Sprint("chosenMutant", n)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// source returns the file with its copies, one of which runs in the place of its body if the
// variable of that name has the name of its mutant.
func (f *file) source(variable string) ([]byte, error) {
	out := slices.Clone(f.src)
	for _, b := range slices.Backward(f.bodies) { // so that offsets stay true
		if len(b.copies) == 0 {
			continue
		}
		text := []byte("\nswitch " + variable + " {\n")
		for _, c := range b.copies {
			code, err := change(f.src[b.from:b.to], b.from, c.all)
			if err != nil {
				return nil, fmt.Errorf("mutant %q: %w", c.mutant, err)
			}
			before, after := "return ", ""
			if b.results == "" {
				before, after = "", "return\n"
			}
			text = fmt.Appendf(text, "case %q:\n%sfunc() %s {%s\n}()\n%s", c.mutant, before, b.results, code, after)
		}
		out = slices.Insert(out, b.from, append(text, "}\n"...)...)
	}
	out = slices.Insert(out, f.imports, []byte("\nimport chosenOS \"os\"\n")...)
	return fmt.Appendf(out, "\nvar %s = chosenOS.Getenv(%q)\n", variable, chosen), nil
}

func parse(path string) (*file, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	offset := func(p token.Pos) int { return files.Position(p).Offset }
	f := &file{src: src, imports: offset(tree.Name.End())}
	for _, d := range tree.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		b := &body{from: offset(d.Body.Lbrace) + 1, to: offset(d.Body.Rbrace)}
		if r := d.Type.Results; r != nil {
			b.results = string(src[offset(r.Pos()):offset(r.End())])
		}
		f.bodies = append(f.bodies, b)
	}
	return f, nil
}
