package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/natsid/natsid/internal/durable"
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
		return fmt.Errorf("%w: another natsid runs in %s, or has ended and its disk hangs; stop it, "+
			"or give this one a directory of its own with --data DIR", ErrDataInUse, d.path)
	}
	d.held = lock
	return nil
}

// unlock lets other processes into the data directory. After half a second it continues in the background: a disk that
// hangs must not delay the stop.
//
// Law: a write that a step gave up may still reach the disk, and replace a newer state by an older one. So the lock is
// held until every write has ended; when a process exits, the kernel sees to that.
func (d *dataDir) unlock() error {
	if d.held == nil {
		return nil
	}
	released := make(chan struct{})
	go func() {
		durable.Wait(d.path)
		_ = d.held.Unlock() // it fails only for a lock that is not held
		close(released)
	}()
	select {
	case <-released:
	case <-time.After(time.Second / 2):
	}
	return nil
}
