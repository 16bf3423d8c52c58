package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
)

// A file is a file of an archive or an image. The name of a directory ends with a slash.
type file struct {
	name string
	mode int64
	data []byte
	user int // user and group
}

func (r *release) archive(t target, binary string, texts map[string]string) {
	dir := r.stem(t.name())
	files := []file{{name: dir + "/" + t.exe(), mode: 0o755, data: got(os.ReadFile(binary))}}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if path.Dir(name) == "package" || path.Dir(name) == "systemd" && t.os != "linux" {
			continue
		}
		files = append(files, file{name: dir + "/" + path.Base(name), mode: 0o644, data: []byte(texts[name])})
	}
	if t.os == "windows" {
		r.write(dir+".zip", zipped(files, r.date))
	} else {
		r.write(dir+".tar.gz", gzipped(tarred(files, r.date)))
	}
}

// tarred returns a tar of files, all with the same time of modification.
func tarred(files []file, at time.Time) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Uid: f.user, Gid: f.user}
		must(w.WriteHeader(h))
		got(w.Write(f.data))
	}
	must(w.Close())
	return b.Bytes()
}

// gzipped returns data compressed. It stores no time, so the same data gives the same bytes.
func gzipped(data []byte) []byte {
	var b bytes.Buffer
	w := got(gzip.NewWriterLevel(&b, gzip.BestCompression))
	got(w.Write(data))
	must(w.Close())
	return b.Bytes()
}

func zipped(files []file, at time.Time) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(fs.FileMode(f.mode))
		got(got(w.CreateHeader(h)).Write(f.data))
	}
	must(w.Close())
	return b.Bytes()
}

// below returns the files at and below a path. Their names are relative to dir.
func below(dir, path string) (files []file) {
	must(filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := filepath.ToSlash(got(filepath.Rel(dir, path)))
		files = append(files, file{name: name, mode: 0o644, data: got(os.ReadFile(path))})
		return nil
	}))
	return files
}

// chart packs deploy/chart with the version of the release.
func (r *release) chart() {
	name := filepath.Join(got(filepath.Abs(r.out)), "natsid-"+r.number()+".tgz") // helm's name for it
	output(filepath.Join(r.source, "deploy", "charttest"), nil, "go", "run", ".", "-out", name, "-version", r.number(),
		"-date", fmt.Sprint(r.date.Unix()))
}

// texts returns the text files of all targets, by name. Those in the folder package are for packages alone, those in
// systemd for Linux alone.
func (r *release) texts() map[string]string {
	texts := map[string]string{
		"natsid.yaml": settings(), "natsid.1": r.manual(), "package/changelog": r.debianChangelog(),
	}
	for _, part := range []string{"LICENSE", "README.md", "deploy/systemd", "deploy/package"} {
		for _, f := range below(r.source, filepath.Join(r.source, part)) {
			texts[strings.TrimPrefix(f.name, "deploy/")] = string(f.data)
		}
	}
	return texts
}

// natsid runs a natsid command, and returns what it prints on a terminal of 80 columns.
func natsid(args ...string) string {
	os.Unsetenv("COLUMNS")
	var out, errs bytes.Buffer
	if code := cli.Main(context.Background(), args, &out, &errs); code != 0 {
		panic(fmt.Errorf("natsid %q: exit code %d: %s", args, code, &errs))
	}
	return out.String()
}

// roff escapes characters that have a special meaning in a manual page.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// manual returns the manual page: the help of natsid and of each command.
func (r *release) manual() string {
	var page strings.Builder
	fmt.Fprintf(&page, ".TH NATSID 1 %s \"natsid %s\" \"User Commands\"\n", r.date.Format(time.DateOnly), r.number())
	page.WriteString(".SH NAME\nnatsid \\- issue unique 64-bit IDs over NATS\n")
	section := func(name, text string) {
		fmt.Fprintf(&page, ".SH \"%s\"\n.nf\n%s\n.fi\n", strings.ToUpper(name), roff.Replace(strings.TrimSpace(text)))
	}
	help := natsid("--help")
	section("description", help)
	_, commands, _ := strings.Cut(help, "\nCommands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	for line := range strings.Lines(commands) { // two spaces, the name, more spaces, the summary
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "  "), "  ")
		if strings.HasPrefix(line, "  ") && name != "" {
			section("natsid "+name, natsid(append(strings.Fields(name), "--help")...))
		}
	}
	section("flags of every command", natsid("help", "connection"))
	return page.String()
}

// debianChangelog returns a changelog with one entry, as Debian demands.
func (r *release) debianChangelog() string {
	const entry = "natsid (%s) stable; urgency=medium\n\n  * See the tag %s.\n\n -- %s  %s\n"
	debian := strings.Replace(r.number(), "-", "~", 1)
	return fmt.Sprintf(entry, debian, r.version, maintainer, r.date.Format(time.RFC1123Z))
}

// settings returns an example configuration: each setting as a comment, with its default or the form of its value.
func settings() string {
	var b strings.Builder
	b.WriteString("# Settings of natsid. Each is a comment, with its default or the form of its value.\n" +
		"# With none, natsid is a whole service, with a NATS server inside; set nats to be a worker on yours.\n" +
		"# systemd's units set data. To check this file: natsid config --config /etc/natsid/natsid.yaml\n")
	group := ""
	for _, s := range app.Settings() {
		if s.Flag == "config" {
			continue
		}
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		help, value := s.Help, cmp.Or(s.Default, s.Placeholder, "false")
		if s.Range != "" {
			help += " Valid: " + s.Range + "."
		}
		lines := strings.ReplaceAll(help, ". ", ".\n# ")
		fmt.Fprintf(&b, "\n# %s\n#%s: %s\n", lines, s.Flag, value)
	}
	return b.String()
}
