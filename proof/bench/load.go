package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// replyWithin is how long a caller waits; natsid's own deadline is 1.5 s.
const replyWithin = 3 * time.Second

// A load is callers who share some connections.
type load struct {
	nc      []*nats.Conn
	length  time.Duration
	callers []caller
}

// A caller sends a request, waits for the reply, and sends the next.
type caller struct {
	nc     *nats.Conn
	web    map[*row]*webConn // of rows that are requested over HTTP
	took   []time.Duration   // per good reply; kept between measurements, so that it stops growing
	errors int
	err    error // the last error
}

// A sample is one measurement of one row.
type sample struct {
	rate     float64 // good replies per second
	p50, p99 float64 // microseconds
	cpu      float64 // worker's microseconds per good reply; NaN if unknown
	errors   int
	err      error // one of the errors
}

func newLoad(url string, opt options) (*load, error) {
	l := &load{length: opt.length, callers: make([]caller, opt.callers)}
	for range opt.conns {
		nc, err := nats.Connect(url)
		if err != nil {
			l.close()
			return nil, err
		}
		l.nc = append(l.nc, nc)
	}
	room := int(opt.length.Seconds()*300_000) / opt.callers // replies a second over all callers
	for i := range l.callers {
		l.callers[i] = caller{nc: l.nc[i%opt.conns], took: make([]time.Duration, 0, room)}
	}
	return l, nil
}

func (l *load) close() {
	for _, nc := range l.nc {
		nc.Close()
	}
}

// measure loads one row for the set length.
func (l *load) measure(ctx context.Context, r *row) (sample, error) {
	runtime.GC() // every row begins with the same heap in this process
	before, err := r.worker.cpu()
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	var callers sync.WaitGroup
	for i := range l.callers {
		callers.Go(func() { l.callers[i].run(ctx, r, began.Add(l.length)) })
	}
	callers.Wait()
	lasted := time.Since(began)
	after, err := r.worker.cpu()
	if err != nil {
		return sample{}, err
	}
	return l.summarize(lasted, after-before), ctx.Err()
}

// run sends the row's requests.
func (c *caller) run(ctx context.Context, r *row, until time.Time) {
	c.took, c.errors, c.err = c.took[:0], 0, nil
	body := []byte(r.body)
	for ctx.Err() == nil {
		asked := time.Now()
		if asked.After(until) {
			return
		}
		if err := c.ask(r, body); err != nil {
			c.errors, c.err = c.errors+1, err
			continue
		}
		c.took = append(c.took, time.Since(asked))
	}
}

// ask sends one request and checks its reply.
func (c *caller) ask(r *row, body []byte) error {
	if r.address != "" {
		return c.askWeb(r)
	}
	reply, err := c.nc.Request(r.subject, body, replyWithin)
	if err != nil {
		return err
	}
	return check(reply, r.ids)
}

// summarize makes a sample of the callers' figures.
func (l *load) summarize(lasted time.Duration, cpuSeconds float64) sample {
	var s sample
	var took []time.Duration
	for _, c := range l.callers {
		took = append(took, c.took...)
		s.errors += c.errors
		if c.err != nil {
			s.err = c.err
		}
	}
	if len(took) == 0 {
		return s
	}
	slices.Sort(took)
	s.rate = float64(len(took)) / lasted.Seconds()
	s.p50 = float64(took[len(took)/2]) / 1e3
	s.p99 = float64(took[len(took)*99/100]) / 1e3
	s.cpu = cpuSeconds * 1e6 / float64(len(took))
	return s
}

// check returns an error unless the reply holds exactly so many IDs. The bare echo
// is checked too, so that all rows pay for it.
func check(reply *nats.Msg, want int) error {
	if err := errorOf(reply); err != nil {
		return err
	}
	return checkIDs(reply.Data, want)
}

// checkIDs returns an error unless the body of a reply holds exactly so many IDs.
func checkIDs(body []byte, want int) error {
	n, err := countIDs(body)
	if err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("%d IDs instead of %d", n, want)
	}
	return nil
}

// request sends a request and returns its reply, unless that states an error.
func request(nc *nats.Conn, subject string, body []byte, within time.Duration) (*nats.Msg, error) {
	reply, err := nc.Request(subject, body, within)
	if err != nil {
		return nil, err
	}
	return reply, errorOf(reply)
}

// errorOf returns the error in the headers of a reply, or nil.
func errorOf(reply *nats.Msg) error {
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return fmt.Errorf("error reply %s: %s", code, reply.Header.Get("Nats-Service-Error"))
	}
	return nil
}

// countIDs counts the IDs in runs such as "7" or "7-9\n12"; both ends belong to a run.
func countIDs(runs []byte) (int, error) {
	n := 0
	for line := range bytes.SplitSeq(runs, []byte("\n")) {
		from, to, isRange := bytes.Cut(line, []byte("-"))
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseInt(string(from), 10, 64)
		last, err2 := strconv.ParseInt(string(to), 10, 64)
		if err1 != nil || err2 != nil || last < first {
			return 0, fmt.Errorf("the reply is not runs of IDs: %.60q", runs)
		}
		n += int(last-first) + 1
	}
	return n, nil
}
