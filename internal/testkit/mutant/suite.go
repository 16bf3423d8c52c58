package mutant

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A Suite is the mutants of the package whose test runs it, and how that package's tests find them.
type Suite struct {
	// Mutants are run side by side.
	Mutants []Mutant
	// Folders are those whose seams the mutants edit, relative to the package's own; nil is the package's own alone.
	Folders []string
	// Args are the arguments of the test binary, such as -test.run=^TestLaw$.
	Args []string
	// Finding matches what the tests print when they find a mutant. Its last
	// group is logged, or the whole match if it has none.
	Finding *regexp.Regexp
}

// Run checks the seams and runs each mutant as a subtest. It fails unless the tests fail with each of them and print a
// finding: a build that breaks or a crash is none. With -short it checks the seams only.
func (s Suite) Run(t *testing.T) {
	folders := s.Folders
	if folders == nil {
		folders = []string{"."}
	}
	seams, err := find(folders)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults(seams, s.Mutants) {
		t.Error(fault)
	}
	if testing.Short() {
		t.Skip("the seams are checked; mutants are built and run without -short only")
	}
	if t.Failed() {
		return
	}
	together := map[string]string{} // the binary of each mutant that is built with others
	for _, m := range s.Mutants {
		if _, known := together[m.Name]; !known {
			s.buildTogether(t, seams, m.In, together)
		}
	}
	for _, m := range s.Mutants {
		t.Run(strings.ReplaceAll(m.Name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			binary := together[m.Name]
			if binary == "" {
				binary = buildAlone(t, seams, m)
			}
			s.run(t, binary, m)
		})
	}
}

// buildTogether builds the tests of a folder with all mutants that they find and that can be built together, and notes
// the binary of each; "" for the others.
func (s Suite) buildTogether(t *testing.T, seams map[string][]seam, in string, binaries map[string]string) {
	t.Helper()
	crowd, err := gather(seams, s.Mutants, in)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := crowd.sources()
	if err != nil {
		t.Fatal(err)
	}
	binary := ""
	if len(crowd.has) > 0 {
		if binary, err = build(t, cmp.Or(in, "."), sources); err != nil {
			t.Logf("the mutants do not build together, so each is built by itself: %v", err)
		}
	}
	for _, m := range s.Mutants {
		if m.In == in {
			binaries[m.Name] = ""
			if crowd.has[m.Name] {
				binaries[m.Name] = binary
			}
		}
	}
}

// buildAlone builds the tests of a mutant from source files with the edits of that mutant alone.
func buildAlone(t *testing.T, seams map[string][]seam, m Mutant) (binary string) {
	t.Helper()
	files, err := apply(seams, m)
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = build(t, cmp.Or(m.In, "."), files); err != nil {
		t.Fatalf("this mutant does not build: adapt its code to what surrounds the seam: %v", err)
	}
	return binary
}

func (s Suite) run(t *testing.T, binary string, m Mutant) {
	args := m.Args
	if m.In == "" {
		m.In, args = ".", slices.Concat(s.Args, m.Args)
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir, cmd.Env = m.In, append(os.Environ(), chosen+"="+m.Name)
	out, err := cmd.CombinedOutput()
	found := s.Finding.FindSubmatch(out)
	if err == nil || found == nil {
		t.Fatalf("the tests do not find this mutant: %v\n%s", err, out)
	}
	t.Logf("found in %v of CPU: %s", cmd.ProcessState.UserTime().Round(10*time.Millisecond), found[len(found)-1])
}

// Build builds the tests of the package in a folder with the edits, none of which
// may be of a seam, and returns the path of the binary.
func Build(t *testing.T, folder string, edits ...Edit) (binary string) {
	t.Helper()
	files, err := apply(nil, Mutant{Name: "none", Edits: edits})
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = build(t, folder, files); err != nil {
		t.Fatal(err)
	}
	return binary
}

// build builds the tests of the package in a folder with files in the place of
// those at their paths, and returns the path of the binary.
func build(t *testing.T, folder string, files map[string][]byte) (binary string, err error) {
	t.Helper()
	dir := t.TempDir()
	overlay, err := overlay(dir, files)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "mutant.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off",
		"-ldflags=-s -w", // nothing reads debug information
		"-overlay", overlay, "-o", binary, ".")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0") // compiled as scripts/test has it
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}

// overlay writes files to dir with an overlay, which makes the go command read them in place of those at their paths.
// It returns the path of the overlay.
func overlay(dir string, files map[string][]byte) (path string, err error) {
	var list struct{ Replace map[string]string }
	list.Replace = make(map[string]string)
	for path, data := range files {
		with := filepath.Join(dir, fmt.Sprintf("%d_%s", len(list.Replace), filepath.Base(path)))
		if err := os.WriteFile(with, data, 0o600); err != nil {
			return "", err
		}
		list.Replace[path] = with
	}
	data, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}
