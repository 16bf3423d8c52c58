package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A row is one line of the table.
type row struct {
	name    string
	address string // address for HTTP; "" means NATS
	subject string // a path, over HTTP
	body    string
	ids     int      // in each reply
	worker  *process // whose CPU time counts
	samples []sample // one per repeat
}

// printTable prints the rows, each compared with the first. It returns an error if
// any of them had errors.
func printTable(w io.Writer, opt options, rows []*row) error {
	fmt.Fprintf(w, "%d callers, %d connections, %d repeats of %v, step %d; %s, nats-server %s, nats.go %s.\n",
		opt.callers, opt.conns, opt.repeats, opt.length, opt.step, machine(), server.VERSION, nats.Version)
	fmt.Fprint(w, "Medians. us = microseconds; CPU = the worker's, per request; ",
		"/bare = ratio within a repeat: median (least-greatest).\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\trequests/s\t/bare\tIDs/s\tp50 us\tp99 us\tCPU us\t/bare\terrors\t")
	var err error
	for _, r := range rows {
		n, e := r.errors()
		err = errors.Join(err, e)
		requests, cpu := r.values(rateOf), r.values(cpuOf)
		ids := "-"
		if r != rows[0] {
			ids = fmt.Sprintf("%.0f", median(requests)*float64(r.ids))
		}
		fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\t%.0f\t%.0f\t%s\t%s\t%d\t\n", r.name,
			median(requests), ratios(requests, rows[0].values(rateOf)), ids,
			median(r.values(p50Of)), median(r.values(p99Of)),
			number(median(cpu)), ratios(cpu, rows[0].values(cpuOf)), n)
	}
	t.Flush()
	if err != nil {
		return fmt.Errorf("do not trust this table: there were errors, such as\n%w", err)
	}
	return nil
}

// machine describes the machine of the measurement.
func machine() string {
	return fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

func rateOf(s sample) float64 { return s.rate }
func p50Of(s sample) float64  { return s.p50 }
func p99Of(s sample) float64  { return s.p99 }
func cpuOf(s sample) float64  { return s.cpu }

func (r *row) values(of func(sample) float64) (vs []float64) {
	for _, s := range r.samples {
		vs = append(vs, of(s))
	}
	return vs
}

// errors returns the number of errors, and one of them.
func (r *row) errors() (n int, err error) {
	for _, s := range r.samples {
		n += s.errors
		if s.err != nil {
			err = fmt.Errorf("%s: %w", r.name, s.err)
		}
	}
	return n, err
}

// ratios compares two rows repeat by repeat.
func ratios(row, bare []float64) string {
	rs := make([]float64, len(row))
	for i := range rs {
		rs[i] = row[i] / bare[i]
	}
	if math.IsNaN(median(rs)) {
		return "n/a"
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", median(rs), slices.Min(rs), slices.Max(rs))
}

func median(vs []float64) float64 {
	vs = slices.Sorted(slices.Values(vs))
	return (vs[(len(vs)-1)/2] + vs[len(vs)/2]) / 2
}

func number(v float64) string {
	if math.IsNaN(v) {
		return "n/a"
	}
	return fmt.Sprintf("%.2f", v)
}
