package stage_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// A request for messages can be lost on its way to a consumer, whose reader would wait for good.
func TestAStageReadsAnewWhereAConsumerFallsSilent(t *testing.T) {
	const many = 2500 // more than are asked for at once
	for name, n := range map[string][2]int{"at once": {0, 10}, "amid messages": {many, many}, "in between": {10, 20}} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			before, all := n[0], n[1]
			p := newPair(t, before)
			var log natstest.Buffer
			s := p.stage(func(c *stage.Config) {
				c.Source = &pausing{c.Source, p, before == 0}
				c.Once, c.Log = false, slog.New(slog.NewTextHandler(&log, nil))
				stamp := c.Stamp
				c.Stamp = func(ctx context.Context, msgs []*nats.Msg) error {
					time.Sleep(500 * time.Millisecond) // the consumer is paused before all is read
					return stamp(ctx, msgs)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			if before > 0 {
				wait.Until(t, "a message is copied", func() bool { return s.Progress().Copied > 0 })
				p.pauseAll()
			}
			p.publish(before, all)
			wait.Until(t, "all is copied", func() bool { return p.held() >= all })
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if got := log.String(); before == 0 && !strings.Contains(got, "has delivered nothing for") {
				t.Errorf("the log does not say why the stream was read anew: %s", got)
			}
			p.verify(all)
		})
	}
}

// pausing is a source whose first consumer is paused before anything can be read.
type pausing struct {
	stage.Source
	p   *pair
	now bool
}

func (s *pausing) Open(ctx context.Context, after uint64) (stage.Reader, error) {
	r, err := s.Source.Open(ctx, after)
	if s.now && err == nil {
		s.p.pauseAll()
		s.now = false
	}
	return r, err
}

func (p *pair) stream() jetstream.Stream {
	s, err := p.js.Stream(p.t.Context(), p.source)
	must(p.t, err)
	return s
}

// pauseAll pauses the consumers that the source has.
func (p *pair) pauseAll() {
	for name := range p.stream().ConsumerNames(p.t.Context()).Name() {
		_, err := p.stream().PauseConsumer(p.t.Context(), name, time.Now().Add(time.Hour))
		must(p.t, err)
	}
}

// Otherwise missing messages would count as deleted in the source.
func TestAReaderEndsWhereAMessageIsLostOnItsWay(t *testing.T) {
	for name, lose := range map[string]func(p *pair, conn *nats.Conn, pull *nats.Msg){
		// What comes next is not the second that was delivered.
		"one does not arrive": func(p *pair, _ *nats.Conn, pull *nats.Msg) {
			_, err := p.stream().CreatePushConsumer(p.t.Context(), jetstream.ConsumerConfig{
				DeliverSubject: pull.Reply, AckPolicy: jetstream.AckNonePolicy,
			})
			must(p.t, err)
		},
		"the connection is lost": func(p *pair, conn *nats.Conn, _ *nats.Msg) {
			must(p.t, conn.ForceReconnect())
			wait.Until(p.t, "it is connected again", func() bool {
				return conn.Stats().Reconnects > 0 && conn.IsConnected()
			})
			p.publish(1, 2)
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			p := newPair(t, 1)
			pulls, err := natsid().Conn.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT." + p.source + ".*")
			must(t, err)
			defer func() { _ = pulls.Unsubscribe() }()
			must(t, natsid().Conn.Flush())
			conn, err := nats.Connect(natsid().URL, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
			must(t, err)
			defer conn.Close()
			js, err := jetstream.New(conn)
			must(t, err)
			r, err := stage.SourceOn(js, p.source).Open(t.Context(), 0)
			must(t, err)
			defer r.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if m, err := r.Next(ctx); err != nil || m.Seq != 1 {
				t.Fatalf("message %d, %v", m.Seq, err)
			}
			var pull *nats.Msg // the last one: another was to be refused
			for pull == nil || !strings.Contains(string(pull.Data), `"batch":2000`) {
				pull, err = pulls.NextMsgWithContext(ctx)
				must(t, err)
			}
			lose(p, conn, pull)
			if m, err := r.Next(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "lost") {
				t.Errorf("the reader delivers message %d, %v", m.Seq, err)
			}
		})
	}
}

// A mute source has readers that deliver nothing, so many at first.
type mute struct {
	*world
	readers int
	opened  int
}

func (m *mute) Open(ctx context.Context, after uint64) (stage.Reader, error) {
	if m.opened++; m.opened <= m.readers {
		return muteReader{}, nil
	}
	return m.world.Open(ctx, after)
}

type muteReader struct{}

func (muteReader) Next(ctx context.Context) (stage.Message, error) {
	<-ctx.Done()
	return stage.Message{}, context.Cause(ctx)
}
func (muteReader) Close() {}

func TestASilentReaderIsLeftWithinSecondsAndSaidToBe(t *testing.T) {
	for readers, within := range []time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 13 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(t, 1, plain, plain)
			src := &mute{world: w, readers: readers}
			s := w.stage(true, func(c *stage.Config) { c.Source = src })
			unready := make(chan error, 1)
			go func() {
				time.Sleep(1500 * time.Millisecond)
				unready <- s.Progress().Ready(time.Now())
			}()
			begun := time.Now()
			if err := s.Run(t.Context()); err != nil || time.Since(begun) > within {
				t.Errorf("%d silent readers: copied after %v (%v), want %v", readers, time.Since(begun), err, within)
			}
			w.judge()
			if err := <-unready; (err != nil) != (readers > 1) {
				t.Errorf("%d silent readers: it says %v", readers, err)
			}
		})
	}
}

// A source that has nothing more is not silent.
func TestAnIdleSourceIsNotReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, plain, foreign)
		src := &mute{world: w}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.stage(false, func(c *stage.Config) { c.Source = src }).Run(ctx); err != nil || src.opened != 1 {
			t.Errorf("it was opened %d times, %v", src.opened, err)
		}
	})
}
