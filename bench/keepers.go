package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

const (
	fewConns = 4  // shared by keepers
	noNumber = 44 // number of keepers beyond the worker numbers
	spinners = 4  // processes that keep a machine busy
)

// benchKeepers starts many keepers of worker numbers at the same moment, as package app does, and measures their cost
// together with their server: at the start, idle, while the machine is busy, and beside keepers that find no number;
// then the cost of bare clients of nats.go in their place. These workers, unlike benchFleet's, do nothing else. Their
// state files are in memory.
func benchKeepers(ctx context.Context, dir string, opt options) error {
	n := only(opt.workers, 1000)[0]
	fmt.Printf("%d keepers of worker numbers in one process; each state %v, busy twice; %s.\n",
		n, opt.length, machine())
	fmt.Printf("CPU in cores, of the server, the keepers, and those more than there are numbers; in all, writes to " +
		"JetStream,\ncalls of its interface, and lists of a bucket. In trouble in the mean and at most; " +
		"mute cannot issue.\nBare: loops in nats.go alone, with a compare-and-set each 3 s, on connections that " +
		"ping as keepers' do.\n\n")
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "connections\tstate\tserver\tkeepers\twithout number\twrites/s\tcalls/s\tlists/s\t"+
		"in trouble\tat most\tmute\t")
	defer t.Flush()
	for _, conns := range []int{n, fewConns} {
		for range opt.repeats {
			if err := keep(ctx, dir, n, conns, opt.length, t); err != nil {
				return err
			}
			if err := bare(ctx, dir, n, conns, opt.length, t); err != nil {
				return err
			}
			t.Flush()
		}
	}
	return nil
}

// keep measures n keepers on conns connections.
func keep(ctx context.Context, dir string, n, conns int, length time.Duration, t io.Writer) error {
	dir, err := os.MkdirTemp(dir, "keepers-")
	if err != nil {
		return err
	}
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	m := &keeping{conns: conns, all: []*process{server}, to: t}
	if err := m.listen(url); err != nil {
		return err
	}
	defer m.nc.Close()
	add := func(name string, n, conns int) error {
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			return err
		}
		p, err := startSelf(sub, "keepers", fmt.Sprintf("%d %d %s", n, conns, url))
		m.all = append(m.all, p)
		return err
	}
	defer func() {
		for _, p := range m.all[1:] {
			p.stop()
		}
	}()
	if err := add("first", n, conns); err != nil {
		return err
	}
	start := func() error {
		line, err := m.all[1].printed(ctx, "all issue after ")
		m.state = strings.TrimPrefix(line, "all issue after ")
		return err
	}
	if err := m.during(ctx, start); err != nil {
		return err
	}
	rest := func(length time.Duration) func() error { return func() error { return sleep(ctx, length) } }
	if err := sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	m.state = "at rest"
	if err := m.during(ctx, rest(length)); err != nil {
		return err
	}
	if err := m.busy(ctx, dir, rest(2*length)); err != nil {
		return err
	}
	_, numbers := app.Default().Layout.Numbers(0)
	more := numbers - n + noNumber
	if err := add("more", more, min(conns, more)); err != nil {
		return err
	}
	if err := sleep(ctx, 15*time.Second); err != nil {
		return err
	}
	m.state = fmt.Sprintf("%d without", noNumber)
	return m.during(ctx, rest(length))
}

