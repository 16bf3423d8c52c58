//go:build linux

// Command faults shows that natsid keeps its promises on real processes. It starts
// nats-servers, workers and MariaDB on loopback and kills them, pauses them, cuts
// them off, sets their clocks and fills their disks, all under load. It records
// every ID of every reply: none may be issued twice.
//
//	go run ./proof/faults                            all faults, each on a cluster of its own
//	go run ./proof/faults worker-kill 'mysql-*'      some of them
//	go run ./proof/faults -for 10m -seed 7 random    a random sequence of faults on one cluster
//	go run ./proof/faults -old v0.1.0 'upgrade-*'    from an earlier version to this one, and back
//	go run ./proof/faults -stamp-messages 1500000 -parallel 1 'stamp-*'    10 million messages are stamped and checked
//
// It builds natsid and nats-server from the module of the current folder, natsid
// with a wall clock that can be set without that of the machine. It needs Linux,
// and MariaDB for some faults.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// options are the flags; their usage texts explain them.
type options struct {
	list, brief, build, again, keep, verbose bool
	rate, batch, parallel                    int
	markdown, old                            string
	random                                   time.Duration
	seed                                     uint64
	stampMessages                            uint64
}

func main() {
	if os.Getenv(ownMountsEnv) == "" {
		if code, ok := withOwnMounts(); ok {
			os.Exit(code)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	opt := options{}
	flag.BoolVar(&opt.list, "list", false, "list the faults and exit")
	flag.BoolVar(&opt.brief, "short", false, "only the faults of the short run")
	flag.BoolVar(&opt.build, "build", false, "build the programs, which the next run finds in Go's cache, and exit")
	flag.BoolVar(&opt.again, "again", false,
		"try a trial that breaks a promise of time once more; a repeat or a broken order counts at once")
	flag.BoolVar(&opt.keep, "keep", false, "keep logs and data, and say where")
	flag.BoolVar(&opt.verbose, "v", false, "print the events of every trial, not only of those that failed")
	flag.IntVar(&opt.rate, "rate", 400, "requests per second")
	flag.IntVar(&opt.batch, "batch", 100, "IDs in a batch; one request in five is for a batch")
	flag.IntVar(&opt.parallel, "parallel", 3, "trials at a time")
	flag.StringVar(&opt.markdown, "markdown", "", "file for the report, in Markdown")
	flag.StringVar(&opt.old, "old", "",
		"an earlier natsid, a program or a commit, from which and to which the upgrade-* faults go")
	flag.DurationVar(&opt.random, "for", time.Minute, "length of a random sequence")
	flag.Uint64Var(&opt.seed, "seed", 1, "seed of random sequences")
	flag.Uint64Var(&opt.stampMessages, "stamp-messages", 0,
		"messages that stages copy in each of their faults, as fast as they can (default: 2000 a second)")
	flag.Parse()
	chosen, err := choose(flag.Args(), opt)
	if err != nil {
		return err
	}
	if opt.list {
		for _, f := range chosen {
			fmt.Printf("%-24s %s\n", f.name, f.summary)
		}
		return nil
	}
	return run(ctx, opt, chosen)
}

// choose returns the faults that the arguments name, in the catalogue's order.
func choose(patterns []string, opt options) (chosen []fault, err error) {
	for _, f := range catalogue() {
		named := slices.ContainsFunc(patterns, func(p string) bool {
			ok, bad := path.Match(p, f.name)
			err = errors.Join(err, bad)
			return ok
		})
		if named && f.upgrade && opt.old == "" {
			err = errors.Join(err, fmt.Errorf("%s needs -old", f.name))
		}
		if (named || len(patterns) == 0 && !f.upgrade) && (f.brief || !opt.brief) {
			chosen = append(chosen, f)
		}
	}
	if err == nil && len(chosen) == 0 {
		err = errors.New("no fault has such a name: see -list")
	}
	return chosen, err
}

// run builds the programs, runs the trials, and reports.
func run(ctx context.Context, opt options, chosen []fault) error {
	dir, err := os.MkdirTemp("", "natsid-faults-")
	if err != nil {
		return err
	}
	if opt.keep {
		fmt.Fprintln(os.Stderr, "logs and data are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	fmt.Fprintln(os.Stderr, "building natsid with a clock that can be set, and nats-server")
	bins, err := build(ctx, dir, opt.old)
	if err != nil || opt.build {
		return err
	}
	results := runAll(ctx, opt, bins, dir, chosen)
	if ctx.Err() != nil {
		printTable(results)
		return errors.New("stopped before the last trial")
	}
	return report(opt, bins, results)
}

// runAll runs a trial of each fault, several concurrently, and prints each result at its end.
func runAll(ctx context.Context, opt options, bins binaries, dir string, chosen []fault) []result {
	results := make([]result, len(chosen))
	slots := make(chan struct{}, opt.parallel)
	var wg sync.WaitGroup
	for i, f := range chosen {
		takes := 1
		if f.alone {
			takes = opt.parallel
		}
		for range takes {
			slots <- struct{}{}
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() {
				for range takes {
					<-slots
				}
			}()
			at := filepath.Join(dir, fmt.Sprint(i, "-", f.name))
			if err := os.Mkdir(at, 0o700); err != nil {
				results[i] = result{name: f.name, violations: []string{err.Error()}}
				return
			}
			results[i] = try(ctx, opt, at, func(dir string) result { return tryOnce(ctx, opt, bins, dir, f) })
			printResult(opt, results[i])
			if !opt.keep {
				_ = os.RemoveAll(at) // the whole directory is removed in the end
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(results, func(r result) bool { return r.name == "" })
}
