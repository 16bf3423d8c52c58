package durable_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/natsid/natsid/internal/durable"
)

// A file that is read through a name which it may lose.
type kept struct {
	*os.File
	text string
}

func keep(t *testing.T, path string) kept {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return kept{f, content(t, path)}
}

// unchanged fails the test if the file was written to.
func (k kept) unchanged(t *testing.T) {
	t.Helper()
	_, err := k.Seek(0, io.SeekStart)
	now, rerr := io.ReadAll(k)
	if string(now) != k.text || err != nil || rerr != nil {
		t.Errorf("the file of %q was overwritten: it holds %q, %v, %v", k.text, now, err, rerr)
	}
}

// Until its replacement is on disk, a crash may bring it back: half written, it would be lost.
func TestTheFileInItsPlaceIsNeverWrittenTo(t *testing.T) {
	f := &durable.File{Path: filepath.Join(t.TempDir(), "a.json")}
	replace := func(text string) {
		t.Helper()
		if err := f.Replace([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	replace("first")
	for _, text := range []string{"a longer one", "short", "3", "", "the last of all"} {
		in := keep(t, f.Path)
		replace(text)
		in.unchanged(t)
	}
}

// The process may have been killed before its last replacement was on disk.
func TestWhatAnEarlierProcessLeftIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	for range 3 {
		f := &durable.File{Path: path}
		for _, text := range []string{"a", "b", "c"} {
			if err := f.Replace([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(path + ".new"); err != nil {
			t.Skip("it leaves nothing here")
		}
		left := keep(t, path+".new")
		if err := (&durable.File{Path: path}).Replace([]byte("of the next process")); err != nil {
			t.Fatal(err)
		}
		left.unchanged(t)
	}
}

func TestAfterAReplacementThatFailedNothingIsOverwritten(t *testing.T) {
	f := &durable.File{Path: filepath.Join(t.TempDir(), "a.json")}
	for _, text := range []string{"a", "b", "c"} {
		if err := f.Replace([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(f.Path + ".new"); err != nil {
		t.Skip("it leaves nothing here")
	}
	left := keep(t, f.Path+".new")
	aside := f.Path + ".aside"
	steps := []func() error{
		func() error { return os.Rename(f.Path+".new", aside) },
		func() error { return os.Mkdir(f.Path+".new", 0o700) },
		func() error {
			if f.Replace([]byte("fails")) == nil {
				t.Error("no error, though path.new is a directory")
			}
			return nil
		},
		func() error { return os.Remove(f.Path + ".new") },
		func() error { return os.Rename(aside, f.Path+".new") },
		func() error { return f.Replace([]byte("d")) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	left.unchanged(t)
}

// A backup may be made of links.
func TestACopyOfAnotherNameStaysAsItIs(t *testing.T) {
	f := &durable.File{Path: filepath.Join(t.TempDir(), "a.json")}
	for _, text := range []string{"a", "b", "c", "d", "e"} {
		if err := f.Replace([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(f.Path, f.Path+text); err != nil {
			t.Skip(err)
		}
	}
	for _, text := range []string{"a", "b", "c", "d", "e"} {
		if got := content(t, f.Path+text); got != text {
			t.Errorf("the copy of %q holds %q", text, got)
		}
	}
}
