package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/kvregistry"
)

const (
	bareStream = "KV_bare"
	bareEach   = 3 * time.Second // as a keeper's heartbeat
)

// bare measures the least cost of n idle keepers: programs of nats.go alone, which ping as keepers do, and each make
// a compare-and-set every 3 s, in a stream like that of the heartbeats.
func bare(ctx context.Context, dir string, n, conns int, length time.Duration, t io.Writer) error {
	dir, err := os.MkdirTemp(dir, "bare-")
	if err != nil {
		return err
	}
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	m := &keeping{conns: conns, state: "bare", all: []*process{server}, to: t}
	if err := m.listen(url); err != nil {
		return err
	}
	defer m.nc.Close()
	if _, err := m.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: bareStream, Subjects: []string{"$KV.bare.>"}, MaxMsgsPerSubject: 1, MaxAge: time.Minute,
		PersistMode: jetstream.AsyncPersistMode,
	}); err != nil {
		return err
	}
	p, err := startSelf(dir, "bare", fmt.Sprintf("%d %d %s", n, conns, url))
	if err != nil {
		return err
	}
	defer p.stop()
	m.all = append(m.all, p)
	if _, err := p.printed(ctx, "all connected"); err != nil {
		return err
	}
	if err := sleep(ctx, 2*bareEach); err != nil {
		return err
	}
	return m.during(ctx, func() error { return sleep(ctx, length) })
}

// runBare makes compare-and-sets every 3 s; the argument is "1000 4 nats://host:port", with the number of
// connections.
func runBare(argument string) error {
	var n, conns int
	var url string
	if _, err := fmt.Sscan(argument, &n, &conns, &url); err != nil {
		return err
	}
	links := make([]jetstream.JetStream, conns)
	for i := range links {
		nc, err := nats.Connect(url, append(kvregistry.Options(), nats.Timeout(time.Minute))...)
		if err != nil {
			return err
		}
		if links[i], err = jetstream.New(nc); err != nil {
			return err
		}
	}
	fmt.Println("all connected")
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	var running sync.WaitGroup
	failed := make(chan error, n)
	for i := range n {
		running.Go(func() {
			err := compareAndSet(ctx, links[i%conns], i, bareEach*time.Duration(i)/time.Duration(n))
			if ctx.Err() == nil {
				failed <- err
			}
		})
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	stop()
	running.Wait()
	return err
}

// compareAndSet sets key i every 3 s, first after after, until ctx ends.
func compareAndSet(ctx context.Context, js jetstream.JetStream, i int, after time.Duration) error {
	subject, value, last := "$KV.bare."+strconv.Itoa(i), make([]byte, 80), uint64(0) // as long as a heartbeat
	for next := time.Now().Add(after); ; next = next.Add(bareEach) {
		if err := sleep(ctx, time.Until(next)); err != nil {
			return err
		}
		within, stop := context.WithTimeout(ctx, bareEach)
		ack, err := js.Publish(within, subject, value, jetstream.WithExpectLastSequencePerSubject(last))
		stop()
		if err != nil {
			return err
		}
		last = ack.Sequence
	}
}
