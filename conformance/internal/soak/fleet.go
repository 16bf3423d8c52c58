//go:build unix

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/conformance/internal/rig"
	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/subjects"
)

// size is how many nats-servers there are, and how many workers.
const size = 3

// The tags. Ranges of the loose one outlast an election of JetStream.
const (
	looseTag  = "soak.loose"
	strictTag = "soak.strict"
	looseStep = 1_000_000
)

// A fleet is the processes that faults strike, and the proxies between them.
type fleet struct {
	servers []*rig.NATSServer
	workers []*rig.Natsid
	ofLast  []*natsproxy.Proxy // between the last worker and each server
	callers []*natsproxy.Proxy // between all clients and each server
	nc      *nats.Conn
	ids     *client.Client
}

// startFleet starts a fleet, and returns what it has started also after an error.
func startFleet(ctx context.Context, dir string) (f *fleet, err error) {
	f = &fleet{}
	if f.servers, err = rig.StartCluster(dir, size); err != nil {
		return f, err
	}
	var urls []string
	for _, s := range f.servers {
		urls = append(urls, s.URL())
	}
	if f.ofLast, err = proxies(urls); err != nil {
		return f, err
	}
	if f.callers, err = proxies(urls); err != nil {
		return f, err
	}
	for i := range size {
		through := urls
		if i == size-1 {
			through = urlsOf(f.ofLast)
		}
		w := rig.NewNatsid(dir, fmt.Sprint("w", i+1), through, "--max-clock-skew", "10ms")
		f.workers = append(f.workers, w)
		if err := w.Start(); err != nil {
			return f, err
		}
	}
	if f.nc, err = nats.Connect(urls[0]+","+urls[1]+","+urls[2], nats.MaxReconnects(-1)); err != nil {
		return f, err
	}
	f.ids = client.New(f.nc)
	return f, errors.Join(f.createTags(), f.whole(ctx))
}

func proxies(urls []string) (all []*natsproxy.Proxy, err error) {
	for _, url := range urls {
		p, err := natsproxy.Start(url)
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

func urlsOf(proxies []*natsproxy.Proxy) (urls []string) {
	for _, p := range proxies {
		urls = append(urls, p.URL())
	}
	return urls
}

func (f *fleet) createTags() error {
	for _, t := range []subjects.TagCreate{
		{Tag: looseTag, Step: looseStep, Start: 1<<53 - 1000}, // most IDs are above 2^53
		{Tag: strictTag, Order: subjects.OrderStrict},
	} {
		body, err := json.Marshal(t)
		if err != nil {
			return err
		}
		m, err := f.nc.Request(subjects.DefaultNamespace.TagCreate(), body, 10*time.Second)
		if err != nil {
			return err
		}
		if e := subjects.ParseError(m.Header); e != nil {
			return e
		}
	}
	return nil
}

// whole returns when all servers and workers serve.
func (f *fleet) whole(ctx context.Context) error {
	if err := rig.AwaitReplicas(ctx, f.nc, size); err != nil {
		return err
	}
	return rig.Await(ctx, "all workers serve", func(ctx context.Context) bool {
		all, err := f.ids.Workers(ctx)
		return err == nil && len(all) == size
	})
}

// crashed returns an error for each process that has ended by itself.
func (f *fleet) crashed() error {
	var all []error
	for _, s := range f.servers {
		if s.Crashed() {
			all = append(all, fmt.Errorf("nats-server %s has ended by itself: %v", s.Name, s.Cmd.ProcessState))
		}
	}
	for _, w := range f.workers {
		if w.Crashed() {
			all = append(all, fmt.Errorf("natsid %s has ended by itself: %v", w.Name, w.Cmd.ProcessState))
		}
	}
	return errors.Join(all...)
}

func (f *fleet) close() {
	if f.nc != nil {
		f.nc.Close()
	}
	for _, p := range append(f.ofLast, f.callers...) {
		p.Close()
	}
	for _, w := range f.workers {
		w.Kill()
	}
	for _, s := range f.servers {
		s.Kill()
	}
}

// A fault strikes one worker, one server, or the network of the callers, and is over when strike returns.
type fault struct {
	name, says string
	strike     func(context.Context, *fleet) error
}

var faults = []fault{
	{"kill", "SIGKILL of a worker, restarted after 3 s", func(ctx context.Context, f *fleet) error {
		w := f.workers[0]
		w.Kill()
		return errors.Join(sleep(ctx, 3*time.Second), w.Start())
	}},
	{"pause", "SIGSTOP of a worker for 5 s", func(ctx context.Context, f *fleet) error {
		w := f.workers[1]
		if err := w.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		return errors.Join(sleep(ctx, 5*time.Second), w.Signal(syscall.SIGCONT))
	}},
	{"cut", "a worker loses its network for 4 s", func(ctx context.Context, f *fleet) error {
		for _, p := range f.ofLast {
			p.Refuse(true)
			p.Cut()
		}
		err := sleep(ctx, 4*time.Second)
		for _, p := range f.ofLast {
			p.Refuse(false)
		}
		return err
	}},
	{"server-kill", "SIGKILL of the nats-server that leads the marks, restarted after 4 s",
		func(ctx context.Context, f *fleet) error {
			name, err := rig.Leader(ctx, f.nc, "KV_"+subjects.DefaultNamespace.SegmentBucket())
			i := slices.IndexFunc(f.servers, func(s *rig.NATSServer) bool { return s.Name == name })
			if i < 0 {
				return fmt.Errorf("%q leads the marks: %w", name, err)
			}
			f.servers[i].Kill()
			return errors.Join(sleep(ctx, 4*time.Second), f.servers[i].Start())
		}},
	{"callers-cut", "all callers lose their connections", func(ctx context.Context, f *fleet) error {
		for _, p := range f.callers {
			p.Cut()
		}
		return sleep(ctx, 2*time.Second)
	}},
	{"roll", "SIGTERM of each worker in turn, restarted", func(ctx context.Context, f *fleet) error {
		for _, w := range f.workers {
			if err := errors.Join(w.Stop(), w.Start(), sleep(ctx, time.Second)); err != nil {
				return err
			}
		}
		return nil
	}},
}
