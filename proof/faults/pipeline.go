//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/process"
	"github.com/natsid/natsid/subjects"
)

// The streams of a pipeline.
const (
	fromStream = "FROM"
	toStream   = "TO"
)

// A pipeline is a source that is filled, stages that copy it, and a target that is checked as it grows, message by
// message. Only the IDs of messages are kept, in the ledger of their kind. Checked messages are removed from both
// streams.
//
// Message k of the source holds the number k, so the expected content of the target follows from the sequence.
type pipeline struct {
	t    *trial
	nc   *nats.Conn
	js   jetstream.JetStream
	rng  *mathrand.Rand // of the scene
	kind kind           // of the IDs

	created time.Time // of the source
	stages  []*stamper
	kills   int

	stop, stopChecking func()
	enough             atomic.Bool   // no more batches are published
	silent             chan struct{} // closed once the last batch is published
	published          atomic.Uint64 // number of messages in the source
	checked            atomic.Uint64 // the last message of the source that was found in the target
	held               atomic.Bool   // no message is removed from the streams
	began              time.Time

	mu         sync.Mutex
	next       time.Time // time when the last message was found
	standstill time.Duration
}

// stampFigures are the figures of a pipeline.
type stampFigures struct {
	messages   uint64
	kills      int
	took       time.Duration
	standstill time.Duration // the longest time without a new message in the target
}

// Bounds of the messages in the streams.
const (
	published    = 1000   // at a time, at most
	perSecond    = 2000   // unless -stamp-messages is given
	ahead        = 10_000 // most messages published and not checked
	removedEvery = 5_000
)

// newPipeline creates the streams, and fills the source from then on.
func (t *trial) newPipeline(k kind) *pipeline {
	nc, err := nats.Connect(strings.Join(t.urls(), ","), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1))
	t.must(err)
	js, err := jetstream.New(nc)
	t.must(err)
	p := &pipeline{t: t, nc: nc, js: js, kind: k, began: time.Now(), silent: make(chan struct{})}
	p.rng = mathrand.New(mathrand.NewPCG(t.opt.seed, 1))
	t.Cleanup(nc.Close)
	p.makeStream(jetstream.StreamConfig{Name: fromStream, Subjects: []string{"from.>"}})
	p.makeTarget()
	p.created = p.source().Created
	p.next = time.Now()
	stop := p.background(func(ctx context.Context) { defer close(p.silent); p.publish(ctx) })
	p.stopChecking = p.background(p.check)
	p.stop = sync.OnceFunc(func() { stop(); p.stopChecking() })
	t.Cleanup(p.stop)
	return p
}

func (p *pipeline) makeTarget(change ...func(*jetstream.StreamConfig)) {
	c := jetstream.StreamConfig{Name: toStream, Subjects: []string{"stamped.>"}}
	for _, f := range change {
		f(&c)
	}
	p.makeStream(c)
}

func (p *pipeline) makeStream(c jetstream.StreamConfig) {
	c.Replicas, c.AllowAtomicPublish = len(p.t.servers), true
	var last error
	if p.t.wait(startWithin, "", func() bool {
		ctx, cancel := p.t.within()
		defer cancel()
		_, last = p.js.CreateStream(ctx, c)
		return last == nil
	}) != nil {
		p.t.Fatalf("stream %s cannot be made: %v", c.Name, last)
	}
}

// publish fills the source, in batches, each of which lands only after the message that it expects.
func (p *pipeline) publish(ctx context.Context) {
	rng := mathrand.New(mathrand.NewPCG(p.t.opt.seed, 2))
	for ctx.Err() == nil && !p.enough.Load() {
		last := p.published.Load()
		n := 1 + rng.IntN(published)
		due := uint64(time.Since(p.began).Seconds() * perSecond)
		if last > p.checked.Load()+ahead || p.t.opt.stampMessages == 0 && last+uint64(n) > due {
			time.Sleep(tick)
			continue
		}
		if err := p.publishBatch(ctx, last, n); err == nil {
			p.published.Store(last + uint64(n))
			continue
		}
		// The outcome is unknown: the stream shows it.
		time.Sleep(50 * time.Millisecond)
		if s, err := p.js.Stream(ctx, fromStream); err == nil {
			p.published.Store(max(last, s.CachedInfo().State.LastSeq))
		}
	}
}

