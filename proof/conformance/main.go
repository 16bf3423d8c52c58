// Command conformance holds clients in any language to the laws of clients: it starts an adapter of each, drives it
// through all scenarios, and prints a table.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/natsid/natsid/proof/conformance/internal/rig"
)

//go:generate go run ./internal/vectors/make vectors

//go:embed contract.json vectors
var assets embed.FS

func main() {
	rig.Act()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := command(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errShort): // the table says it
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
}

// errShort is returned when a client falls short.
var errShort = errors.New("a client falls short")

// flagSet returns a set of flags with those that name adapters. The function that it returns reads the adapters,
// after parsing.
func flagSet() (f *flag.FlagSet, adapters func(context.Context) ([]adapterOf, error)) {
	f = flag.NewFlagSet("conformance", flag.ContinueOnError)
	var all []adapterOf
	f.Func("adapter", "`command` that is an adapter; may be repeated", func(text string) error {
		args := strings.Fields(text)
		if len(args) == 0 {
			return errors.New("it is empty")
		}
		all = append(all, adapterOf{Adapter: args})
		return nil
	})
	f.Func("descriptor", "`file` that says how to start an adapter; may be repeated", func(path string) error {
		a, err := readDescriptor(path)
		all = append(all, a)
		return err
	})
	f.Usage = func() {
		fmt.Fprint(f.Output(), "conformance plays scenarios with adapters of clients.\n\n"+
			"Without an adapter it takes those of this repository.\n\n")
		f.PrintDefaults()
	}
	return f, func(ctx context.Context) ([]adapterOf, error) {
		if len(all) == 0 {
			own, err := ownAdapters()
			if err != nil {
				return nil, err
			}
			all = own
		}
		for _, a := range all {
			if err := a.build(ctx); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
}
