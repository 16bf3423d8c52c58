//go:build !unix

package workerid

// inode has no meaning here: host name and machine ID alone name the place.
func inode(string) (uint64, error) { return 0, nil }

// syncDir does nothing: a directory cannot be synced here.
func syncDir(string) error { return nil }
