// Package durable replaces files: a crash leaves the old file or the new one, and the data of a finished Replace
// stays on disk.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// A FileID distinguishes a file from its copies. A field is 0 where the system does not tell it.
type FileID struct {
	Inode uint64 // the file system reuses it after this file is removed
	Birth int64  // when the file was made, in ns; no program can set it
}

// Is reports whether two identities are of one file, as far as both are known.
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

// Replace replaces the file at path, or creates it, readable by its owner alone. The data may name the new file's
// FileID, as [FileIDOf] will return it. When it returns nil, the data and its name are on disk. After an error the
// file is the old one or the new one, whole. It may leave path.new behind, which the next call overwrites. Only one
// caller at a time may replace a file.
func Replace(path string, data func(FileID) []byte) error {
	dir := filepath.Dir(path)
	count(dir, 1)
	defer count(dir, -1)
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
