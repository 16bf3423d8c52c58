// Package durable replaces files: a crash leaves the old file or the new one, and the data of a finished Replace
// stays on disk.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// A FileID distinguishes a file from its copies. A field is 0 if the system does not report it.
type FileID struct {
	Inode uint64 // the file system may reuse it once the file is removed
	Birth int64  // time of creation, Unix ns; no program can set it
}

// Is reports whether two IDs are of one file: their inodes are equal, and so are their births, if both are known.
func (i FileID) Is(other FileID) bool {
	return i.Inode == other.Inode && (i.Birth == other.Birth || i.Birth == 0 || other.Birth == 0)
}

// FileIDOf returns the FileID of a file.
func FileIDOf(path string) (FileID, error) {
	f, err := os.Open(path)
	if err != nil {
		return FileID{}, err
	}
	i, err := fileIDOf(f)
	return i, errors.Join(err, f.Close())
}

func fileIDOf(f *os.File) (FileID, error) {
	info, err := f.Stat()
	if err != nil {
		return FileID{}, err
	}
	return FileID{Inode(info), birth(f)}, nil
}

// Replace replaces the file at path, or creates it, readable by its owner alone. data returns the content; its argument
// is the FileID that [FileIDOf] will return. When Replace returns nil, the content and the name are on disk. After an
// error the file is the old one or the new one, whole. Replace may leave path.new behind, which the next call
// overwrites. Only one caller at a time may replace a file.
func Replace(path string, data func(FileID) []byte) error {
	dir := filepath.Dir(path)
	writes := writesIn(dir)
	writes.RLock()
	defer writes.RUnlock()
	temp := path + ".new"
	if err := write(temp, data); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func write(path string, data func(FileID) []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	own, err := fileIDOf(f)
	if err == nil {
		_, err = f.Write(data(own))
	}
	return errors.Join(err, f.Sync(), f.Close())
}
