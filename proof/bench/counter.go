package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// benchCounter asks for single IDs of a strict tag, beside a counter in JetStream, which promises the same order: on
// one server, and on three that replicate. The tag is served by one worker, by three that pass loads on to one of
// them, and by three that may not. A conflict is a compare-and-set of the mark that was refused.
func benchCounter(ctx context.Context, dir string, opt options) error {
	fmt.Printf("%d callers on %d connections, %d repeats of %v; %s.\n",
		opt.callers, opt.conns, opt.repeats, opt.length, machine())
	fmt.Printf("Servers and workers %s. Medians.\n", whichCPUs())
	for _, replicas := range []int{1, 3} {
		folder := filepath.Join(dir, fmt.Sprint(replicas))
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
		if err := compareCounters(ctx, folder, opt, replicas); err != nil {
			return err
		}
	}
	return nil
}

// alone is the namespace whose workers cannot reach one another, so that each loads for itself.
const alone = "plain"

// A strictRow is one way to get rising IDs.
type strictRow struct {
	name, ns string // no namespace: the counter
	workers  int

	rate, p99, conflicts []float64 // per repeat; IDs/s, ms, per load
}

func compareCounters(ctx context.Context, dir string, opt options, replicas int) error {
	servers, url, err := startServers(ctx, dir, replicas, apart)
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(replicas-1) * 2 * time.Second) // a cluster chooses its leader
	conns := make([]*nats.Conn, opt.conns)
	for i := range conns {
		if conns[i], err = nats.Connect(url); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	js, err := jetstream.New(conns[0])
	if err != nil {
		return err
	}
	if opt.natsid == "" {
		opt.natsid = filepath.Join(dir, "natsid.exe") // for all folders
		if err := buildNatsid(ctx, opt.natsid); err != nil {
			return err
		}
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "COUNTER", Subjects: []string{"counter.>"}, Replicas: replicas, AllowMsgCounter: true, AllowDirect: true,
	})
	if err != nil {
		return err
	}
	rows := []*strictRow{
		{name: "counter of JetStream"}, {name: "one worker", ns: "one", workers: 1},
		{name: "three workers", ns: "three", workers: 3}, {name: "three that load alone", ns: alone, workers: 3},
	}
	for _, r := range rows {
		for i := range r.workers {
			flags := []string{"--namespace", r.ns, "--replicas", fmt.Sprint(replicas)}
			folder := filepath.Join(dir, fmt.Sprint(r.ns, i))
			if err := os.Mkdir(folder, 0o700); err != nil {
				return err
			}
			w, err := startNatsid(ctx, folder, opt, url, flags...)
			if err != nil {
				return err
			}
			defer w.stop()
			if i == r.workers-1 {
				time.Sleep(3 * time.Second) // until all answer
				body := `{"tag":"strict","strict":true}`
				if err := w.awaitReply(ctx, conns[0], r.ns+".tag.create", body); err != nil {
					return err
				}
			}
		}
	}
	for i := range opt.repeats + 1 {
		fmt.Fprintln(os.Stderr, "replicas", replicas, "round", i)
		for _, r := range rows {
			if err := r.measure(ctx, opt, conns, js, i > 0); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	fmt.Printf("\nReplicas: %d\n", replicas)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\tIDs/s\t/counter\t/one worker\tp99 ms\t/counter\tconflicts a load\t")
	for _, r := range rows {
		conflicts := "-"
		if r.ns != "" {
			conflicts = fmt.Sprintf("%.2f", median(r.conflicts))
		}
		fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\t%.1f\t%s\t%s\t\n", r.name, median(r.rate), ratios(r.rate, rows[0].rate),
			ratios(r.rate, rows[1].rate), median(r.p99), ratios(r.p99, rows[0].p99), conflicts)
	}
	return t.Flush()
}

// apart makes a server sync every write, and keep the workers of one namespace from hearing one another.
func apart(conf map[string]any) {
	conf["jetstream"].(map[string]any)["sync_interval"] = "always"
	deny := map[string]any{"deny": alone + ".loader.*"} // JSON escapes ">", and nats-server does not read that
	conf["authorization"] = map[string]any{"users": []any{
		map[string]any{"user": "all", "password": "all", "permissions": map[string]any{"subscribe": deny}},
	}}
	conf["no_auth_user"] = "all"
}

// measure lets callers ask for single IDs for a while.
func (r *strictRow) measure(
	ctx context.Context, opt options, conns []*nats.Conn, js jetstream.JetStream, keep bool,
) error {
	ask := func(nc *nats.Conn) error {
		m, err := request(nc, r.ns+".segment.strict", nil, replyWithin)
		if err == nil {
			_, err = countIDs(m.Data)
		}
		return err
	}
	before, tried, stop := uint64(0), new(atomic.Int64), func() error { return nil }
	marks := func() (uint64, error) {
		s, err := js.Stream(ctx, "KV_"+r.ns+"_segments")
		if err != nil {
			return 0, err
		}
		return s.CachedInfo().State.LastSeq, nil
	}
	if r.ns == "" {
		ask = func(nc *nats.Conn) error {
			up := &nats.Msg{Subject: "counter.a", Header: nats.Header{"Nats-Incr": {"+1"}}}
			_, err := nc.RequestMsg(up, replyWithin)
			return err
		}
	} else {
		sub, err := conns[0].Subscribe("$KV."+r.ns+"_segments.strict", func(*nats.Msg) { tried.Add(1) })
		if err != nil {
			return err
		}
		stop = sub.Unsubscribe
		if before, err = marks(); err != nil {
			return err
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	began := time.Now()
	for i := range opt.callers {
		group.Go(func() {
			var own []time.Duration
			var err error
			for err == nil && ctx.Err() == nil && time.Since(began) < opt.length {
				at := time.Now()
				err = ask(conns[i%len(conns)])
				own = append(own, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			if err != nil {
				failed = err
			}
		})
	}
	group.Wait()
	length := time.Since(began)
	if failed != nil || !keep {
		return errors.Join(failed, stop())
	}
	slices.Sort(took)
	r.rate = append(r.rate, float64(len(took))/length.Seconds())
	r.p99 = append(r.p99, took[len(took)*99/100].Seconds()*1000)
	if r.ns != "" {
		after, err := marks()
		if err != nil {
			return err
		}
		r.conflicts = append(r.conflicts, max(0, float64(tried.Load())/float64(max(1, after-before))-1))
	}
	return stop()
}
