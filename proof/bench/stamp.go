package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

// The streams of benchStamp, and the size of their messages.
const (
	copiedFrom    = "FROM"
	copiedPayload = 100 // bytes
)

// benchStamp compares natsid's stage with a plain copy: a process that consumes a stream and publishes the messages
// asynchronously, without IDs. Each copies the same source to a target of its own, in turns; the rate is that between
// the first and the last message of the target. Streams are in files, synced by nats-server's default: not with each
// message.
func benchStamp(ctx context.Context, dir string, opt options) error {
	fmt.Printf("%d messages of %d bytes, %d repeats; %s, nats-server %s, nats.go %s.\n",
		opt.messages, copiedPayload, opt.repeats, machine(), server.VERSION, nats.Version)
	fmt.Print("Medians. CPU = the copying process's, per message; ",
		"/plain = ratio within a repeat: median (least-greatest).\n\n")
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	fmt.Fprintln(t, "replicas\tway\tmessages/s\t/plain\tCPU us\t/plain\t")
	for _, replicas := range []int{1, 3} {
		at := filepath.Join(dir, fmt.Sprint(replicas))
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		copies, err := compareCopies(ctx, at, replicas, opt)
		if err != nil {
			return fmt.Errorf("%d replicas: %w", replicas, err)
		}
		for _, c := range copies {
			fmt.Fprintf(t, "%d\t%s\t%.0f\t%s\t%s\t%s\t\n", replicas, c.name,
				median(c.rate), ratios(c.rate, copies[0].rate), number(median(c.cpu)), ratios(c.cpu, copies[0].cpu))
		}
	}
	return nil
}

// A copier is a way to copy a stream.
type copier struct {
	name  string
	start func(to string) (*process, error)

	rate, cpu []float64 // per repeat; messages per second, microseconds per message
}

// compareCopies measures both ways, on servers of its own, and returns the plain one first.
func compareCopies(ctx context.Context, dir string, replicas int, opt options) ([]*copier, error) {
	servers, url, err := startServers(ctx, dir, replicas)
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	natsid, err := startNatsid(ctx, dir, opt, url, "--auto-create-tags")
	if err != nil {
		return nil, err
	}
	defer natsid.stop()
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if err := prepare(ctx, nc, &row{subject: "id.segment.bench", worker: natsid}, opt.step); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	if err := fillSource(ctx, js, replicas, opt.messages); err != nil {
		return nil, err
	}
	exe := natsid.cmd.Path
	copies := []*copier{
		{name: "plain copy", start: func(to string) (*process, error) {
			return startSelf(dir, "copy", fmt.Sprint(url, " ", to, " ", opt.messages))
		}},
		{name: "natsid stamp", start: func(to string) (*process, error) {
			return start(dir, "stamp", exe, "stamp", "--nats", url, "--from", copiedFrom, "--to", to, "--tag", "bench",
				"--into", to+".>")
		}},
	}
	fmt.Fprintln(os.Stderr, "measuring", replicas, "replicas")
	for round := range opt.repeats + 1 {
		for _, c := range copies {
			rate, cpu, err := copyOnce(ctx, js, c, replicas, opt.messages)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 { // the first round warms up files and heaps
				c.rate, c.cpu = append(c.rate, rate), append(c.cpu, cpu)
			}
		}
	}
	return copies, nil
}

// fillSource makes the source and its messages.
func fillSource(ctx context.Context, js jetstream.JetStream, replicas, messages int) error {
	if _, err := createStream(ctx, js, copiedFrom, "from.>", replicas); err != nil {
		return err
	}
	data := []byte(strings.Repeat("x", copiedPayload))
	for range messages {
		if _, err := js.PublishAsync("from.orders", data, jetstream.WithStallWait(replyWithin)); err != nil {
			return err
		}
	}
	return published(js)
}

// published waits until all asynchronous publishes are acknowledged.
func published(js jetstream.JetStream) error {
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-time.After(replyWithin):
		return fmt.Errorf("%d messages were not acknowledged within %v", js.PublishAsyncPending(), replyWithin)
	}
}

