package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// A dataDir is the data directory, which one process uses at a time.
type dataDir struct {
	path string       // "" for none
	held *flock.Flock // nil before lock, and without a directory
}

// lock creates the data directory and keeps other processes out of it.
func (d *dataDir) lock(context.Context) error {
	if d.path == "" {
		return nil
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return fmt.Errorf("cannot create the data directory: %w; choose another with --data DIR", err)
	}
	lock := flock.New(filepath.Join(d.path, "lock"))
	got, err := lock.TryLock()
	if err != nil {
		return fmt.Errorf("cannot lock the data directory %s: %w; make it writable, or choose another with --data DIR "+
			"(with --nats, --data '' keeps no local state)", d.path, err)
	}
	if !got {
		return fmt.Errorf("%w: another natsid runs in %s; stop it, "+
			"or give this one a directory of its own with --data DIR", ErrDataInUse, d.path)
	}
	d.held = lock
	return nil
}

func (d *dataDir) unlock() error {
	if d.held != nil {
		_ = d.held.Unlock() // it fails only for a lock that is not held
	}
	return nil
}
