// Command release builds the files of a release of natsid: archives, packages, an image, the chart, the notes,
// checksums and, with -key, a signature. The same commit gives the same bytes with the same Go, in any folder and at
// any time. `make release` runs it.
package main

import (
	"cmp"
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	r := release{source: "../..", targets: targets}
	flag.StringVar(&r.version, "version", "", "version, as v0.1.0; the default is the tag of the commit")
	flag.StringVar(&r.out, "out", "../../dist", "directory for the files; it must be empty or absent")
	flag.StringVar(&r.key, "key", "", "file of the SSH key that signs SHA256SUMS; without it, nothing is signed")
	flag.Parse()
	defer func() {
		if fault := recover(); fault != nil {
			log.Fatalf("release: %v", fault)
		}
	}()
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // it ends the running child, whose failure panics
	began := time.Now()
	r.identify()
	r.build()
	fmt.Printf("natsid %s, commit %.12s, %s, in %v\n", r.version, r.commit, r.out, time.Since(began).Round(time.Second))
}

// A release is one version of natsid, built from one commit.
type release struct {
	source, out, key string
	targets          []target
	version          string // v0.1.0
	commit           string
	date             time.Time // of the commit, and of everything in the release
}

// must panics with an error, which main prints before it ends the program.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// got returns a value, or panics as must does.
func got[T any](value T, err error) T {
	must(err)
	return value
}

func (r *release) number() string        { return strings.TrimPrefix(r.version, "v") }
func (r *release) stem(of string) string { return "natsid-" + r.version + "-" + of } // beginning of a file's name

// identify reads the commit and its date, and chooses the version.
func (r *release) identify() {
	r.commit = output(r.source, nil, "git", "rev-parse", "HEAD")
	r.date = got(time.Parse(time.RFC3339, output(r.source, nil, "git", "log", "-1", "--format=%cI"))).UTC()
	tags := strings.Fields(output(r.source, nil, "git", "tag", "--points-at", "HEAD", "v*"))
	isChanged := output(r.source, nil, "git", "status", "--porcelain") != ""
	r.version = got(versionOf(r.version, tags, isChanged))
	if isChanged {
		r.commit += "-changed"
	}
}

const unreleased = "v0.0.0-dev" // the version of a commit without a tag

var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// versionOf returns the version of a commit: the wanted one, or by default its first tag. It returns an error if no tag
// is the wanted version, or if a version is to be given to files that differ from the commit.
func versionOf(wanted string, tags []string, isChanged bool) (string, error) {
	if len(tags) > 0 && wanted != "" && !slices.Contains(tags, wanted) {
		return "", fmt.Errorf("the version is to be %s, but the commit has the tag %s", wanted, tags[0])
	}
	version := cmp.Or(append([]string{wanted}, tags...)...)
	if version != "" && isChanged {
		return "", fmt.Errorf("%s: files were changed since the commit: commit them first", version)
	}
	version = cmp.Or(version, unreleased)
	if !semver.MatchString(version) {
		return "", fmt.Errorf("the version is %q, want one like v0.1.0 or v0.1.0-rc1", version)
	}
	return version, nil
}

// output runs a program, with env added to the environment, and returns its standard output.
func output(dir string, env []string, program string, args ...string) string {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		panic(fmt.Errorf("%s: %w", cmd, err))
	}
	return strings.TrimSpace(string(out))
}

func (r *release) write(name string, data []byte) {
	must(os.WriteFile(filepath.Join(r.out, name), data, 0o644))
}

// build writes all files of the release, or none. Since it takes minutes, it first tries what can fail at once: the
// notes, the texts and the key.
func (r *release) build() {
	if old, err := os.ReadDir(r.out); err == nil && len(old) > 0 {
		panic(fmt.Errorf("%s is not empty: remove its %d files first", r.out, len(old)))
	}
	stage := got(os.MkdirTemp("", "natsid-release-"))
	defer os.RemoveAll(stage)
	notes, texts := r.section(), r.texts()
	if r.key != "" {
		must(os.WriteFile(filepath.Join(stage, "probe"), nil, 0o600))
		r.sign(stage, "probe")
	}
	must(os.MkdirAll(r.out, 0o755))
	isDone := false
	defer func() {
		if !isDone {
			os.RemoveAll(r.out)
		}
	}()
	for _, t := range r.targets {
		binary := r.compile(t, stage)
		r.archive(t, binary, texts)
		if t.isPackaged() {
			r.packages(t, binary, texts)
		}
	}
	r.image(stage)
	r.chart()
	r.write(r.stem("notes.md"), notes)
	r.sums()
	r.sign(r.out, "SHA256SUMS")
	isDone = true
}

// section returns the notes: the section of CHANGELOG.md about the version.
func (r *release) section() []byte {
	name := r.number()
	if r.version == unreleased {
		name = "Unreleased"
	}
	log := got(os.ReadFile(filepath.Join(r.source, "CHANGELOG.md")))
	_, section, found := strings.Cut("\n"+string(log), "\n## ["+name+"]")
	if !found {
		panic(fmt.Errorf("CHANGELOG.md has no section [%s]", name))
	}
	_, section, _ = strings.Cut(section, "\n") // after the heading
	section, _, _ = strings.Cut(section, "\n## [")
	return []byte(strings.TrimSpace(section) + "\n")
}

func (r *release) sums() {
	var lines strings.Builder
	for _, f := range got(os.ReadDir(r.out)) { // sorted by name
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(got(os.ReadFile(filepath.Join(r.out, f.Name())))), f.Name())
	}
	r.write("SHA256SUMS", []byte(lines.String()))
}

// sign signs a file of a directory, if there is a key.
func (r *release) sign(dir, name string) {
	if r.key == "" {
		fmt.Println(name, "is not signed: no -key is given")
		return
	}
	key := got(filepath.Abs(r.key))
	output(dir, nil, "ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "natsid-release", name)
}

// A target is a system and an architecture.
type target struct{ os, arch string }

var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"linux", "armv7"}, {"linux", "riscv64"},
	{"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"freebsd", "amd64"},
}

func (t target) name() string   { return t.os + "-" + t.arch }
func (t target) goarch() string { return strings.TrimSuffix(t.arch, "v7") }
func (t target) exe() string    { return "natsid" + map[string]string{"windows": ".exe"}[t.os] }

// isPackaged reports whether packages for Debian and Fedora, and an image, are made for the target.
func (t target) isPackaged() bool { return t.os == "linux" && t.arch != "riscv64" }

// compile builds the binary of a target, with the flags of the Dockerfile.
func (r *release) compile(t target, stage string) (binary string) {
	binary = filepath.Join(stage, t.name(), t.exe())
	const in = " -X github.com/natsid/natsid/internal/cli."
	flags := "-s -w" + in + "builtVersion=" + r.version + in + "builtCommit=" + r.commit +
		in + "builtDate=" + r.date.Format(time.RFC3339)
	env := []string{
		"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOFIPS140=off", "GOOS=" + t.os, "GOARCH=" + t.goarch(),
		"GOARM=7", "GOAMD64=v1", "GOARM64=v8.0", "GORISCV64=rva20u64",
	}
	output(r.source, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", binary, ".")
	return binary
}
