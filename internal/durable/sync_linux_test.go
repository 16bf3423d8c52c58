package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Data before the name, and the name before Replace returns: only a crash of the machine shows the difference.
func TestTheFileIsSyncedBeforeItsNameAndTheDirectoryAfterwards(t *testing.T) {
	dir := t.TempDir()
	f := &File{Path: filepath.Join(dir, "a.json")}
	synced, fail := []string{}, error(nil)
	fsync = func(fd int) error {
		file, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
		if err != nil {
			t.Skip("no names of open files here:", err)
		}
		named, _ := os.ReadFile(f.Path)
		synced = append(synced, fmt.Sprintf("%s while a.json holds %q", filepath.Base(file), named))
		return fail
	}
	defer func() { fsync = unix.Fsync }()
	in := func(name, text string) string { return fmt.Sprintf("%s while a.json holds %q", name, text) }
	check := func(err error, want ...string) {
		t.Helper()
		if !slices.Equal(synced, want) || !errors.Is(err, fail) {
			t.Errorf("synced %q, %v, want %q", synced, err, want)
		}
		synced = nil
	}
	last := ""
	for _, text := range []string{"first", "second", "third"} { // new, exchanged, overwritten
		check(f.Replace([]byte(text)), in("a.json.new", last), in(filepath.Base(dir), text))
		last = text
	}
	check(replace(f.Path, "once"), in(filepath.Base(dir), "once")) // for the file see the next test
	fail = unix.EIO
	check(f.Replace([]byte("lost")), in("a.json.new", "once"))
	check(replace(f.Path, ""), in(filepath.Base(dir), ""))
}

// A device can be written to and not synced.
func TestAFileThatIsNotSyncedGetsNoName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	if err := os.Symlink(os.DevNull, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := replace(path, "text"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v, want %v", err, unix.EINVAL)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v: there is a file", err)
	}
}

func replace(path, text string) error {
	return Replace(path, func(Identity) []byte { return []byte(text) })
}
