package worker

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A sink is the connection to a server that gets nothing once the sink is full.
type sink struct {
	net.Conn
	full atomic.Bool
}

func (s *sink) Dial(network, address string) (conn net.Conn, err error) {
	s.Conn, err = net.Dial(network, address)
	return s, err
}

func (s *sink) Write(b []byte) (int, error) {
	if s.full.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// BenchmarkRequest shows what a request for one ID costs in this process, from where NATS delivers it until its reply
// is in the buffer of the connection, beside a bare reply there.
func BenchmarkRequest(b *testing.B) {
	sink := &sink{}
	conn, err := nats.Connect(natstest.Start(b), nats.SetCustomDialer(sink),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the server hears nothing, and hangs up
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	sink.full.Store(true)
	store := new(segmenttest.Memory)
	tag := segment.Tag{Name: "bench", Step: segment.MaxStep, MaxID: 1}
	if _, err := store.Create(b.Context(), tag, false); err != nil {
		b.Fatal(err)
	}
	segments := segment.New(segment.Config{Store: store, Deadline: time.Minute})
	b.Cleanup(segments.Close)
	loaded := make(chan error, 1)
	done := func(_ []segment.Range, err error) { loaded <- err }
	if err := segments.Park("bench", 1, done); err != nil {
		b.Fatal(err)
	}
	if err := <-loaded; err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	g, err := snowflake.NewGenerator(snowflake.Leaf, 9, now.UnixMilli(), now.Add(time.Hour).UnixMilli(), 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	issuer := snowflake.NewIssuer(time.Minute, 100, func() int64 { return time.Now().UnixMilli() })
	issuer.Use(g)
	w := New(Config{
		Namespace: subjects.Namespace("id"), Version: "1.0.0", Segments: segments, Store: store,
		Snowflakes: issuer, Layout: snowflake.Leaf, MaxBatch: 1000, Deadline: time.Minute,
		Instance: func() string { return "bench" },
		Number:   func() (int, bool, any) { return 9, true, nil },
	})
	m := w.newMembership(conn, nil, nil)
	run := func(name, subject string, handle nats.MsgHandler) {
		b.Run(name, func(b *testing.B) {
			m := &nats.Msg{Subject: subject, Reply: "_INBOX.aaaaaaaaaaaaaaaaaaaaaa.bbbbbb"}
			b.ReportAllocs()
			for b.Loop() {
				handle(m)
			}
		})
	}
	reply := []byte("12345678")
	run("bare", "id.segment.bench", func(m *nats.Msg) { _ = conn.Publish(m.Reply, reply) })
	run("segment", "id.segment.bench", m.segmentEndpoints(w.served)[0].receive())
	run("snowflake", "id.snowflake", m.snowflakeEndpoints(w.served)[0].receive())
}
