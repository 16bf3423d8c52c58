//go:build !unix

package durable

import "io/fs"

// Inode returns 0: this system has no inode numbers.
func Inode(fs.FileInfo) uint64 { return 0 }

// syncDir does nothing: a directory cannot be synced here.
func syncDir(string) error { return nil }
