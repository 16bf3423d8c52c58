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
)

// A probe writes to JetStream beside the load as a worker does that loads a range: by one compare-and-set after the
// other, in a bucket of its own with as many replicas as the marks. Where requests are refused and its writes took
// long meanwhile, JetStream stood still, or what it rests on; where they did not, natsid did. It says so and excuses
// nothing.
//
// It is no worker: no fault is about its connection, which leads to the servers themselves. It does not read before
// each write, and is not led by the server that leads the marks once that one has lost them.
type probe struct {
	load  *load
	nc    *nats.Conn
	kv    jetstream.KeyValue
	rev   uint64 // of the entry
	known bool   // rev is its present one, as far as this probe knows

	mu     sync.Mutex
	writes []write
}

// A write is one of a probe.
type write struct {
	span
	err error // why there was no answer; that another write came first is an answer
}

// A span is from one time to another since the start of the load.
type span struct{ from, till time.Duration }

func (s span) took() time.Duration { return s.till - s.from }

func (s span) overlaps(o span) bool { return s.from <= o.till && o.from <= s.till }

func (s span) String() string { return seconds(s.from) + " to " + seconds(s.till) }

const (
	probeEvery  = 100 * time.Millisecond
	probeBucket = "faults_probe"
	probeKey    = "key"
)

// startProbe makes the probe's bucket as that of the marks is made, led by the same server, and connects to that one
// first. urls are those of the servers.
func (c *cluster) startProbe(urls []string) {
	js, err := jetstream.New(c.conn())
	c.must(err)
	var marks jetstream.StreamConfig
	c.waitFor(startWithin, "there is a bucket of marks", func() bool {
		ctx, cancel := context.WithTimeout(c.ctx, callerWaits)
		defer cancel()
		s, err := js.Stream(ctx, "KV_"+namespace.SegmentBucket())
		if err == nil {
			marks = s.CachedInfo().Config
		}
		return err == nil
	})
	if len(urls) > 1 {
		leader, _ := c.leader(namespace.SegmentBucket())
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

// leadProbeAsMarks has the server that leads the marks lead the probe's bucket, and reports whether it does.
func (c *cluster) leadProbeAsMarks() bool {
	marks, ok1 := c.replicas("KV_" + namespace.SegmentBucket())
	own, ok2 := c.replicas("KV_" + probeBucket)
	if !ok1 || !ok2 || marks.Leader == "" || own.Leader == "" {
		return false
	}
	if marks.Leader != own.Leader {
		body := fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, marks.Leader)
		_, _ = c.conn().Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_"+probeBucket, body, time.Second) // asked again
		return false
	}
	return true
}

func newProbe(l *load, urls []string) (*probe, error) {
	nc, err := nats.Connect(strings.Join(urls, ","), nats.Name("faults probe"), nats.DontRandomize(),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1))
	if err != nil {
		return nil, err
	}
	return &probe{load: l, nc: nc}, nil
}

// open makes the bucket and its entry, unless they are there.
func (p *probe) open(ctx context.Context, cfg jetstream.KeyValueConfig) error {
	ctx, cancel := context.WithTimeout(ctx, callerWaits)
	defer cancel()
	js, err := jetstream.New(p.nc)
	if err != nil {
		return err
	}
	if p.kv, err = js.CreateKeyValue(ctx, cfg); err != nil {
		return err
	}
	_, err = p.kv.Put(ctx, probeKey, nil)
	return err
}

// run writes until ctx ends.
func (p *probe) run(ctx context.Context) {
	if p == nil {
		return
	}
	ticks := time.NewTicker(probeEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		_ = p.write() // kept
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

// write writes once, and keeps how long that took.
func (p *probe) write() error {
	from := p.load.now()
	err := p.put()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = append(p.writes, write{span{from, p.load.now()}, err})
	return err
}

// put replaces the entry from the revision that the last write gave it. Where that is not known, it is read first. A
// bucket that is gone is not made again: that would be one more thing for JetStream to do while it recovers.
func (p *probe) put() error {
	ctx, cancel := context.WithTimeout(context.Background(), callerWaits)
	defer cancel()
	if !p.known {
		e, err := p.kv.Get(ctx, probeKey)
		if err != nil {
			return err
		}
		p.rev, p.known = e.Revision(), true
	}
	rev, err := p.kv.Update(ctx, probeKey, []byte("1"), p.rev)
	if p.known = err == nil; p.known {
		p.rev = rev
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) { // as after a write whose answer was lost
		return nil
	}
	return err
}

// meanwhile returns the writes that were under way within a span.
func (p *probe) meanwhile(s span) (found bare) {
	if p == nil {
		return bare{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.writes {
		if w.overlaps(s) {
			found.add(w)
		}
	}
	return found
}

// bare is what the writes of a probe came to.
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

// text returns "0.31 s (when)", "2.00 s without an answer (when), 3 of 20 failed", or "none (when)".
func (b bare) text(when string) string {
	if b.writes == 0 {
		return "none (" + when + ")"
	}
	text := seconds(b.slowest.took()) + " (" + when + ")"
	if b.slowest.err != nil {
		text = "failed after " + text
	}
	if b.failed > 0 {
		text += fmt.Sprintf(", %d of %d failed", b.failed, b.writes)
	}
	return text
}

// slowestBare returns how long the slowest write took, and when it began, as seen from the fault.
func (t *trial) slowestBare() string {
	b := t.probe.meanwhile(span{0, t.load.now()})
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

// burstGap is how long after the end of one burst of refusals another may begin.
const burstGap = time.Second

// bursts returns when requests were refused, each from its sending to its answer, as spans without such a gap.
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

// besideBursts returns how long the slowest bare write took during each burst of refused requests for the strict tag
// to which one of those belongs that began at these times.
func (t *trial) besideBursts(began []time.Duration) string {
	var parts []string
	for _, b := range bursts(t.load.refusals()) {
		if slices.ContainsFunc(began, func(at time.Duration) bool { return b.from <= at && at <= b.till }) {
			parts = append(parts, t.probe.meanwhile(b).text("from "+b.String()))
		}
	}
	const most = 5
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	if parts == nil {
		return ""
	}
	return "; slowest bare write meanwhile: " + strings.Join(parts, ", ")
}
