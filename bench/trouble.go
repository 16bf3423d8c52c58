package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
)

// benchTrouble requests IDs of some tags at a steady rate: while loads are quick, while the loads of 60 other tags
// hang, for which there are requests all the time, and while each load takes 200 ms. It repeats these in turn. A
// request is sent when it is due, whatever the outcome of earlier ones.
func benchTrouble(ctx context.Context, dir string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	worker, err := startSelf(dir, "troubled", url)
	if err != nil {
		return err
	}
	defer worker.stop()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := worker.awaitReply(ctx, nc, "id.segment."+hotTag, ""); err != nil {
		return err
	}
	return measureTrouble(ctx, worker, nc, opt)
}

// measureTrouble measures each trouble in turn, and prints the figures.
func measureTrouble(ctx context.Context, worker *process, nc *nats.Conn, opt options) error {
	rows := []*troubleRow{
		{name: "all well: a load takes 1 ms", trouble: "well"},
		{name: fmt.Sprintf("the loads of %d other tags hang", hangingTags), trouble: "hanging"},
		{name: "every load takes 200 ms", trouble: "slow"},
	}
	fmt.Fprintln(os.Stderr, "measuring for", time.Duration((opt.repeats+1)*len(rows))*(opt.length+settle))
	for round := range opt.repeats + 1 {
		for _, r := range rows {
			if err := r.measure(ctx, nc, opt.length, round > 0); err != nil {
				return worker.failed(err)
			}
		}
	}
	return printTrouble(os.Stdout, opt, rows)
}

// everyMs is how many requests are sent per millisecond.
const everyMs = (hotRate + steadyTags*steadyRate) / 1000

// settle is how long a trouble has lasted before it is measured.
const settle = 1500 * time.Millisecond

// A troubleRow is one line of the table.
type troubleRow struct {
	name, trouble    string
	p50, p99, p999   []float64 // microseconds, one per repeat
	longest          float64
	requests, errors int
	err              error         // one of the errors
	refused          int64         // requests for hanging tags that were refused
	refusal          time.Duration // the longest time until a refusal
}

// measure sends requests for length, once the trouble has lasted for settle, and records the figures if keep is set.
func (r *troubleRow) measure(ctx context.Context, nc *nats.Conn, length time.Duration, keep bool) error {
	if err := setTrouble(nc, r.trouble); err != nil {
		return err
	}
	var v victims
	var all sync.WaitGroup
	defer all.Wait()
	calling, stop := context.WithCancel(ctx)
	defer stop()
	if r.trouble == "hanging" {
		for i := range hangingTags {
			all.Go(func() { v.run(calling, nc, i) })
		}
	}
	p, err := steadily(ctx, nc, settle+length)
	if err != nil {
		return err
	}
	defer p.close()
	if v.lost.Load() > 0 {
		return fmt.Errorf("%d requests for tags whose loads hang were not answered", v.lost.Load())
	}
	if keep {
		r.record(p, &v)
	}
	return nil
}

// steadily sends requests at their times, and returns when all are answered.
func steadily(ctx context.Context, nc *nats.Conn, length time.Duration) (*pipe, error) {
	n := int(length.Milliseconds()) * everyMs
	p, err := newPipe(nc, n, 0)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for sent := 0; sent < n; <-tick.C {
		for due := min(n, int(time.Since(began).Milliseconds())*everyMs); sent < due; sent++ {
			if err := p.send(ctx, sent, "id.segment."+tagOfRequest(sent), ""); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if err := p.wait(ctx, n); err != nil && p.errors == 0 {
		return nil, err
	}
	return p, nil
}

// tagOfRequest is the hot tag for the first request of each millisecond; the other
// tags take turns.
func tagOfRequest(i int) string {
	if i%everyMs == 0 {
		return hotTag
	}
	return fmt.Sprint(steadyTag, (i/everyMs*(everyMs-1)+i%everyMs)%steadyTags)
}

func (r *troubleRow) record(p *pipe, v *victims) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := slices.Clone(p.took[int(settle.Milliseconds())*everyMs:])
	slices.Sort(took)
	at := func(share float64) float64 { return float64(took[int(share*float64(len(took)-1))]) / 1e3 }
	r.p50, r.p99, r.p999 = append(r.p50, at(0.5)), append(r.p99, at(0.99)), append(r.p999, at(0.999))
	r.longest = max(r.longest, at(1))
	r.requests += len(took)
	r.errors += p.errors
	if p.err != nil {
		r.err = fmt.Errorf("%s: %w", r.name, p.err)
	}
	r.refused += v.refused.Load()
	r.refusal = max(r.refusal, time.Duration(v.longest.Load()))
}

func printTrouble(w io.Writer, opt options, rows []*troubleRow) error {
	fmt.Fprintf(w, "%d requests/s for one ID each: %d for one tag, %d for each of %d; step %d; %d repeats of %v; %s.\n",
		hotRate+steadyTags*steadyRate, hotRate, steadyRate, steadyTags, troubledStep,
		opt.repeats, opt.length, machine())
	fmt.Fprint(w, "Medians, except the longest of all. us = microseconds; ",
		"/well = ratio within a repeat: median (least-greatest).\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "loads\trequests\tp50 us\tp99 us\t/well\tp99.9 us\t/well\tlongest us\terrors\t")
	var err error
	for _, r := range rows {
		err = errors.Join(err, r.err)
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%s\t%.0f\t%s\t%.0f\t%d\t\n", r.name, r.requests, median(r.p50),
			median(r.p99), ratios(r.p99, rows[0].p99), median(r.p999), ratios(r.p999, rows[0].p999),
			r.longest, r.errors)
	}
	t.Flush()
	for _, r := range rows {
		if r.refused > 0 {
			fmt.Fprintf(w, "Meanwhile %d requests for the tags whose loads hang were refused, each within %v.\n",
				r.refused, r.refusal.Round(time.Millisecond))
		}
	}
	if err != nil {
		return fmt.Errorf("do not trust this table: there were errors, such as\n%w", err)
	}
	return nil
}
