package durable_test

import (
	"errors"
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

func replace(path, text string) error {
	return durable.Replace(path, func(durable.FileID) []byte { return []byte(text) })
}

func TestAFileIsReplacedWholeWhateverAnInterruptedWriteLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	for _, text := range []string{"a long first text", "short", "long again", "", "the last one"} {
		if err := os.WriteFile(path+".new", []byte("what an interrupted write left, and long"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := replace(path, text); err != nil {
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
	if err := errors.Join(replace(path, "old"), os.Mkdir(path+".new", 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := replace(path, "new"); err == nil {
		t.Error("no error, though path.new is a directory")
	}
	if got := content(t, path); got != "old" {
		t.Errorf("the file holds %q", got)
	}
}

func TestTheFileIDGivenIsThatOfTheFileInItsPlaceAndNotOfACopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	var given durable.FileID
	again := func() {
		t.Helper()
		data := func(own durable.FileID) []byte { given = own; return []byte("{}") }
		if err := durable.Replace(path, data); err != nil {
			t.Fatal(err)
		}
	}
	again()
	if now, err := durable.FileIDOf(path); err != nil || now != given {
		t.Errorf("%v, %v, and %v was given", now, err, given)
	}
	if given == (durable.FileID{}) {
		t.Skip("files have no identity here")
	}
	if err := os.WriteFile(path+".copy", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if now, err := durable.FileIDOf(path + ".copy"); err != nil || now.Is(given) {
		t.Errorf("a copy has %v, %v, and %v was given", now, err, given)
	}
	if given.Birth == 0 {
		t.Skip("files have no birth here")
	}
	first := given
	for range 5 { // a file system gives an inode to another file soon
		again()
		if now, err := durable.FileIDOf(path); err != nil || !now.Is(given) || now.Is(first) {
			t.Errorf("the next file has %v, %v; it was given %v, and the first one %v", now, err, given, first)
		}
	}
}

func TestAnUnknownBirthTellsNothing(t *testing.T) {
	a := durable.FileID{Inode: 1, Birth: 2}
	for b, want := range map[durable.FileID]bool{
		a: true, {Inode: 1}: true, {Inode: 1, Birth: 3}: false, {Inode: 2, Birth: 2}: false, {Inode: 2}: false,
	} {
		if a.Is(b) != want || b.Is(a) != want {
			t.Errorf("%v and %v are of one file: %t", a, b, !want)
		}
	}
}
