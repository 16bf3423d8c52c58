package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A release for this machine alone, from a copy of natsid's folder: other targets take minutes.
const testVersion = "v0.98.7-rc1"

var testDir string

func TestMain(m *testing.M) {
	var err error
	if testDir, err = os.MkdirTemp("", "natsid-release-test-"); err != nil {
		panic(err)
	}
	// natsid runs from here as other users, too.
	_ = os.Chmod(testDir, 0o755)
	code := m.Run()
	os.RemoveAll(testDir)
	os.Exit(code)
}

// built returns a signed release.
var built = sync.OnceValue(func() *release {
	key := filepath.Join(testDir, "key")
	output(testDir, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key)
	return buildIn("one", testVersion, key)
})

// buildIn builds a release in a folder of its own below testDir.
func buildIn(name, version, key string) *release {
	r := &release{
		source: filepath.Join(testDir, name, "natsid"), out: filepath.Join(testDir, name, "dist"), key: key,
		version: version, commit: strings.Repeat("c0ffee", 6) + "0123", date: time.Unix(1790000000, 0).UTC(),
		targets: []target{{"linux", runtime.GOARCH}},
	}
	copySource(r.source, version)
	r.build()
	return r
}

// source is a copy of what git knows and what is new.
var source = sync.OnceValue(func() (dir string) {
	dir = filepath.Join(testDir, "source")
	all := output("../..", nil, "git", "ls-files", "-z", "-c", "-o", "--exclude-standard")
	for name := range strings.SplitSeq(all, "\x00") {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if name == "" || os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		must(err)
		must(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must(os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return dir
})

// copySource copies the source, and gives the version a section in the changelog.
func copySource(to, version string) {
	must(os.CopyFS(to, os.DirFS(source())))
	log := "# Changelog\n\n## [" + strings.TrimPrefix(version, "v") + "] - today\n\nWhat is new.\n\n## [0.0.1]"
	must(os.WriteFile(filepath.Join(to, "CHANGELOG.md"), []byte(log), 0o644))
}

// on skips a test of what exists on Linux alone.
func on(t *testing.T, system string) {
	t.Helper()
	if runtime.GOOS != system {
		t.Skipf("needs %s", system)
	}
}

// read returns a file of a release.
func read(t *testing.T, r *release, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// binaryOf unpacks the archive of a release and returns the path of its natsid.
func binaryOf(t *testing.T, r *release) string {
	t.Helper()
	dir := t.TempDir()
	name := r.stem(r.targets[0].name())
	run(t, "tar", "-xzf", filepath.Join(r.out, name+".tar.gz"), "-C", dir)
	return filepath.Join(dir, name, "natsid")
}

// run runs a program and returns what it prints, on both outputs.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	on(t, "linux")
	first := built()
	t.Setenv("TZ", "Asia/Kathmandu")
	t.Setenv("COLUMNS", "200")
	t.Setenv("GOPROXY", "off") // the first build has downloaded all modules
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	second := buildIn("two/further/down", testVersion, "")
	var names []string
	for _, f := range got(os.ReadDir(first.out)) {
		if f.Name() == "SHA256SUMS.sig" {
			continue
		}
		names = append(names, f.Name())
		if !bytes.Equal(read(t, first, f.Name()), read(t, second, f.Name())) {
			t.Errorf("%s differs between two builds", f.Name())
		}
		t.Logf("%-45s %9d bytes", f.Name(), len(read(t, first, f.Name())))
	}
	if n := len(got(os.ReadDir(second.out))); n != len(names) || n < 7 {
		t.Errorf("%d files in the second build, %d in the first: %q", n, len(names), names)
	}
}

// Whoever builds the image by the Dockerfile gets the binary of the release.
func TestTheDockerfileBuildsTheBinaryOfTheRelease(t *testing.T) {
	on(t, "linux")
	r := built()
	dockerfile := string(got(os.ReadFile("../../Dockerfile")))
	line := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*) -o /natsid \.$`).FindStringSubmatch(dockerfile)
	if line == nil {
		t.Fatal("the Dockerfile has no line that builds /natsid")
	}
	context := filepath.Join(t.TempDir(), "src")
	copySource(context, testVersion)
	ignore(t, context)
	binary := filepath.Join(t.TempDir(), "natsid")
	cmd := exec.Command("sh", "-c", line[1]+" -o "+binary+" .")
	cmd.Dir = context
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly",
		"VERSION="+r.version, "COMMIT="+r.commit, "DATE="+r.date.Format(time.RFC3339))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, have := sha256.Sum256(got(os.ReadFile(binaryOf(t, r)))), sha256.Sum256(got(os.ReadFile(binary)))
	if want != have {
		t.Fatalf("the release's binary is %x, the Dockerfile's %x", want, have)
	}
	t.Logf("both are %x", have)
}

// ignore removes from a folder what .dockerignore keeps out of the context.
func ignore(t *testing.T, dir string) {
	t.Helper()
	for pattern := range strings.FieldsSeq(regexp.MustCompile(`(?m)^#.*`).ReplaceAllString(
		string(got(os.ReadFile("../../.dockerignore"))), "")) {
		name, anywhere := strings.CutPrefix(pattern, "**/")
		must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			in, _ := filepath.Rel(dir, path)
			if anywhere {
				in = filepath.Base(path)
			}
			if match, _ := filepath.Match(name, in); err != nil || !match || in == "." {
				return err
			}
			if err := os.RemoveAll(path); err != nil || !d.IsDir() {
				return err
			}
			return filepath.SkipDir
		}))
	}
}

