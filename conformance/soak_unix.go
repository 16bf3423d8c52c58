//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/natsid/natsid/conformance/internal/scenarios"
	"github.com/natsid/natsid/conformance/internal/soak"
)

// soakCommand has all adapters draw IDs at the same time, through faults.
func soakCommand(ctx context.Context, args []string, out io.Writer) error {
	f, adapters := flagSet("conformance soak", "conformance soak has all adapters draw IDs at the same time from one "+
		"fleet, through faults, and looks for repeats and inversions in the IDs of all.")
	f.SetOutput(out)
	lasts := f.Duration("for", 5*time.Minute, "how `long`; each fault strikes once in any case")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %s", f.Arg(0))
	}
	all, err := adapters(ctx)
	if err != nil {
		return err
	}
	cfg := soak.Config{For: *lasts, Out: out}
	if cfg.Contract, err = readContract(); err != nil {
		return err
	}
	for _, a := range all {
		w := scenarios.World{Contract: cfg.Contract, Command: a.command(), Profile: a.Profile}
		d, err := w.Describe()
		if err != nil {
			return err
		}
		cfg.Clients = append(cfg.Clients, soak.Client{Name: d.Language, Profile: d.Profile, Command: w.Command})
	}
	if err := soak.Run(ctx, cfg); err != nil {
		fmt.Fprintln(out, err)
		return errors.Join(errShort, ctx.Err())
	}
	return nil
}
