package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/natsid/natsid/internal/durable"
)

func TestAFileIsReplacedWithoutMakingAnother(t *testing.T) {
	f := &durable.File{Path: filepath.Join(t.TempDir(), "a.json")}
	one, two := f.Path+".1", f.Path+".2"
	err := errors.Join(os.WriteFile(one, nil, 0o600), os.WriteFile(two, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, two, unix.RENAME_EXCHANGE); err != nil {
		t.Skip("files cannot exchange their names here:", err)
	}
	files := make(map[durable.Identity]bool)
	for range 20 {
		if err := f.Replace([]byte("text")); err != nil {
			t.Fatal(err)
		}
		i, err := durable.Identify(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = true
		if i.Birth == 0 {
			t.Skip("files have no birth here")
		}
	}
	if len(files) > 2 {
		t.Errorf("%d files were made, want 2", len(files))
	}
}
