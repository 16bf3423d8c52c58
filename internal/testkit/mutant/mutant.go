// Package mutant breaks source code on purpose and checks that tests notice.
//
// Production code names the places that matter, its seams, with a comment:
//
//	c.gen.Close() //mutant:close
//
//	//mutant:until
//	if until <= now {
//		return ErrWindow
//	}
//
// A seam on a line of its own names what begins on the next line of code; a seam behind code names what begins on its
// line. What it names is the outermost statement, case, struct field or declaration that begins on that line, as a
// whole. There must be exactly one. A seam is a comment and nothing else: no branch and no variable serves it.
//
// A [Mutant] replaces, deletes or precedes what its seams name. [Suite.Run] builds the package's tests with the
// mutants, using the -overlay flag of the go command, so that no source file changes, runs them with each, and fails
// unless they find it. Mutants that edit nothing but bodies of functions are built together: a build takes longer than
// most tests.
//
// Names are unique within a suite, so that code can move between files without a change to its mutants. A mutant that
// names a missing or ambiguous seam fails the test, and so does a seam that no mutant names.
package mutant

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A Mutant is source code that is wrong in one way. The zero value changes nothing.
type Mutant struct {
	// Name says what is wrong, as a sentence; it also names the subtest.
	Name string
	// Edits are made together.
	Edits []Edit
	// Args are added to the suite's: which test finds it, or where to look first
	// for a finding that is rare, so that it is found soon.
	Args []string
	// In is the folder of another package whose tests find it, relative to the
	// suite's; Args then are all arguments. "" is the suite's own.
	In string
}

// An Edit changes what one seam names, or one piece of text.
type Edit struct {
	seam   string
	path   string // of the file that has the text; "" for a seam
	text   string
	code   string
	before bool
}

// Replace puts code in the place of what the seam names.
func Replace(seam, code string) Edit { return Edit{seam: seam, code: code} }

// Before puts code in front of what the seam names.
func Before(seam, code string) Edit { return Edit{seam: seam, code: code, before: true} }

// Delete removes what the seam names.
func Delete(seam string) Edit { return Edit{seam: seam} }

// Text puts code in the place of text, which must be in the file at path once.
func Text(path, text, code string) Edit { return Edit{path: path, text: text, code: code} }

// faults returns every fault of the mutants: a name that is used twice, an edit
// of a seam that is missing or at two places, and a seam that no mutant edits.
func faults(seams map[string][]seam, mutants []Mutant) (all []error) {
	names, edited := make(map[string]bool), make(map[string]bool)
	for _, m := range mutants {
		if names[m.Name] {
			all = append(all, fmt.Errorf("mutant: two mutants are named %q", m.Name))
		}
		names[m.Name] = true
		for _, e := range m.Edits {
			edited[e.seam] = true
			if _, err := e.place(seams); err != nil {
				all = append(all, fmt.Errorf("mutant %q: %w", m.Name, err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seams)) {
		if !edited[name] {
			all = append(all, fmt.Errorf("mutant: no mutant edits seam %q at %s: add one, or remove the comment",
				name, seams[name][0].position))
		}
	}
	return all
}

// place returns the seam, or piece of text, that the edit changes.
func (e Edit) place(seams map[string][]seam) (seam, error) {
	if e.path == "" {
		return lookup(seams, e.seam)
	}
	path, err := filepath.Abs(e.path)
	if err != nil {
		return seam{}, err
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return seam{}, err
	}
	if n := bytes.Count(src, []byte(e.text)); n != 1 {
		return seam{}, fmt.Errorf("text %q is in %s %d times, want once", e.text, e.path, n)
	}
	at := bytes.Index(src, []byte(e.text))
	return seam{name: e.text, path: path, from: at, to: at + len(e.text)}, nil
}

func lookup(seams map[string][]seam, name string) (seam, error) {
	switch found := seams[name]; len(found) {
	case 0:
		return seam{}, fmt.Errorf("no code bears seam %q: write //mutant:%s where it belongs", name, name)
	case 1:
		return found[0], found[0].fault
	default:
		return seam{}, fmt.Errorf("seam %q is ambiguous: it is at %s and at %s",
			name, found[0].position, found[1].position)
	}
}

// apply returns the files that the mutant edits, by path, with its edits made.
func apply(seams map[string][]seam, m Mutant) (map[string][]byte, error) {
	places := make(map[string][]edited)
	for _, e := range m.Edits {
		s, err := e.place(seams)
		if err != nil {
			return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
		}
		places[s.path] = append(places[s.path], edited{s, e})
	}
	out := make(map[string][]byte)
	for path, all := range places {
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if out[path], err = change(src, 0, all); err != nil {
			return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
		}
	}
	return out, nil
}