func TestTheVersionIsThatOfTheTag(t *testing.T) {
	for _, tc := range []struct {
		wanted    string
		tags      []string
		isChanged bool
		want, err string
	}{
		{"", nil, false, unreleased, ""},
		{"", nil, true, unreleased, ""},
		{"", []string{"v0.1.0"}, false, "v0.1.0", ""},
		{"v0.1.0", nil, false, "v0.1.0", ""},
		{"v0.1.0-rc1", []string{"v0.1.0-rc1"}, false, "v0.1.0-rc1", ""},
		{"v0.1.1", []string{"v0.1.0"}, false, "", "the commit has the tag v0.1.0"},
		{"v0.1.0", nil, true, "", "files were changed"},
		{"", []string{"v0.1.0"}, true, "", "files were changed"},
		{"0.1.0", nil, false, "", "want one like v0.1.0"},
	} {
		got, err := versionOf(tc.wanted, tc.tags, tc.isChanged)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q, tags %q, changed %v: %q, %v; want %q, %q",
				tc.wanted, tc.tags, tc.isChanged, got, err, tc.want, tc.err)
		}
	}
}

func TestTheBinarySaysFromWhatItWasBuilt(t *testing.T) {
	on(t, "linux")
	r := built()
	var v struct {
		Version, Commit, Date, Go string
		NATSGo                    string `json:"nats_go"`
		NATSServer                string `json:"nats_server"`
	}
	if err := json.Unmarshal([]byte(run(t, binaryOf(t, r), "--version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{
		"github.com/nats-io/nats.go " + v.NATSGo, "github.com/nats-io/nats-server/v2 " + v.NATSServer,
	} {
		if !strings.Contains(string(got(os.ReadFile("../../go.mod"))), "\t"+module+"\n") {
			t.Errorf("natsid --version names %s, go.mod does not", module)
		}
	}
	if v.Version != r.number() || v.Commit != r.commit || v.Date != r.date.Format(time.RFC3339) ||
		v.Go != runtime.Version() {
		t.Errorf("%+v, want version %s, commit %s of %v", v, r.number(), r.commit, r.date)
	}
}

// A proxy in a folder serves this source as a version; the modules that it needs come from this machine's cache.
func TestAVersionInstalledByGoSaysWhichItIs(t *testing.T) {
	on(t, "linux")
	const path = "github.com/natsid/natsid"
	all := below(source(), source())
	var others []string // folders of other modules
	for _, f := range all {
		if dir, isModule := strings.CutSuffix(f.name, "/go.mod"); isModule {
			others = append(others, dir+"/")
		}
	}
	var files []file
	for _, f := range all {
		if !slices.ContainsFunc(others, func(dir string) bool { return strings.HasPrefix(f.name, dir) }) {
			f.name = path + "@" + testVersion + "/" + f.name
			files = append(files, f)
		}
	}
	dir := t.TempDir()
	proxy := filepath.Join(dir, "proxy", path, "@v")
	must(os.MkdirAll(proxy, 0o755))
	for name, data := range map[string][]byte{
		"list":                []byte(testVersion + "\n"),
		testVersion + ".info": []byte(`{"Version":"` + testVersion + `","Time":"2026-01-01T00:00:00Z"}`),
		testVersion + ".mod":  got(os.ReadFile("../../go.mod")),
		testVersion + ".zip":  zipped(files, time.Now()),
	} {
		must(os.WriteFile(filepath.Join(proxy, name), data, 0o644))
	}
	cache := strings.TrimSpace(run(t, "go", "env", "GOMODCACHE"))
	cmd := exec.Command("sh", "-ec", lineOfREADME(t, "go"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=file://"+dir+"/proxy,file://"+cache+"/cache/download", "GOSUMDB=off",
		"GOMODCACHE="+dir+"/modules", "GOBIN="+dir, "GOFLAGS=-trimpath -modcacherw", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := run(t, filepath.Join(dir, "natsid"), "--version")
	if !strings.HasPrefix(said, "natsid "+strings.TrimPrefix(testVersion, "v")+" (commit unknown; ") {
		t.Errorf("it says %q", said)
	}
}

func TestTheNotesAreTheSectionOfTheVersion(t *testing.T) {
	on(t, "linux")
	r := built()
	if notes := string(read(t, r, r.stem("notes.md"))); notes != "What is new.\n" {
		t.Errorf("notes %q", notes)
	}
}

// What fails late is not found in the folder by the next attempt.
func TestAReleaseThatCannotBeMadeLeavesNothing(t *testing.T) {
	on(t, "linux")
	for fault, change := range map[string]func(*release){
		"no section [9.9.9]": func(r *release) { r.version = "v9.9.9" },
		"ssh-keygen":         func(r *release) { r.key = "nosuch" },
		"go build":           func(r *release) { r.targets = []target{{"linux", "nosuch"}} },
	} {
		r := *built()
		r.out = filepath.Join(t.TempDir(), "dist")
		change(&r)
		func() {
			defer func() {
				if got := recover(); !strings.Contains(fmt.Sprint(got), fault) {
					t.Errorf("it fails with %v, want %s", got, fault)
				}
			}()
			r.build()
		}()
		if _, err := os.Stat(r.out); !os.IsNotExist(err) {
			t.Errorf("%s: it leaves %s, %v", fault, r.out, err)
		}
	}
}

// Each default in the example is what natsid takes without it.
func TestTheExampleConfigurationHasEverySetting(t *testing.T) {
	text := settings()
	line := regexp.MustCompile(`(?m)^#([a-z0-9-]+): (.*)$`)
	var file strings.Builder
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		if def := regexp.MustCompile(`[A-Z]{2}|^ID$|^N$`); !def.MatchString(m[2]) { // the form of a value
			fmt.Fprintf(&file, "%s: %s\n", m[1], m[2])
		}
	}
	if n := len(line.FindAllString(text, -1)); n < 40 || strings.Contains(text, ": \n") {
		t.Errorf("%d settings; some may have neither default nor form:\n%s", n, text)
	}
	path := filepath.Join(t.TempDir(), "natsid.yaml")
	must(os.WriteFile(path, []byte(file.String()), 0o644))
	values := func(args ...string) (all []string) {
		var list []struct{ Setting, Value string }
		must(json.Unmarshal([]byte(natsid(append(args, "config", "--json")...)), &list))
		for _, v := range list {
			if v.Setting != "config" {
				all = append(all, v.Setting+" "+strings.TrimPrefix(v.Value, "false"))
			}
		}
		return all
	}
	if with, without := values("--config="+path), values(); !slices.Equal(with, without) {
		t.Errorf("with the example's defaults %q\nwithout %q", with, without)
	}
}

// The lines of SECURITY.md are typed in as they stand.
func TestAChangedByteIsNoticedByTheLinesInSecurity(t *testing.T) {
	on(t, "linux")
	r := built()
	text := string(got(os.ReadFile("../../SECURITY.md")))
	m := regexp.MustCompile("(?s)\n## Verify a release\n.*?\n```\n(.*?)```\n").FindStringSubmatch(text)
	if m == nil || strings.Count(m[1], "\n") > 5 {
		t.Fatalf("SECURITY.md has no lines that verify a release, or more than five: %q", m)
	}
	archive := r.stem(r.targets[0].name()) + ".tar.gz"
	for _, changed := range []string{"", archive, r.stem("image.tar"), "SHA256SUMS", "SHA256SUMS.sig"} {
		dir := t.TempDir()
		run(t, "cp", "-r", r.out+"/.", dir)
		key := strings.Fields(string(got(os.ReadFile(r.key + ".pub"))))
		must(os.WriteFile(filepath.Join(dir, "allowed_signers"), []byte("natsid "+key[0]+" "+key[1]+"\n"), 0o644))
		if changed != "" {
			data := got(os.ReadFile(filepath.Join(dir, changed)))
			data[len(data)/2] ^= 1
			must(os.WriteFile(filepath.Join(dir, changed), data, 0o644))
		}
		cmd := exec.Command("sh", "-ec", m[1])
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); (err == nil) != (changed == "") {
			t.Errorf("changed %q: %v\n%s", changed, err, out)
		}
	}
}

// What CI runs, everyone can run.
func TestWorkflowsCallMakeTargetsAndPinnedActionsAlone(t *testing.T) {
	files := got(filepath.Glob("../../.github/workflows/*.yml"))
	if len(files) != 3 {
		t.Errorf("%q, want test, release and nightly", files)
	}
	makefile := string(got(os.ReadFile("../../Makefile")))
	step := regexp.MustCompile(`(?m)^ *-? *(run|uses): (.*)$`)
	targets := regexp.MustCompile(`(?m)^ *target: \[(.*)\]$`)
	pinned := regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40} # v[0-9.]+$`)
	for _, path := range files {
		text := string(got(os.ReadFile(path)))
		var called []string
		for _, m := range step.FindAllStringSubmatch(text, -1) {
			target, isMake := strings.CutPrefix(m[2], "make ")
			switch {
			case m[1] == "uses" && pinned.MatchString(m[2]), target == "${{ matrix.target }}":
			case m[1] == "run" && isMake:
				called = append(called, target)
			default:
				t.Errorf("%s: %s", path, m[0])
			}
		}
		for _, m := range targets.FindAllStringSubmatch(text, -1) {
			called = append(called, strings.Split(m[1], ", ")...)
		}
		for _, c := range called {
			if name, _, _ := strings.Cut(c, " "); !strings.Contains(makefile, "\n"+name+":") {
				t.Errorf("%s calls make %s, which there is not", path, name)
			}
		}
	}
}
