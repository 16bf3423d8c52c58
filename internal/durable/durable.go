// Package durable replaces files: a crash leaves the old one or the new one, and what Replace wrote stays written.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces the file at path, or creates it, readable by its owner alone. When it returns nil, the data and its
// name are on disk. After an error the file is the old one or the new one, whole. It may leave path.new behind, which
// the next call overwrites. One caller at a time may replace a file.
func Replace(path string, data []byte) error {
	return ReplaceWith(path, func(uint64) []byte { return data })
}

// ReplaceWith is Replace for data that names the new file's inode, as [Inode] will return it.
func ReplaceWith(path string, data func(inode uint64) []byte) error {
	temp := path + ".new"
	if err := write(temp, data); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func write(path string, data func(inode uint64) []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Write(data(Inode(info)))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// Remove removes the file at path, durably. It is no error if there is none.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}
