package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/natsid/natsid/internal/durable"
)

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAFileIsReplacedWholeWhateverAnInterruptedWriteLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	for _, text := range []string{"a long first text", "short"} {
		if err := os.WriteFile(path+".new", []byte("what an interrupted write left, and long"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := durable.Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != text {
			t.Errorf("the file holds %q, want %q", got, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}

func TestAWriteThatFailsLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	if err := durable.Replace(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(path, []byte("new")); err == nil {
		t.Error("no error, though path.new is a directory")
	}
	if got := content(t, path); got != "old" {
		t.Errorf("the file holds %q", got)
	}
}

func TestTheInodeGivenIsThatOfTheFileInItsPlaceAndNotOfACopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	var given uint64
	if err := durable.ReplaceWith(path, func(inode uint64) []byte { given = inode; return []byte("{}") }); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".copy", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{path: true, path + ".copy": given == 0} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := durable.Inode(info); (got == given) != want {
			t.Errorf("%s has inode %d, and %d was given", filepath.Base(name), got, given)
		}
	}
}

func TestRemovingAFileTwiceIsNoError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	if err := durable.Replace(path, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := durable.Remove(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}
