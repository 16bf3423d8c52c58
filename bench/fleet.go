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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/subjects"
)

// benchFleet starts many workers at the same moment, and then leaves them idle: it measures the cost of the workers
// and their server. All workers are in one process, since few machines have memory for so many processes. Each has
// its own connections and files; the files are in memory, since one disk cannot sync the fences of a whole fleet.
func benchFleet(ctx context.Context, dir string, opt options) error {
	workers := only(opt.workers, 100)[0]
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	fleet, err := startSelf(dir, "fleet", fmt.Sprintf("%d %s", workers, url))
	if err != nil {
		return err
	}
	defer fleet.stop()
	both := []*process{server, fleet}
	fmt.Fprintln(os.Stderr, "starting", workers, "workers")
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	fmt.Printf("%d workers in one process, without requests; %s.\n", workers, machine())
	if err := watchStart(ctx, nc, both, workers); err != nil {
		return err
	}
	for range opt.repeats {
		if err := idle(ctx, nc, both, opt.length); err != nil {
			return err
		}
	}
	trouble, err := troubled(ctx, nc, workers)
	fmt.Printf("In trouble in the end: %d of %d.\n", trouble, workers)
	return err
}

// watchStart prints how many workers are in trouble 10 s and a minute after the start, and the cost of the start
// until each worker was ready, for which it waits five minutes at most.
func watchStart(ctx context.Context, nc *nats.Conn, both []*process, workers int) error {
	began, ready := time.Now(), make(chan error, 1)
	go func() { ready <- awaitStart(ctx, both) }()
	for _, after := range []time.Duration{10 * time.Second, time.Minute} {
		select {
		case <-time.After(time.Until(began.Add(after))):
		case <-ctx.Done():
			return ctx.Err()
		}
		trouble, err := troubled(ctx, nc, workers)
		if err != nil {
			return err
		}
		fmt.Printf("In trouble after %.0f s: %d of %d.\n", time.Since(began).Seconds(), trouble, workers)
	}
	return <-ready
}

// awaitStart prints the use of a server and a fleet until each worker was ready.
func awaitStart(ctx context.Context, both []*process) error {
	for tries := 0; ; tries++ {
		line, err := both[1].printed(ctx, "all issue after ")
		if err != nil && tries < 4 {
			continue
		}
		if err != nil {
			return err
		}
		started, err := secondsOf(both)
		if err == nil {
			fmt.Printf("%s; CPU until then: server %.1f s, workers %.1f s.\n", line, started[0], started[1])
		}
		return err
	}
}

// troubled returns how many of the workers do not report that both modes are ready.
func troubled(ctx context.Context, nc *nats.Conn, workers int) (n int, err error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest(subjects.Namespace("id").SegmentPing(), sub.Subject, nil); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for n = workers; n > 0; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return n, nil // workers that do not answer are in trouble
		}
		var ping micro.Ping
		if json.Unmarshal(m.Data, &ping) == nil &&
			ping.Metadata["segment"] == subjects.Ready && ping.Metadata["snowflake"] == subjects.Ready {
			n--
		}
	}
	return 0, nil
}

// idle measures the use of idle processes.
func idle(ctx context.Context, nc *nats.Conn, both []*process, length time.Duration) error {
	writes, err := writesTo(ctx, nc)
	if err != nil {
		return err
	}
	used, err := secondsOf(both)
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := secondsOf(both)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	written, err := writesTo(ctx, nc)
	if err != nil {
		return err
	}
	cores := func(i int) float64 { return (after[i] - used[i]) / took }
	fmt.Printf("At rest for %.0f s: %.3f of a core (server %.3f, workers %.3f), %.0f writes/s to JetStream.\n",
		took, cores(0)+cores(1), cores(0), cores(1), float64(written-writes)/took)
	return nil
}

// secondsOf returns the processor seconds that each process has used.
func secondsOf(processes []*process) (all []float64, err error) {
	for _, p := range processes {
		s, err := p.cpu()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// writesTo returns a number that each write to any stream increments.
func writesTo(ctx context.Context, nc *nats.Conn) (n uint64, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		n += info.State.LastSeq + 1 - max(1, info.Config.FirstSeq)
	}
	return n, streams.Err()
}

// runFleet runs workers; the argument is "100 nats://host:port".
func runFleet(argument string) error {
	number, url, _ := strings.Cut(argument, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/dev/shm", "natsid-fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	var workers, ready sync.WaitGroup
	began := time.Now()
	failed := make(chan error, n)
	for i := range n {
		cfg := app.Default()
		cfg.NATS, cfg.HTTP, cfg.Data, cfg.LogLevel = url, "", filepath.Join(dir, strconv.Itoa(i)), slog.LevelWarn
		cfg.Log = cfg.NewLog(os.Stderr).With("worker", i)
		ready.Add(1)
		cfg.Ready = func(app.Where) { ready.Done() }
		workers.Go(func() { failed <- app.Run(ctx, cfg) })
	}
	all := make(chan struct{})
	go func() { ready.Wait(); close(all) }()
	select {
	case <-all:
		fmt.Printf("all issue after %.1f s\n", time.Since(began).Seconds())
		_, err = io.Copy(io.Discard, os.Stdin)
	case err = <-failed:
	}
	stop()
	workers.Wait()
	return err
}
