// Command bench shows the cost of an ID next to a bare NATS reply, in one table.
//
// It starts a nats-server, a bare QueueSubscribe echo and natsid, each as a process
// of its own on loopback TCP, and sends requests to one after the other: A B C D,
// A B C D, … The speed of a machine drifts by more than the differences of
// interest, so each repeat of a row is compared with the bare echo of the same
// repeat, and the table gives medians. A round before the first is discarded. CPU
// is that of the worker process alone, user and system.
//
// Every reply must hold as many IDs as were requested. One that does not, an error
// and a timeout are counted, and make the exit code 1: a table with errors compares
// nothing. This command does not look for repeated IDs.
//
// With the argument "client" it compares ways to get IDs in a program: see
// benchClient. With "strict" it calls for a strict tag in a program, and judges the order:
// see benchStrict. With "counter" it asks workers for a strict tag, beside a counter in
// JetStream: see benchCounter. With "overload" it offers workers more than they can answer:
// see benchOverload. With "stamp" it compares the stage that stamps messages with a plain
// copy: see benchStamp. With "leaf" it compares natsid leaf with a bare handler of
// net/http: see benchLeaf. With "holder" it issues snowflakes in this process: see benchHolder.
//
//	cd bench && go run .                        # builds natsid from the parent folder
//	cd bench && go run . -callers 1             # the latency of an idle system
//	cd bench && go run . -for 20s overload      # Linux, as root
//	cd bench && go run . -for 1s client
//	cd bench && go run . -for 1s strict
//	cd bench && go run . -callers 128 -for 1s -repeats 3 counter
//	cd bench && go run . -repeats 5 stamp
//	cd bench && go run . leaf
//	cd bench && go run . -for 1s holder
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// options are the flags; their usage texts explain them.
type options struct {
	callers, conns, repeats int
	length                  time.Duration
	step                    int64
	natsid                  string
	workers, outstanding    int
	quota                   time.Duration
	messages                int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	var opt options
	flag.IntVar(&opt.callers, "callers", 64, "callers, each waiting for its reply before it asks again")
	flag.IntVar(&opt.conns, "conns", 4, "connections the callers share")
	flag.IntVar(&opt.repeats, "repeats", 7, "measured rounds over all rows")
	flag.DurationVar(&opt.length, "for", 1500*time.Millisecond, "length of one measurement")
	flag.Int64Var(&opt.step, "step", 1_000_000, "step of the tags; large, so that rows show requests rather than loads")
	flag.StringVar(&opt.natsid, "natsid", "", "natsid's executable (default: built from the parent folder)")
	flag.IntVar(&opt.workers, "workers", 0, "for overload: only with so many (default: 1, 2 and 5)")
	flag.IntVar(&opt.outstanding, "outstanding", 0,
		"for overload: only so many requests under way while the capacity is measured (default: 512 and 4096)")
	flag.DurationVar(&opt.quota, "quota", time.Millisecond, "for overload: CPU time of a worker in 20 ms")
	flag.IntVar(&opt.messages, "messages", 200_000, "for stamp: how many are copied")
	flag.StringVar(&otherCPUs, "others", "", "the CPUs of all but the callers, as taskset takes them, if it is there\n"+
		"(default: those that the callers have; taskset -c 0 bench -others 1 keeps them apart)")
	flag.Parse()
	opt.conns = min(opt.conns, opt.callers)
	modes := map[string]func(ctx context.Context, dir string, opt options) error{
		"": run, "client": benchClient, "strict": benchStrict, "counter": benchCounter,
		"overload": benchOverload, "stamp": benchStamp, "leaf": benchLeaf, "holder": benchHolder,
	}
	mode, known := modes[flag.Arg(0)]
	switch {
	case flag.NArg() == 2: // a child process of the bench
		return runRole(flag.Arg(0), flag.Arg(1))
	case flag.NArg() > 1 || !known:
		return fmt.Errorf("unexpected argument %q", flag.Args())
	case min(opt.conns, opt.repeats, opt.messages) < 1 || opt.length <= 0 || opt.step < 1:
		return errors.New("numbers must be above 0")
	}
	return inFolder(func(dir string) error { return mode(ctx, dir, opt) })
}

// inFolder calls f with a folder for the files of processes.
func inFolder(f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "natsid-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return f(dir)
}

// run starts the processes and compares them. All have ended when it returns.
func run(ctx context.Context, dir string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	echo, err := startSelf(dir, "echo", url)
	if err != nil {
		return err
	}
	defer echo.stop()
	natsid, err := startNatsid(ctx, dir, opt, url, "--auto-create-tags")
	if err != nil {
		return err
	}
	defer natsid.stop()
	return compare(ctx, opt, url, echo, natsid)
}

// compare measures and prints.
func compare(ctx context.Context, opt options, url string, echo, natsid *process) error {
	load, err := newLoad(url, opt)
	if err != nil {
		return err
	}
	defer load.close()
	rows := []*row{ // the first is the reference
		{name: "bare echo", subject: echoSubject, ids: 1, worker: echo},
		{name: "segment", subject: "id.segment.bench", ids: 1, worker: natsid},
		{name: "snowflake", subject: "id.snowflake", ids: 1, worker: natsid},
		// A tag of its own, so that no row begins with a range that another has used up.
		{name: "segment n=1000", subject: "id.segment.bench-batch", body: "1000", ids: 1000, worker: natsid},
	}
	for _, r := range rows {
		if err := prepare(ctx, load.nc[0], r, opt.step); err != nil {
			return err
		}
	}
	if err := measure(ctx, load, rows, opt); err != nil {
		return err
	}
	return printTable(os.Stdout, opt, rows)
}

// prepare returns once a request of the row has been answered.
func prepare(ctx context.Context, nc *nats.Conn, r *row, step int64) error {
	if tag, ok := strings.CutPrefix(r.subject, "id.segment."); ok {
		// Before the first request for the tag, which would create it with the default step.
		body := fmt.Sprintf(`{"tag":%q,"step":%d}`, tag, step)
		if err := r.worker.awaitReply(ctx, nc, "id.tag.create", body); err != nil {
			return err
		}
	}
	return r.worker.awaitReply(ctx, nc, r.subject, r.body)
}

// measure measures all rows, several times.
func measure(ctx context.Context, load *load, rows []*row, opt options) error {
	fmt.Fprintln(os.Stderr, "measuring for", time.Duration((opt.repeats+1)*len(rows))*opt.length)
	for round := range opt.repeats + 1 {
		for _, r := range rows {
			s, err := load.measure(ctx, r)
			if err != nil {
				return err
			}
			if round > 0 { // the first round warms up connections, heaps and loads
				r.samples = append(r.samples, s)
			}
		}
	}
	return nil
}