// busy measures while f runs on a machine that is kept busy.
func (m *keeping) busy(ctx context.Context, dir string, f func() error) error {
	m.state = "busy"
	return m.during(ctx, func() error {
		for i := range spinners {
			p, err := startSelf(dir, "spin", strconv.Itoa(i))
			if err != nil {
				return err
			}
			defer p.stop()
		}
		return f()
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// A keeping is a server with its keepers.
type keeping struct {
	conns int
	state string
	all   []*process // the server first
	nc    *nats.Conn
	js    jetstream.JetStream
	lists atomic.Int64
	to    io.Writer
}

// listen counts the consumers that are created: one for each list of a bucket.
func (m *keeping) listen(url string) (err error) {
	if m.nc, err = nats.Connect(url); err != nil {
		return err
	}
	if m.js, err = jetstream.New(m.nc); err != nil {
		return err
	}
	_, err = m.nc.Subscribe("$JS.API.CONSUMER.CREATE.>", func(*nats.Msg) { m.lists.Add(1) })
	return err
}

// A count is the use so far.
type count struct {
	at      time.Time
	seconds []float64 // of each process
	writes  uint64
	calls   uint64
	lists   int64
}

func (m *keeping) count(ctx context.Context) (c count, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if c.writes, err = writesTo(ctx, m.nc); err != nil {
		return c, err
	}
	info, err := m.js.AccountInfo(ctx)
	if err != nil {
		return c, err
	}
	c.calls, c.lists, c.at = info.API.Total, m.lists.Load(), time.Now()
	c.seconds, err = secondsOf(m.all)
	return c, err
}

// during prints the use while f runs.
func (m *keeping) during(ctx context.Context, f func() error) error {
	before, err := m.count(ctx)
	if err == nil {
		err = f()
	}
	if err != nil {
		return err
	}
	after, err := m.count(ctx)
	if err != nil {
		return err
	}
	took := after.at.Sub(before.at).Seconds()
	cores := []string{"", "", "-"}
	for i := range m.all {
		cores[i] = fmt.Sprintf("%.3f", (after.seconds[i]-before.seconds[i])/took)
	}
	mean, most, mute, err := inTrouble(m.all[1], before.at, after.at)
	_, werr := fmt.Fprintf(m.to, "%d\t%s\t%s\t%.0f\t%.0f\t%.1f\t%.1f\t%d\t%d\t\n", m.conns, m.state,
		strings.Join(cores, "\t"), float64(after.writes-before.writes)/took, float64(after.calls-before.calls)/took,
		float64(after.lists-before.lists)/took, mean, most, mute)
	if err == nil {
		err = werr
	}
	return err
}

// inTrouble returns how many keepers were in trouble between two times, in the mean and at most, and how many at most
// could not issue, from the lines that they printed each second.
func inTrouble(p *process, from, until time.Time) (mean float64, most, mute int, err error) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return 0, 0, 0, err
	}
	lines, sum := 0, 0
	for line := range strings.Lines(string(data)) {
		var ms int64
		var trouble, without int
		if n, _ := fmt.Sscanf(line, "trouble %d %d %d", &ms, &trouble, &without); n < 3 {
			continue
		}
		if at := time.UnixMilli(ms); at.Before(from) || at.After(until) {
			continue
		}
		lines, sum, most, mute = lines+1, sum+trouble, max(most, trouble), max(mute, without)
	}
	return float64(sum) / max(1, float64(lines)), most, mute, nil
}

// runSpin keeps one CPU busy.
func runSpin() error {
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	for {
	}
}

// runKeepers runs keepers; the argument is "1000 4 nats://host:port", with the number of connections.
func runKeepers(argument string) error {
	var n, conns int
	var url string
	if _, err := fmt.Sscan(argument, &n, &conns, &url); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/dev/shm", "natsid-keepers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running, issuing sync.WaitGroup
	began := time.Now()
	links := make([]func() (*nats.Conn, error), conns)
	for i := range links {
		links[i] = sync.OnceValues(func() (*nats.Conn, error) { return connectKeeper(url) })
	}
	failed := make(chan error, n)
	keepers := make([]*oneKeeper, n)
	for i := range keepers {
		k := &oneKeeper{connect: links[i%conns], dir: filepath.Join(dir, strconv.Itoa(i)), issued: issuing.Done}
		if err := os.Mkdir(k.dir, 0o700); err != nil {
			return err
		}
		keepers[i] = k
		issuing.Add(1)
		running.Go(func() { failed <- k.run(ctx) })
	}
	go func() { issuing.Wait(); fmt.Printf("all issue after %.1f s\n", time.Since(began).Seconds()) }()
	go watchKeepers(ctx, keepers)
	done := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(done) }()
	select {
	case err = <-failed:
	case <-done:
	}
	stop()
	running.Wait()
	return err
}

