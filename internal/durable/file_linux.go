package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace is the package's Replace with much less work for the file system. It overwrites the file at path.new and
// exchanges both names: so no file is made or removed.
func (f *File) Replace(data []byte) error {
	defer begin(f.Path)()
	settled := f.settled
	f.settled = false
	temp := f.Path + ".new"
	fd, err := openSpare(temp, settled)
	if err == nil {
		err = errors.Join(fill(fd, data), unix.Close(fd))
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: temp, Err: err}
	}
	// There may be no file to exchange names with, or the file system may not support the exchange.
	if unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, f.Path, unix.RENAME_EXCHANGE) != nil {
		if err := unix.Rename(temp, f.Path); err != nil {
			return &os.LinkError{Op: "rename", Old: temp, New: f.Path, Err: err}
		}
	}
	err = syncDir(filepath.Dir(f.Path))
	f.settled = err == nil
	return err
}

// openSpare opens the file at path for writing: the existing one if it may be overwritten, else a new one. An
// existing file with other rights was not made by this package, and one with several names is a copy that somebody
// keeps.
func openSpare(path string, overwrite bool) (fd int, err error) {
	if overwrite {
		fd, err = retryInterrupted(func() (int, error) {
			return unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		var s unix.Stat_t
		if err == nil && unix.Fstat(fd, &s) == nil && s.Mode == unix.S_IFREG|0o600 && s.Nlink == 1 {
			return fd, nil
		}
		if err == nil {
			_ = unix.Close(fd) // nothing was written
		}
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	return retryInterrupted(func() (int, error) {
		return unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	})
}

// fill makes data the content of a file, durably.
func fill(fd int, data []byte) error {
	for rest := data; len(rest) > 0; {
		n, err := retryInterrupted(func() (int, error) { return unix.Write(fd, rest) })
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	if s.Size > int64(len(data)) {
		if err := unix.Ftruncate(fd, int64(len(data))); err != nil {
			return err
		}
	}
	_, err := retryInterrupted(func() (int, error) { return 0, fsync(fd) })
	return err
}
