package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/ledger"
)

// benchStrict has many goroutines call the client for a strict tag and for a loose one, beside their lower bound:
// waking as many goroutines without a network. In one row each ID of the strict tag is judged: see [ledger.Order].
func benchStrict(ctx context.Context, dir string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	natsid, err := startNatsid(ctx, dir, opt, url)
	if err != nil {
		return err
	}
	defer natsid.stop()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	for tag, strict := range map[string]bool{"loose": false, "strict": true} {
		body := fmt.Sprintf(`{"tag":%q,"step":%d,"strict":%t}`, tag, opt.step, strict)
		if err := natsid.awaitReply(ctx, nc, "id.tag.create", body); err != nil {
			return err
		}
	}
	ids := client.Must(client.New(nc, client.Config{}))
	defer ids.Close()
	var order ledger.Order
	fmt.Printf("One connection, one worker, %d repeats of %v; %s.\n", opt.repeats, opt.length, machine())
	fmt.Printf("The nats-server and the worker %s. Medians; CPU = the callers', per ID.\n\n", whichCPUs())
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "goroutines\tway\tIDs/s\t/waking\tp50 us\tp99 us\tCPU us\t/waking\t")
	for _, n := range []int{1, 64, 1000, 10_000} {
		fmt.Fprintln(os.Stderr, "measuring", n, "goroutines")
		ways := strictWays(ids, &order)
		if err := measureWays(ctx, opt, n, ways); err != nil {
			return err
		}
		for _, w := range ways {
			fmt.Fprintf(t, "%d\t%s\t%.0f\t%s\t%.0f\t%.0f\t%.2f\t%s\t\n", n, w.name,
				median(w.rate), ratios(w.rate, ways[0].rate), median(w.p50), median(w.p99),
				median(w.cpu), ratios(w.cpu, ways[0].cpu))
		}
	}
	t.Flush()
	if err := accountCPU(ctx, opt, 10_000, strictWays(ids, &order), server, natsid); err != nil {
		return err
	}
	judged := order.Report()
	fmt.Printf("\n%d strict IDs were judged, %d of them not above those that had come before their call began.\n",
		judged.Answers, judged.Inversions)
	if judged.Inversions > 0 {
		return fmt.Errorf("strict IDs out of order: %+v", judged.Examples)
	}
	return nil
}

// strictWays returns the ways. The first is the reference.
func strictWays(ids *client.Client, order *ledger.Order) []*way {
	loose := client.Must(ids.Segment("loose", client.SegmentConfig{}))
	strict := client.Must(ids.Segment("strict", client.SegmentConfig{}))
	asked := func(h *client.Handle) func() int64 { return func() int64 { return h.Stats().Requests } }
	return []*way{
		{name: "waking alone", call: new(alarmClock).wait, asked: func() int64 { return 0 }},
		{
			name: "loose", call: func(ctx context.Context) error { _, err := loose.Next(ctx); return err },
			asked: asked(loose),
		},
		{
			name: "strict", call: func(ctx context.Context) error { _, err := strict.Next(ctx); return err },
			asked: asked(strict),
		},
		{name: "strict, judged", asked: asked(strict), call: func(ctx context.Context) error {
			had := order.Begin()
			id, err := strict.Next(ctx)
			if err != nil {
				return err
			}
			_, err = order.End(had, int64(id), int64(id))
			return err
		}},
	}
}

// accountCPU prints the distribution of the CPU time of each way: callers, server and worker.
func accountCPU(ctx context.Context, opt options, n int, ways []*way, server, worker *process) error {
	pids := []int{os.Getpid(), server.cmd.Process.Pid, worker.cmd.Process.Pid}
	type account struct {
		seconds       [3]float64
		ids, requests float64
	}
	accounts := make([]account, len(ways))
	for range opt.repeats {
		for i, w := range ways {
			a := &accounts[i]
			a.requests -= float64(w.asked())
			err := addCPU(&a.seconds, pids, -1)
			ids, _, _, _, failed := callAll(ctx, opt.length, n, w)
			if err := errors.Join(err, failed, addCPU(&a.seconds, pids, 1)); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			a.ids += ids
			a.requests += float64(w.asked())
		}
	}
	fmt.Printf("\nCPU us per ID with %d goroutines, all repeats together:\n\n", n)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\tIDs/request\tcallers\tserver\tworker\ttogether\twaking/together\t")
	waking := 0.0
	for i, a := range accounts {
		var us [3]float64
		for j, s := range a.seconds {
			us[j] = s * 1e6 / a.ids
		}
		all := us[0] + us[1] + us[2]
		if i == 0 {
			waking = all
		}
		shared := "-"
		if a.requests > 0 {
			shared = fmt.Sprintf("%.0f", a.ids/a.requests)
		}
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", ways[i].name, shared, us[0], us[1], us[2],
			all, waking/all)
	}
	return t.Flush()
}

// addCPU adds the processor seconds of processes, multiplied by times.
func addCPU(seconds *[3]float64, pids []int, times float64) error {
	for i, pid := range pids {
		s, err := cpuSeconds(pid)
		if err != nil {
			return err
		}
		seconds[i] += times * s
	}
	return nil
}
