//go:build unix

package durable

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Inode returns the inode number of a file or directory, which differs from those of its copies; 0 if there is none.
func Inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

var fsync = (*os.File).Sync // tests replace it

// syncDir makes a rename in the directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(fsync(f), f.Close())
}
