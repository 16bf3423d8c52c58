package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/bwmarrin/snowflake"
	"github.com/nats-io/nats.go"

	natsid "github.com/natsid/natsid/snowflake"

	program "github.com/natsid/natsid/number"
)

// benchHolder issues snowflakes on one goroutine: from a generator of natsid alone, from a program's own worker number,
// which is that generator with its number kept, and from bwmarrin/snowflake, whose number nobody keeps.
func benchHolder(ctx context.Context, dir string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	worker, err := startNatsid(ctx, dir, opt, url)
	if err != nil {
		return err
	}
	defer worker.stop()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	ids, err := program.Open(ctx, nc, program.Config{})
	for began := time.Now(); err != nil && time.Since(began) < 10*time.Second; time.Sleep(100 * time.Millisecond) {
		ids, err = program.Open(ctx, nc, program.Config{}) // the worker has to start first
	}
	if err != nil {
		return err
	}
	defer ids.Close()
	now := func() int64 { return time.Now().UnixMilli() }
	g, err := natsid.NewGenerator(natsid.Leaf, 1, now(), now()+3600_000, natsid.DefaultMaxAhead)
	if err != nil {
		return err
	}
	node, err := snowflake.NewNode(1)
	if err != nil {
		return err
	}
	rows := []*maker{
		{name: "generator alone", next: func() error {
			for {
				_, err := g.NextAt(now(), 1)
				behind, ok := errors.AsType[*natsid.BehindError](err)
				if !ok {
					return err
				}
				time.Sleep(behind.By)
			}
		}},
		{name: "number.Holder", next: func() error { _, err := ids.Next(ctx); return err }},
		{name: "bwmarrin/snowflake", next: func() error { node.Generate(); return nil }},
	}
	for range opt.repeats {
		for _, w := range rows {
			if err := w.measure(opt.length); err != nil {
				return err
			}
		}
	}
	fmt.Printf("One goroutine, %d repeats of %v; %s.\n\n", opt.repeats, opt.length, machine())
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\tIDs/s\t/generator\tallocations/ID\t")
	for _, w := range rows {
		fmt.Fprintf(t, "%s\t%.0f\t%s\t%.4f\t\n", w.name, median(w.rates), ratios(w.rates, rows[0].rates),
			median(w.allocs))
	}
	return t.Flush()
}

// A maker is one way to get a snowflake.
type maker struct {
	name          string
	next          func() error
	rates, allocs []float64 // per repeat: IDs/s, allocations per ID
}

func (w *maker) measure(length time.Duration) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, began := 0, time.Now()
	for ; time.Since(began) < length; n += 1000 {
		for range 1000 {
			if err := w.next(); err != nil {
				return err
			}
		}
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	w.rates = append(w.rates, float64(n)/took.Seconds())
	w.allocs = append(w.allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
	return nil
}
