package main

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// What is the same for all targets is tested with all: in place of binaries, which take minutes, there is a file each.
func allTargets(t *testing.T) (r *release, stage string) {
	t.Helper()
	r = &release{source: "../..", out: t.TempDir(), targets: targets, version: testVersion,
		date: time.Unix(1790000000, 0)}
	stage = t.TempDir()
	for _, target := range r.targets {
		must(os.MkdirAll(filepath.Join(stage, target.name()), 0o755))
		must(os.WriteFile(filepath.Join(stage, target.name(), target.exe()), []byte(target.name()), 0o755))
	}
	return r, stage
}

func TestEveryArchiveHasWhatItPromises(t *testing.T) {
	on(t, "linux")
	r, stage := allTargets(t)
	texts := r.texts()
	for _, target := range r.targets {
		r.archive(target, filepath.Join(stage, target.name(), target.exe()), texts)
		want := strings.Fields("LICENSE README.md natsid.yaml natsid.1 " + target.exe())
		if target.os == "linux" {
			want = append(want, "natsid.service", "natsid@.service", "credentials.conf")
		}
		for i := range want {
			want[i] = r.stem(target.name()) + "/" + want[i]
		}
		have := listed(t, filepath.Join(r.out, r.stem(target.name())))
		if slices.Sort(want); !slices.Equal(have, want) {
			t.Errorf("%s: files %q, want %q", target.name(), have, want)
		}
	}
}

// listed returns the names of the files in an archive.
func listed(t *testing.T, stem string) (names []string) {
	t.Helper()
	if zipped, err := zip.OpenReader(stem + ".zip"); err == nil {
		defer zipped.Close()
		for _, f := range zipped.File {
			names = append(names, f.Name)
		}
	} else {
		names = strings.Fields(run(t, "tar", "-tzf", stem+".tar.gz"))
	}
	return slices.Sorted(slices.Values(names))
}

// Docker before 29, which knows no index, has a tag for each architecture.
func TestTheImageIsAnIndexOfThreeArchitectures(t *testing.T) {
	on(t, "linux")
	r, stage := allTargets(t)
	r.image(stage)
	dir := t.TempDir()
	run(t, "tar", "-xf", filepath.Join(r.out, r.stem("image.tar")), "-C", dir)
	outer := got(got(layout.ImageIndexFromPath(dir)).IndexManifest()).Manifests[0]
	inner := got(got(got(layout.ImageIndexFromPath(dir)).ImageIndex(outer.Digest)).IndexManifest())
	var have []string
	for _, m := range inner.Manifests {
		have = append(have, m.Platform.String())
	}
	if want := []string{"linux/amd64", "linux/arm64", "linux/arm/v7"}; !slices.Equal(have, want) {
		t.Errorf("images for %q, want %q", have, want)
	}
	tags := regexp.MustCompile(`"RepoTags":\["([^"]*)"\]`).FindAllStringSubmatch(
		string(got(os.ReadFile(filepath.Join(dir, "manifest.json")))), -1)
	for i, suffix := range []string{"", "-arm64", "-armv7"} {
		if want := "natsid:" + r.number() + suffix; tags[i][1] != want {
			t.Errorf("tag %s, want %s", tags[i][1], want)
		}
	}
}

// A commit with a tag is that version, and no other; files that were changed are none.
func TestARepositorySaysWhichVersionItIs(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		identity := []string{"-C", dir, "-c", "user.name=test", "-c", "user.email=test@example.com"}
		run(t, "git", append(identity, args...)...)
	}
	git("init", "-q")
	must(os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	git("add", "file")
	git("commit", "-q", "-m", "Add a file")
	identify := func(version string) (r *release, err error) {
		defer func() {
			if fault := recover(); fault != nil {
				err = fmt.Errorf("%v", fault)
			}
		}()
		r = &release{source: dir, version: version}
		r.identify()
		return r, nil
	}
	if r, err := identify(""); err != nil || r.version != unreleased || len(r.commit) != 40 || r.date.Year() < 2026 {
		t.Errorf("without a tag: %+v, %v", r, err)
	}
	git("tag", "v9.8.7")
	if r, err := identify(""); err != nil || r.version != "v9.8.7" {
		t.Errorf("with a tag: %+v, %v", r, err)
	}
	if _, err := identify("v9.8.8"); err == nil || !strings.Contains(err.Error(), "the commit has the tag v9.8.7") {
		t.Errorf("another version than the tag: %v", err)
	}
	must(os.WriteFile(filepath.Join(dir, "file"), []byte("changed"), 0o644))
	if _, err := identify("v9.8.7"); err == nil || !strings.Contains(err.Error(), "commit them first") {
		t.Errorf("changed files: %v", err)
	}
}

// README says which systems are tested, and RELEASES.md which are built.
func TestEverySystemIsNamed(t *testing.T) {
	readme, releases := string(got(os.ReadFile("../../README.md"))), string(got(os.ReadFile("../../RELEASES.md")))
	if !strings.Contains(readme, "Linux on amd64 is tested; ") {
		t.Error("README does not say which systems are tested")
	}
	names := strings.NewReplacer("darwin", "macOS", "windows", "Windows", "freebsd", "FreeBSD", "linux", "Linux")
	for _, target := range targets {
		system := names.Replace(target.os)
		for file, text := range map[string]string{"README.md": readme, "RELEASES.md": releases} {
			if !strings.Contains(text, system) || !strings.Contains(text, target.arch) {
				t.Errorf("%s does not name %s on %s", file, system, target.arch)
			}
		}
	}
}