// createStream makes a stream once the servers have agreed on who leads.
func createStream(ctx context.Context, js jetstream.JetStream, name, subject string, replicas int) (
	s jetstream.Stream, err error) {
	for late := time.Now().Add(readyWithin); ; time.Sleep(50 * time.Millisecond) {
		s, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{subject}, Replicas: replicas, AllowAtomicPublish: true,
		})
		if err == nil || time.Now().After(late) {
			return s, err
		}
	}
}

// copyOnce copies all messages to a new stream, and returns the rate per second, and the process's CPU time per
// message.
func copyOnce(ctx context.Context, js jetstream.JetStream, by *copier, replicas, messages int) (
	rate, cpu float64, err error) {
	const name = "TO"
	to, err := createStream(ctx, js, name, name+".>", replicas)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, js.DeleteStream(context.WithoutCancel(ctx), name)) }()
	p, err := by.start(name)
	if err != nil {
		return 0, 0, err
	}
	defer p.stop()
	var info *jetstream.StreamInfo
	for late := time.Now().Add(10 * replyWithin); ; time.Sleep(50 * time.Millisecond) {
		if info, err = to.Info(ctx); err != nil {
			return 0, 0, err
		}
		if info.State.LastSeq >= uint64(messages) {
			break
		}
		select {
		case <-p.ended:
			return 0, 0, p.failed(fmt.Errorf("%v after %d messages", p.cmd.ProcessState, info.State.LastSeq))
		default:
		}
		if time.Now().After(late) {
			return 0, 0, p.failed(fmt.Errorf("only %d of %d messages were copied", info.State.LastSeq, messages))
		}
	}
	if info.State.LastSeq > uint64(messages) {
		return 0, 0, fmt.Errorf("%d messages became %d", messages, info.State.LastSeq)
	}
	used, err := p.cpu()
	took := info.State.LastTime.Sub(info.State.FirstTime)
	return float64(messages) / took.Seconds(), used * 1e6 / float64(messages), err
}

// runCopy is the least work of a program that copies a stream: it consumes, and publishes asynchronously. The
// argument is the URL, the target and the number of messages.
func runCopy(argument string) error {
	var url, to string
	var messages int
	if _, err := fmt.Sscan(argument, &url, &to, &messages); err != nil {
		return err
	}
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	from, err := js.OrderedConsumer(context.Background(), copiedFrom, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	read, err := from.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	for range messages {
		m, err := read.Next()
		if err != nil {
			return err
		}
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: to + "." + m.Subject(), Header: m.Headers(), Data: m.Data()},
			jetstream.WithStallWait(replyWithin)); err != nil {
			return err
		}
	}
	read.Stop()
	if err := published(js); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startServers starts a nats-server, or a cluster of them, and returns the URL of the first. Each change is applied
// to the configuration of each.
func startServers(
	ctx context.Context, dir string, n int, changes ...func(conf map[string]any),
) (all []*process, url string, err error) {
	var conf []map[string]any
	var routes []string
	for i := range n {
		addr, err := freeport.Get()
		if err != nil {
			return nil, "", err
		}
		name := fmt.Sprint("n", i+1)
		conf = append(conf, map[string]any{
			"server_name": name, "listen": "127.0.0.1:-1",
			"jetstream": map[string]any{"store_dir": filepath.Join(dir, name)},
		})
		routes = append(routes, "nats://"+addr)
	}
	for i, c := range conf {
		if n > 1 {
			c["cluster"] = map[string]any{
				"name": "bench", "listen": strings.TrimPrefix(routes[i], "nats://"), "routes": routes,
			}
		}
		for _, change := range changes {
			change(c)
		}
		text, err := json.Marshal(c)
		if err != nil {
			return all, "", err
		}
		name := c["server_name"].(string)
		file := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return all, "", err
		}
		p, err := start(dir, name, os.Args[0], "member", file)
		if err != nil {
			return all, "", err
		}
		all = append(all, p)
	}
	url, err = all[0].printed(ctx, "nats://")
	return all, url, err
}

// runMember is a nats-server with a configuration. It prints only its URL.
func runMember(file string) error {
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(readyWithin) {
		return errors.New("nats-server is not ready for connections")
	}
	fmt.Println(s.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
