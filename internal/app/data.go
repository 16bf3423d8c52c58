package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/durable"
)

// A dataDir is the data directory, which one process uses at a time.
type dataDir struct {
	path    string // "" for none
	release func() // nil before lock, and without a directory
}

// lock creates the data directory and keeps other processes out of it.
func (d *dataDir) lock(context.Context) (err error) {
	if d.path == "" {
		return nil
	}
	if d.release, err = durable.Lock(d.path); errors.Is(err, durable.ErrInUse) {
		return fmt.Errorf("%w: another natsid runs in %s, or has ended and its disk hangs; stop it, "+
			"or give this one a directory of its own with --data DIR", ErrDataInUse, d.path)
	}
	if err != nil {
		return fmt.Errorf("cannot create or lock the data directory: %w; make it writable, or choose another with "+
			"--data DIR (with --nats, --data '' keeps no local state)", err)
	}
	return nil
}

// unlock lets other processes into the data directory.
func (d *dataDir) unlock() error {
	if d.release != nil {
		d.release()
	}
	return nil
}
