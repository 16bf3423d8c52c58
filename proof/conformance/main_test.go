package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/proof/conformance/internal/adapter"
	"github.com/natsid/natsid/proof/conformance/internal/goadapter"
	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/proof/conformance/internal/scenarios"
	"github.com/natsid/natsid/proof/conformance/internal/vectors"
)

// acts names the environment variable that makes the test binary an adapter.
const acts = "CONFORMANCE_ADAPTER"

func TestMain(m *testing.M) {
	rig.Act()
	switch as := os.Getenv(acts); as {
	case "":
	case "go":
		if err := goadapter.Run(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		os.Exit(0)
	default:
		actBroken(as)
	}
	goleak.VerifyTestMain(shared{m}, natstest.Left()...)
}

// shared runs tests, and ends the suite that they share.
type shared struct{ m *testing.M }

func (s shared) Run() int {
	code := s.m.Run()
	if suite, err := theSuite(); err == nil && started {
		suite.close()
	}
	return code
}

// theSuite returns the suite that all tests of this process share; started says that there is one.
var (
	theSuite = sync.OnceValues(func() (*suite, error) { started = true; return newSuite() })
	started  bool
)

// world returns what an adapter is tested against.
func world(t *testing.T, command adapter.Command) *scenarios.World {
	t.Helper()
	s, err := theSuite()
	if err != nil {
		t.Fatal(err)
	}
	w := s.world
	w.Command = command
	return &w
}

// self returns the command that is this test binary as an adapter.
func self(t *testing.T, as string) adapter.Command {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return adapter.Command{Args: []string{path}, Env: append(os.Environ(), acts+"="+as)}
}

// conforms plays all scenarios with an adapter, each as a test.
func conforms(t *testing.T, command adapter.Command) {
	t.Helper()
	w := world(t, command)
	d, err := w.Describe()
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range scenarios.For(d.Profile) {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			ns := "t-" + d.Language + "-" + sc.Name
			if err := w.Play(sc, d.Profile, ns); err != nil {
				t.Errorf("it falls short: %v", err)
			}
		})
	}
}

func TestGo(t *testing.T) {
	t.Parallel()
	conforms(t, self(t, "go"))
}

func TestC(t *testing.T) {
	t.Parallel()
	conforms(t, adapter.Command{Args: []string{buildC(t, os.ReadFile)}})
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	const folder = "../../clients/typescript"
	if _, err := exec.LookPath("node"); err != nil {
		lacks(t, "node")
	}
	for _, needed := range []string{"dist", "node_modules"} {
		if _, err := os.Stat(filepath.Join(folder, needed)); err != nil {
			lacks(t, folder+"/"+needed)
		}
	}
	conforms(t, adapter.Command{Args: []string{"node", folder + "/conformance/adapter.mjs"}})
}

// lacks skips a test that needs what this machine has not, or fails it under CI.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s needs %s: `make deps` installs it", t.Name(), what)
	}
	t.Skipf("%s needs %s: `make deps` installs it", t.Name(), what)
}

// buildC builds the adapter in C from what read returns of its source, and returns the path of the program.
func buildC(t *testing.T, read func(string) ([]byte, error)) string {
	t.Helper()
	source, err := read("adapters/c/adapter.c")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, program := filepath.Join(dir, "adapter.c"), filepath.Join(dir, "adapter")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-O1", "-Wall", "-Werror", "-o", program, file, "-lnats", "-lcjson"}
	out, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput()
	switch text := string(out); {
	case err == nil:
		return program
	case !regexp.MustCompile(`(nats|cJSON)\.h: No such file|-l(nats|cjson)`).MatchString(text) && out != nil:
		t.Fatalf("%v\n%s", err, out)
	}
	lacks(t, "a C compiler, libnats and cJSON")
	return ""
}

func TestTheAdapterInCIsOneThatAnybodyCanRead(t *testing.T) {
	source, err := os.ReadFile("adapters/c/adapter.c")
	if n := bytes.Count(source, []byte("\n")); err != nil || n > 200 {
		t.Errorf("it has %d lines, want 200 at most: %v", n, err)
	}
}

func TestVectorsAreThoseOfTheCode(t *testing.T) {
	files, err := vectors.Make()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := assets.ReadFile("vectors/" + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("vectors/%s is not what the code says, %v: run go generate ./proof/conformance", name, err)
		}
	}
	there, err := fs.Glob(assets, "vectors/*")
	if err != nil || len(there) != len(files) {
		t.Errorf("there are %q, %v, and the code makes %d files", there, err, len(files))
	}
}

// Each scenario has one law, which names it, and each law a scenario.
func TestEachLawNamesItsScenarios(t *testing.T) {
	page, err := os.ReadFile("../../docs/client-laws.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{} // laws by scenario
	for _, part := range strings.Split(string(page), "\n## ")[1:] {
		law, text, _ := strings.Cut(part, "\n")
		_, list, ok := strings.Cut(text, "\nScenarios: ")
		if !ok {
			t.Errorf("the law %q names no scenarios", law)
		}
		list, _, _ = strings.Cut(list, ".")
		for name := range strings.SplitSeq(strings.ReplaceAll(list, "\n", " "), ", ") {
			if named[name] != "" {
				t.Errorf("two laws name the scenario %q", name)
			}
			named[name] = law
		}
	}
	for _, sc := range scenarios.All {
		if named[sc.Name] != sc.Law {
			t.Errorf("the scenario %q is of the law %q, and %q names it", sc.Name, sc.Law, named[sc.Name])
		}
		delete(named, sc.Name)
	}
	if len(named) > 0 {
		t.Errorf("no scenarios: %v", named)
	}
}

func TestAScenarioHasANameAndASentenceOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, sc := range scenarios.All {
		if sc.Name == "" || sc.Says == "" || sc.Play == nil || seen[sc.Name] || seen[sc.Says] {
			t.Errorf("%+v", sc)
		}
		seen[sc.Name], seen[sc.Says] = true, true
	}
}

func TestTheCommandEndsWithOneWhereAClientFallsShort(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "adapter")
	run := func(as string) (out bytes.Buffer, err error) {
		text := "#!/bin/sh\n" + acts + "='" + as + "' exec " + path + "\n"
		if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		err = command(t.Context(), []string{"-run", "layouts|counts", "-adapter", script}, &out)
		return out, err
	}
	if err := command(t.Context(), []string{"-run", "none", "-adapter", script}, io.Discard); err == nil {
		t.Error("a pattern that no scenario matches passes")
	}
	for as, want := range map[string]struct {
		err  error
		text string
	}{
		"go":             {nil, "2 of 2 scenarios"},
		"dies":           {errShort, "exit status 3"},
		"lacks a method": {errShort, "it lacks the method decode"},
	} {
		if out, err := run(as); err != want.err || !strings.Contains(out.String(), want.text) {
			t.Errorf("%s: %v, want %v and %q\n%s", as, err, want.err, want.text, &out)
		}
	}
}
