package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace is the Replace of this package, for much less work of the file system. It overwrites the file at path.new and
// exchanges both names: so no file is made or removed.
func (f *File) Replace(data []byte) error {
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
	// There may be no file to exchange names with, or a file system that cannot.
	if unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, f.Path, unix.RENAME_EXCHANGE) != nil {
		if err := unix.Rename(temp, f.Path); err != nil {
			return &os.LinkError{Op: "rename", Old: temp, New: f.Path, Err: err}
		}
	}
	err = syncDir(filepath.Dir(f.Path))
	f.settled = err == nil
	return err
}

// openSpare opens the file at path for writing: the one that is there if it may be overwritten, else a new one. One
// with other rights is not made by this package, and one of several names is somebody's copy.
func openSpare(path string, overwrite bool) (fd int, err error) {
	if overwrite {
		fd, err = again(func() (int, error) {
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
	return again(func() (int, error) {
		return unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	})
}

// fill makes data the content of a file, durably.
func fill(fd int, data []byte) error {
	for rest := data; len(rest) > 0; {
		n, err := again(func() (int, error) { return unix.Write(fd, rest) })
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
	_, err := again(func() (int, error) { return 0, unix.Fsync(fd) })
	return err
}
