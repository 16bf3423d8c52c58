//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/natsid/natsid/internal/wire"
)

// A probe writes to JetStream beside the load like a worker that loads ranges: one compare-and-set after the other,
// in a bucket of its own with as many replicas as the marks. If requests are refused while the probe's writes are
// slow, JetStream or its machine stood still; if the writes are fast, natsid did. The probe reports that and excuses
// nothing.
//
// It is not a worker: no fault strikes its connection, which leads to the servers directly. It does not read before
// each write.
//
// The servers of its bucket elect leaders of their own, so a probe also asks the leader of the marks: by a
// compare-and-set there that the leader must refuse. Without an answer the marks have no leader, and no worker can
// load.
type probe struct {
	load      *load
	nc        *nats.Conn
	js        jetstream.JetStream
	kv        jetstream.KeyValue
	rev       uint64 // of the entry
	isCurrent bool   // rev is the present revision, as far as this probe knows

	writes, asks series

	mu   sync.Mutex
	conn context.Context // ends with the present connection, and with it its requests
	lost context.CancelFunc
}

// A series is the repeated writes or asks of a probe. It is safe for concurrent use.
type series struct {
	mu  sync.Mutex
	all []write
}

// A write is one write or ask of a probe.
type write struct {
	span
	err error // why there was no answer; a lost race is an answer
}

// A span is a span of time since the start of the load.
type span struct{ from, till time.Duration }

func (s span) took() time.Duration { return s.till - s.from }

func (s span) overlaps(o span) bool { return s.from <= o.till && o.from <= s.till }

func (s span) String() string { return seconds(s.from) + " to " + seconds(s.till) }

const (
	probeEvery  = 100 * time.Millisecond
	probeBucket = "faults_probe"
	probeKey    = "key"
	// probeMark is a key of the bucket of marks that no worker writes, and is not a tag.
	probeMark = "$faults"
)

// startProbe creates the probe's bucket like that of the marks, led by the same server, and connects to that server
// first. urls are those of the servers.
func (c *cluster) startProbe(urls []string) {
	js, err := jetstream.New(c.conn())
	c.must(err)
	var marks jetstream.StreamConfig
	c.waitFor(startWithin, "there is a bucket of marks", func() bool {
		ctx, cancel := context.WithTimeout(c.ctx, callerWaits)
		defer cancel()
		s, err := js.Stream(ctx, "KV_"+wire.SegmentBucket(namespace))
		if err == nil {
			marks = s.CachedInfo().Config
		}
		return err == nil
	})
	if len(urls) > 1 {
		leader, _ := c.leader(wire.SegmentBucket(namespace))
		urls = nearest(urls, slices.Index(c.servers, leader))
	}
	p, err := newProbe(c.load, urls)
	c.must(err)
	c.Cleanup(p.nc.Close)
	c.waitFor(startWithin, "the probe has a bucket", func() bool {
		return p.open(c.ctx, jetstream.KeyValueConfig{
			Bucket: probeBucket, Replicas: marks.Replicas, Storage: marks.Storage,
		}) == nil
	})
	c.probe = p
	if marks.Replicas > 1 {
		c.waitFor(startWithin, "the server that leads the marks leads the probe's bucket", c.leadProbeAsMarks)
	}
}

// leadProbeAsMarks makes the server that leads the marks lead the probe's bucket, and reports whether it does.
func (c *cluster) leadProbeAsMarks() bool {
	marks, ok1 := c.replicas("KV_" + wire.SegmentBucket(namespace))
	own, ok2 := c.replicas("KV_" + probeBucket)
	if !ok1 || !ok2 || marks.Leader == "" || own.Leader == "" {
		return false
	}
	if marks.Leader != own.Leader {
		c.handOver(probeBucket, marks.Leader)
		return false
	}
	return true
}

func newProbe(l *load, urls []string) (*probe, error) {
	p := &probe{load: l}
	p.reconnect()
	nc, err := nats.Connect(strings.Join(urls, ","), nats.Name("faults probe"), nats.DontRandomize(),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { p.reconnect() }))
	if err != nil {
		return nil, err
	}
	p.nc = nc
	p.js, err = jetstream.New(nc)
	return p, err
}

// reconnect cancels the requests on the last connection.
func (p *probe) reconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		p.lost()
	}
	p.conn, p.lost = context.WithCancel(context.Background())
}

// patience returns a context for a write or an ask.
func (p *probe) patience() (context.Context, context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return context.WithTimeout(p.conn, callerWaits)
}

// open creates the bucket and its entry, unless they exist.
func (p *probe) open(ctx context.Context, cfg jetstream.KeyValueConfig) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callerWaits)
	defer cancel()
	if p.kv, err = p.js.CreateKeyValue(ctx, cfg); err != nil {
		return err
	}
	_, err = p.kv.Put(ctx, probeKey, nil)
	return err
}

// run writes and asks until ctx ends.
func (p *probe) run(ctx context.Context) {
	if p == nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { repeat(ctx, p.write) })
	both.Go(func() { repeat(ctx, p.ask) })
	both.Wait()
}

