//go:build unix

// Package soak has clients in several languages draw IDs at the same time, from one fleet of natsids on a cluster of
// NATS, while faults strike: and judges all IDs of all languages together.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/natsid/natsid/conformance/internal/adapter"
	"github.com/natsid/natsid/conformance/internal/contract"
)

// A Client is a client in one language.
type Client struct {
	Name, Profile string
	Command       adapter.Command
}

// A Config is what to run. All fields are required.
type Config struct {
	Clients  []Client
	Contract *contract.Contract
	For      time.Duration // at least; each fault strikes once in any case
	Out      io.Writer     // for progress and the table
}

// calm is how long nothing happens before each fault.
const calm = 2 * time.Second

// Run has all clients draw IDs through the faults, over and over, prints a table, and returns what was broken.
func Run(ctx context.Context, cfg Config) (err error) {
	dir, err := os.MkdirTemp("", "soak-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w\nlogs are in %s", err, dir)
		}
	}()
	f, err := startFleet(ctx, dir)
	defer f.close()
	if err != nil {
		return err
	}
	j := newJudge(dir)
	load, err := startLoad(cfg, f, j)
	if err != nil {
		return errors.Join(err, load.stop())
	}
	fault := f.strikeAll(ctx, cfg, j)
	err = errors.Join(fault, load.stop(), f.crashed())
	return errors.Join(err, j.verdict(cfg))
}

// strikeAll lets faults strike one after the other, until the time is up and each has struck.
func (f *fleet) strikeAll(ctx context.Context, cfg Config, j *judge) error {
	began := time.Now()
	for i := 0; i < len(faults) || time.Since(began) < cfg.For; i++ {
		fault := faults[i%len(faults)]
		j.enter(calmly)
		if err := sleep(ctx, calm); err != nil {
			return err
		}
		fmt.Fprintf(cfg.Out, "%6.1f s  %s: %s\n", time.Since(began).Seconds(), fault.name, fault.says)
		j.enter(fault.name)
		if err := fault.strike(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
		if err := f.whole(ctx); err != nil {
			return fmt.Errorf("after %s: %w", fault.name, err)
		}
	}
	j.enter(calmly)
	return sleep(ctx, calm)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