func (p *pipeline) publishBatch(ctx context.Context, last uint64, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id := rand.Text()
	for i := 1; ; i++ {
		number := strconv.FormatUint(last+uint64(i), 10)
		m := &nats.Msg{Subject: "from.orders", Data: fmt.Appendf(nil, "%s %*s", number, 80, "x"), Header: nats.Header{
			"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(i)}, "Number": {number},
		}}
		if i == 1 {
			m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(last, 10))
		}
		if i < n {
			if err := p.nc.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		m.Header.Set("Nats-Batch-Commit", "1")
		reply, err := p.nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return err
		}
		return answerOf(reply, &struct{}{})
	}
}

// background calls f until the function that it returns is called.
func (p *pipeline) background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(p.t.ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() { cancel(); running.Wait() }
}

func (p *pipeline) source() *jetstream.StreamInfo {
	ctx, cancel := p.t.within()
	defer cancel()
	s, err := p.js.Stream(ctx, fromStream)
	p.t.must(err)
	return s.CachedInfo()
}

// check reads the target from the first unchecked message on.
func (p *pipeline) check(ctx context.Context) {
	c := checker{p: p, seq: 1, source: p.checked.Load() + 1}
	for ctx.Err() == nil {
		err := c.read(ctx)
		if wrong, ok := errors.AsType[*wrongError](err); ok {
			p.t.wrong("%v", wrong)
			return
		}
		time.Sleep(50 * time.Millisecond) // servers are out of reach
	}
}

// deleteTarget deletes the target, and creates it again. The new one begins with the messages that the source then
// holds.
func (p *pipeline) deleteTarget() {
	p.stopChecking()
	ctx, cancel := p.t.within()
	defer cancel()
	p.t.must(p.js.DeleteStream(ctx, toStream))
	p.checked.Store(p.source().State.FirstSeq - 1)
}

func (p *pipeline) checkAgain() { p.stopChecking = p.background(p.check) }

// A checker holds the expected next message of the target.
type checker struct {
	p           *pipeline
	seq, source uint64
}

// A wrongError is a broken promise.
type wrongError struct{ text string }

func (e *wrongError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &wrongError{fmt.Sprintf(format, args...)} }

// read reads and checks messages until reading fails.
func (c *checker) read(ctx context.Context) error {
	opened, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	from, err := c.p.js.OrderedConsumer(opened, toStream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: c.seq,
	})
	if err != nil {
		return err
	}
	messages, err := from.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for ctx.Err() == nil {
		m, err := messages.Next(jetstream.NextMaxWait(2 * time.Second))
		if err != nil {
			return err
		}
		if err := c.next(m); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// next checks one message.
func (c *checker) next(m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	p, h, number := c.p, m.Headers(), strconv.FormatUint(c.source, 10)
	if meta.Sequence.Stream != c.seq {
		return wrong("message %d of the target was read, want %d", meta.Sequence.Stream, c.seq)
	}
	source := fmt.Sprintf("%s %s %d ", fromStream, p.created.UTC().Format(time.RFC3339Nano), c.source)
	data, _, _ := strings.Cut(string(m.Data()), " ")
	if got := h["Natsid-Source"]; len(got) != 1 || !strings.HasPrefix(got[0], source) || data != number ||
		h.Get("Number") != number || m.Subject() != "stamped.from.orders" {
		return wrong("message %d of the target is not message %s of the source: %s with headers %v", c.seq, number,
			data, h)
	}
	id, err := subjects.ParseID(h.Get("Natsid-Id"))
	if err != nil || id <= 0 {
		return wrong("message %d of the target has no ID: headers %v", c.seq, h)
	}
	if err := p.t.load.keep(p.kind, int64(id), int64(id)); err != nil {
		return wrong("message %d of the target: %v", c.seq, err)
	}
	p.found(c.source)
	c.seq, c.source = c.seq+1, c.source+1
	if c.seq%removedEvery == 0 && !p.held.Load() {
		p.remove(c.seq, c.source)
	}
	return nil
}

func (p *pipeline) found(source uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.standstill = max(p.standstill, now.Sub(p.next))
	p.next = now
	p.checked.Store(source)
}

// remove removes checked messages, except the last: messages that it cannot remove now are removed the next time.
func (p *pipeline) remove(target, source uint64) {
	for name, seq := range map[string]uint64{toStream: target - 1, fromStream: source} {
		ctx, cancel := context.WithTimeout(p.t.ctx, 2*time.Second)
		if s, err := p.js.Stream(ctx, name); err == nil {
			_ = s.Purge(ctx, jetstream.WithPurgeSequence(seq))
		}
		cancel()
	}
}

// A stamper is a natsid stamp over all its processes.
type stamper struct {
	*process.Process
	p    *pipeline
	name string
	path string // of its program
	args []string

	begun time.Time // start of the current process
}

// stage adds a stage that reaches NATS at urls, and starts it.
func (p *pipeline) stage(urls []string) *stamper {
	s := &stamper{p: p, name: fmt.Sprint("stage", len(p.stages)+1), path: p.t.bins.natsid}
	if p.t.fleet.old {
		s.path = p.t.bins.old
	}
	ids := "--snowflake"
	if p.kind == long {
		ids = "--tag=" + longTag
	}
	s.args = []string{"stamp", "--nats", strings.Join(urls, ","), "--from", fromStream, "--to", toStream, ids}
	p.stages = append(p.stages, s)
	p.t.Cleanup(func() { s.Kill() })
	s.start()
	return s
}

func (s *stamper) start() {
	started, err := process.Start(s.p.t.path(s.name+".log"), s.name, nil, s.path, s.args...)
	s.p.t.must(err)
	s.Process, s.begun = started, time.Now()
}

// strike kills the stage, and logs that.
func (s *stamper) strike() {
	s.p.t.logf("SIGKILL of %s, message %d is copied", s.name, s.p.checked.Load())
	s.Kill()
	s.p.kills++
}

// stoodBy returns when the stage last logged that another one copies; "" if it never did.
func (s *stamper) stoodBy() (at string) {
	text, err := os.ReadFile(s.p.t.path(s.name + ".log"))
	s.p.t.must(err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "this one stands by") {
			at, _, _ = strings.Cut(line, " ")
		}
	}
	return at
}