func repeat(ctx context.Context, do func() error) {
	ticks := time.NewTicker(probeEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		_ = do() // the error is recorded
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

// write writes once, and records the duration.
func (p *probe) write() error { return p.writes.note(p.load, p.put) }

// ask asks the leader of the marks once, and records the duration.
func (p *probe) ask() error { return p.asks.note(p.load, p.askLeader) }

func (s *series) note(l *load, do func() error) error {
	from := l.now()
	err := do()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, write{span{from, l.now()}, err})
	return err
}

// askLeader returns nil if the leader of the marks answers. The leader itself finds that the revision is wrong, and
// writes nothing: so it answers even if the other servers do not acknowledge.
func (p *probe) askLeader() error {
	ctx, cancel := p.patience()
	defer cancel()
	const never = 1 << 62 // a revision
	_, err := p.js.Publish(ctx, "$KV."+wire.SegmentBucket(namespace)+"."+probeMark, nil,
		jetstream.WithExpectLastSequencePerSubject(never), jetstream.WithRetryAttempts(0))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return nil
	}
	return err
}

// put replaces the entry at the revision that the last write returned. If that is unknown, put reads it first. It
// does not recreate a missing bucket: that would add work for JetStream while it recovers.
func (p *probe) put() error {
	ctx, cancel := p.patience()
	defer cancel()
	if !p.isCurrent {
		e, err := p.kv.Get(ctx, probeKey)
		if err != nil {
			return err
		}
		p.rev, p.isCurrent = e.Revision(), true
	}
	rev, err := p.kv.Update(ctx, probeKey, []byte("1"), p.rev)
	if p.isCurrent = err == nil; p.isCurrent {
		p.rev = rev
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) { // for example after a write whose answer was lost
		return nil
	}
	return err
}

// meanwhile returns the summary of the writes that were under way within a span.
func (s *series) meanwhile(within span) (found bare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.overlaps(within) {
			found.add(w)
		}
	}
	return found
}

// bare is the summary of a probe's writes.
type bare struct {
	writes, failed int
	slowest        write
}

func (b *bare) add(w write) {
	b.writes++
	if w.err != nil {
		b.failed++
	}
	if b.writes == 1 || w.took() > b.slowest.took() {
		b.slowest = w
	}
}

// text returns "0.31 s (when)", "failed after 2.00 s (when), 3 of 20 failed", or "none (when)".
func (b bare) text(when string) string {
	if when != "" {
		when = " (" + when + ")"
	}
	if b.writes == 0 {
		return "none" + when
	}
	text := seconds(b.slowest.took()) + when
	if b.slowest.err != nil {
		text = "failed after " + text
	}
	if b.failed > 0 {
		text += fmt.Sprintf(", %d of %d failed", b.failed, b.writes)
	}
	return text
}

// slowestBare returns the duration of the slowest write, and of the slowest answer of the leader of the marks, and
// when each began, relative to the fault.
func (t *trial) slowestBare() (write, answer string) {
	if t.probe == nil {
		return "-", "-"
	}
	all := span{0, t.load.now()}
	return t.seen(t.probe.writes.meanwhile(all)), t.seen(t.probe.asks.meanwhile(all))
}

func (t *trial) seen(b bare) string {
	at := b.slowest.from
	switch {
	case b.writes == 0:
		return "-"
	case t.till == 0: // a random sequence, or a trial that ended early
		return b.text("at " + seconds(at))
	case at < t.from:
		return b.text(seconds(t.from-at) + " before the fault")
	case at <= t.till:
		return b.text(seconds(at-t.from) + " into the fault")
	}
	return b.text(seconds(at-t.till) + " after the fault")
}

// burstGap is the least time between the end of one burst of refusals and the begin of the next.
const burstGap = time.Second

// bursts joins the spans of refused requests that are less than burstGap apart.
func bursts(refused []span) (all []span) {
	refused = slices.SortedFunc(slices.Values(refused), func(a, b span) int { return int(a.from - b.from) })
	for _, r := range refused {
		if last := len(all) - 1; last >= 0 && r.from <= all[last].till+burstGap {
			all[last].till = max(all[last].till, r.till)
			continue
		}
		all = append(all, r)
	}
	return all
}

// beside describes the slowest bare write during a burst, and the slowest answer of the marks' leader.
func (p *probe) beside(burst span) string {
	var writes, asks bare
	if p != nil {
		writes, asks = p.writes.meanwhile(burst), p.asks.meanwhile(burst)
	}
	return writes.text("from "+burst.String()) + ", answer of the marks' leader: " + asks.text("")
}

// besideBursts describes the slowest bare write during each burst of refused requests for the strict tag that
// contains one of the requests that began at these times.
func (t *trial) besideBursts(began []time.Duration) string {
	var parts []string
	for _, b := range bursts(t.load.refusals()) {
		if slices.ContainsFunc(began, func(at time.Duration) bool { return b.from <= at && at <= b.till }) {
			parts = append(parts, t.probe.beside(b))
		}
	}
	const most = 5
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	if parts == nil {
		return ""
	}
	return "; slowest bare write meanwhile: " + strings.Join(parts, "; ")
}