// connectKeeper opens a connection like a worker's control connection.
func connectKeeper(url string) (*nats.Conn, error) {
	return nats.Connect(url, append([]nats.Option{
		nats.IgnoreAuthErrorAbort(), nats.ReconnectWait(250 * time.Millisecond), nats.Name("natsid control"),
		nats.RetryOnFailedConnect(true), nats.Timeout(time.Minute),
	}, kvregistry.Options()...)...)
}

// watchKeepers prints each second how many keepers are in trouble, and how many cannot issue.
func watchKeepers(ctx context.Context, keepers []*oneKeeper) {
	for sleep(ctx, time.Second) == nil {
		trouble, mute := 0, 0
		for _, k := range keepers {
			keeper := k.keeper.Load()
			if keeper == nil || keeper.Status().Trouble != nil {
				trouble++
			}
			if k.generator.Load() == nil {
				mute++
			}
		}
		fmt.Println("trouble", time.Now().UnixMilli(), trouble, mute)
	}
}

// A oneKeeper is a keeper with the remaining work of a worker: it answers for its number, and issues.
type oneKeeper struct {
	connect   func() (*nats.Conn, error)
	dir       string
	issued    func()
	once      sync.Once
	keeper    atomic.Pointer[workerid.Keeper]
	generator atomic.Pointer[snowflake.Generator]
	nc        *nats.Conn
	sub       *nats.Subscription // the subscription on which it answers for the number
}

func (k *oneKeeper) run(ctx context.Context) (err error) {
	if k.nc, err = k.connect(); err != nil {
		return err
	}
	js, err := jetstream.New(k.nc)
	if err != nil {
		return err
	}
	cfg, log := app.Default(), slog.New(slog.DiscardHandler)
	keeper := workerid.New(workerid.Config{
		Registry: kvregistry.New(js, kvregistry.Config{
			History: cfg.Namespace.HistoryBucket(), Workers: cfg.Namespace.WorkerBucket(), LeaseTTL: cfg.LeaseTTL,
			WorkerSubject: cfg.Namespace.Worker, Log: log,
		}),
		Layout: cfg.Layout, StateDir: k.dir, Horizon: cfg.Horizon, MaxClockSkew: cfg.MaxClockSkew,
		MaxAhead: cfg.MaxAhead, Now: func() int64 { return time.Now().UnixMilli() },
		Use: k.use, Granted: func(w workerid.Window) { k.answer(cfg.Namespace, w) }, Log: log,
	})
	k.keeper.Store(keeper)
	return keeper.Run(ctx)
}

// use issues the first ID as soon as there is a generator.
func (k *oneKeeper) use(g *snowflake.Generator) {
	k.generator.Store(g)
	if g == nil {
		return
	}
	k.once.Do(func() {
		time.AfterFunc(time.Until(time.UnixMilli(g.From())), func() {
			for {
				if _, err := g.NextAt(time.Now().UnixMilli(), 1); err == nil {
					k.issued()
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	})
}

// answer answers for the number while it is held.
func (k *oneKeeper) answer(ns subjects.Namespace, w workerid.Window) {
	switch w.How {
	case workerid.Acquired, workerid.Resumed:
		k.sub, _ = k.nc.Subscribe(ns.Worker(w.Number), func(m *nats.Msg) {
			who, _ := k.keeper.Load().Who()
			if body, err := json.Marshal(who); err == nil {
				_ = m.Respond(body)
			}
		})
	case workerid.Closed:
		if k.sub != nil {
			_ = k.sub.Unsubscribe()
			k.sub = nil
		}
	}
}
