package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/durable"
)

// lockData creates the data directory and keeps other processes out of it.
func (p *program) lockData(context.Context) (err error) {
	if p.cfg.Data == "" {
		return nil
	}
	if p.unlock, err = durable.Lock(p.cfg.Data); errors.Is(err, durable.ErrInUse) {
		return fmt.Errorf("%w: another natsid runs in %s, or has ended and its disk hangs; stop it, "+
			"or give this one a directory of its own with --data DIR", ErrDataInUse, p.cfg.Data)
	}
	if err != nil {
		return fmt.Errorf("cannot create or lock the data directory: %w; make it writable, or choose another with "+
			"--data DIR (with --nats, --data '' keeps no local state)", err)
	}
	return nil
}

func (p *program) unlockData() error {
	if p.unlock != nil {
		p.unlock()
	}
	return nil
}