// copying returns the copying stage of two, once the other stands by.
func (p *pipeline) copying() (s *stamper) {
	a, b := p.stages[0], p.stages[1]
	begun := a.begun
	if b.begun.After(begun) {
		begun = b.begun
	}
	after := "time=" + begun.Format("2006-01-02T15:04:05.000Z07:00")
	p.t.waitFor(startWithin, "one of two stages stands by", func() bool {
		one, other := a.stoodBy(), b.stoodBy()
		s = a
		if one > other {
			s = b
		}
		return max(one, other) > after
	})
	return s
}

// progress waits until messages are copied that are not published yet: the stage that copied the last one may have
// been killed since.
func (p *pipeline) progress() {
	last := p.published.Load()
	if p.t.wait(startWithin, "", func() bool { return p.checked.Load() > last }) != nil {
		p.t.Fatalf("%v later message %d of %d is the last that was copied", startWithin, p.checked.Load(),
			p.published.Load())
	}
}

// finish waits until all is copied, and ends the stages.
func (p *pipeline) finish() {
	for p.published.Load() < p.t.opt.stampMessages {
		p.progress()
	}
	// Both must be up: a process that has just started is killed by the signal. A stage that starts when all is
	// copied writes nothing, so that neither stands by.
	if len(p.stages) == 2 {
		p.copying()
	}
	p.enough.Store(true)
	<-p.silent // a batch on its way may land after all that came before is copied
	p.t.waitFor(startWithin, "all is copied", func() bool { return p.checked.Load() == p.source().State.LastSeq })
	for _, s := range p.stages {
		p.t.must(s.Stop(syscall.SIGTERM, stopWithin))
		if code := s.Cmd.ProcessState.ExitCode(); code != 0 {
			p.t.violation("%s ended with exit code %d", s.name, code)
		}
	}
	p.stop()
	p.judge()
}

// judge compares the ends of the streams with the messages found.
func (p *pipeline) judge() {
	t := p.t
	ctx, cancel := t.within()
	defer cancel()
	target, err := p.js.Stream(ctx, toStream)
	t.must(err)
	var last struct {
		Message struct {
			Headers []byte `json:"hdrs"`
		} `json:"message"`
	}
	end := target.CachedInfo().State.LastSeq
	t.must(t.api("$JS.API.STREAM.MSG.GET."+toStream, map[string]uint64{"seq": end}, &last))
	if n := p.source().State.LastSeq; n != p.checked.Load() ||
		!strings.Contains(string(last.Message.Headers), fmt.Sprintf(" %d\r\n", n)) {
		t.wrong("the source ends with message %d, %d were found in the target, which ends with message %d: %s",
			n, p.checked.Load(), end, last.Message.Headers)
	}
	t.stamp = &stampFigures{p.checked.Load(), p.kills, time.Since(p.began), p.standstill}
	t.logf("%d messages are in the target, each once; %d stages were killed; nothing arrived for up to %v",
		p.checked.Load(), p.kills, p.standstill.Round(time.Millisecond))
}
