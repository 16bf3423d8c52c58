package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The name is on disk before Replace returns: only a crash of the machine shows the difference.
func TestTheDirectoryIsSyncedAfterTheFileHasItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	for _, fail := range []error{nil, unix.EIO} {
		fsync = func(dir *os.File) error {
			if named, _ := os.ReadFile(path); string(named) != "text" || dir.Name() != filepath.Dir(path) {
				t.Errorf("%s was synced while a.json holds %q", dir.Name(), named)
			}
			return fail
		}
		if err := replace(path, "text"); !errors.Is(err, fail) {
			t.Errorf("%v, want %v", err, fail)
		}
		_ = os.Remove(path)
	}
	fsync = (*os.File).Sync
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
	return Replace(path, func(FileID) []byte { return []byte(text) })
}
