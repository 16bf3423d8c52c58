// Command charttest packs the Helm chart of deploy/chart; the same commit always gives the same bytes. Its tests render
// the chart, and run what it renders.
package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	dir := flag.String("chart", "../chart", "folder of the chart")
	out := flag.String("out", "", "file to write")
	version := flag.String("version", "", "version and appVersion; empty keeps those of Chart.yaml")
	date := flag.String("date", "", "time of all files, in Unix seconds; empty takes the commit's")
	flag.Parse()
	if err := run(*dir, *out, *version, *date); err != nil {
		fmt.Fprintln(os.Stderr, "charttest:", err)
		os.Exit(1)
	}
}

func run(dir, out, version, date string) error {
	if date == "" {
		said, err := exec.Command("git", "-C", dir, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return fmt.Errorf("cannot find the date of the commit: %w; give -date SECONDS", err)
		}
		date = strings.TrimSpace(string(said))
	}
	seconds, err := strconv.ParseInt(date, 10, 64)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(pack(f, dir, version, time.Unix(seconds, 0)), f.Close())
}

var versions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// pack writes the chart in dir as `helm package` does, but with the same bytes each time: files in
// order, all of one time, and neither owners nor modes of this machine. An empty version keeps
// those of Chart.yaml.
func pack(w io.Writer, dir, version string, date time.Time) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name) // follows links: alerts.yml is one
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if rel == "Chart.yaml" && version != "" {
			data = versions.ReplaceAll(data, []byte(`$1: "`+version+`"`))
		}
		err = archive.WriteHeader(&tar.Header{
			Name: path.Join("natsid", filepath.ToSlash(rel)), Mode: 0o644, Size: int64(len(data)), ModTime: date,
			Format: tar.FormatUSTAR,
		})
		if err == nil {
			_, err = archive.Write(data)
		}
		return err
	})
	return errors.Join(err, archive.Close(), zip.Close())
}
