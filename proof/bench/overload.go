package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/testkit/overload"
)

// benchOverload offers workers three times their capacity, and then a little less than their capacity. Each has so
// little CPU time that callers and server have enough. Every ID is checked for repeats. If the callers' own messages
// are late, too, the machine is overloaded, and the row does not measure workers.
func benchOverload(ctx context.Context, dir string, opt options) error {
	if opt.natsid == "" {
		opt.natsid = filepath.Join(dir, "natsid.exe")
		if err := buildNatsid(ctx, opt.natsid); err != nil {
			return err
		}
	}
	fmt.Printf("Offered %v times the capacity for %v, then %v of it for %v; %v CPU per worker in each %v; %s.\n",
		overload.Factor, opt.length, overload.Rest, opt.length/2, opt.quota, overload.Period, machine())
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "mode\tworkers\toutstanding\t"+strings.Join(overload.Columns, "\t")+"\trepeats\t")
	defer t.Flush()
	for _, workers := range only(opt.workers, 1, 2, 5) {
		for _, mode := range []string{"segment", "snowflake"} {
			for _, outstanding := range only(opt.outstanding, 512, 4096) {
				opt := opt
				opt.workers, opt.outstanding = workers, outstanding
				name := fmt.Sprint(mode, " ", workers, " ", outstanding)
				fmt.Fprintln(os.Stderr, "measuring", name)
				at := filepath.Join(dir, name)
				if err := os.Mkdir(at, 0o700); err != nil {
					return err
				}
				err := overloadOnce(ctx, t, at, mode, opt)
				if errors.Is(err, overload.ErrNoQuota) {
					fmt.Println("Not measured:", err)
					return nil
				}
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

func only(one int, all ...int) []int {
	if one > 0 {
		return []int{one}
	}
	return all
}

// overloadOnce measures one row of the table, with processes of its own.
func overloadOnce(ctx context.Context, w io.Writer, dir, mode string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	trial := overload.Trial{
		URLs: []string{url}, Subject: "id.snowflake", Servers: []int{server.cmd.Process.Pid},
		Outstanding: opt.outstanding, Length: opt.length, After: opt.length / 2, Ledger: ledger.New(dir),
	}
	defer trial.Ledger.Close()
	monitor, err := server.printed(ctx, "http://")
	if err != nil {
		return err
	}
	trial.Monitors = []string{monitor}
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	for i := range opt.workers {
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		p, err := startNatsid(ctx, at, opt, url, "--name", fmt.Sprint("w", i+1))
		if err != nil {
			return err
		}
		defer p.stop()
		if _, err := p.printed(ctx, "natsid is ready"); err != nil {
			return err
		}
		trial.Workers = append(trial.Workers, p.cmd.Process.Pid)
	}
	if mode == "segment" {
		trial.Subject = "id.segment.bench"
		body := fmt.Sprintf(`{"tag":"bench","step":%d}`, opt.step)
		if _, err := request(nc, "id.tag.create", []byte(body), replyWithin); err != nil {
			return err
		}
	}
	for _, pid := range trial.Workers {
		release, err := overload.Limit(pid, opt.quota)
		if err != nil {
			return err
		}
		defer release()
	}
	f, err := trial.Run(ctx)
	if err != nil {
		return err
	}
	found, err := trial.Ledger.Close()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t\n", mode, opt.workers, opt.outstanding,
		strings.Join(f.Cells(), "\t"), found.Repeats)
	return nil
}
