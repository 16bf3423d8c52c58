//go:build unix

package durable

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Inode returns the number of a file or directory, which a copy of it does not share; 0 where there is none.
func Inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// syncDir makes a rename in the directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
