//go:build unix

package durable

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Inode returns the inode number of a file or directory, which its copies do not share; 0 where there is none.
func Inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

var fsync = unix.Fsync // tests replace it

// syncDir makes a rename in the directory durable. Package os would prepare the directory for waiting, at three times
// the system calls.
func syncDir(dir string) error {
	fd, err := retryInterrupted(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	_, err = retryInterrupted(func() (int, error) { return 0, fsync(fd) })
	return errors.Join(err, unix.Close(fd))
}

// retryInterrupted calls f until no signal interrupts it.
func retryInterrupted(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
