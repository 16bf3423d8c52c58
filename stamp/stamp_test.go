package stamp_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/client/clienttest"
	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/exampletb"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/stamp"
	"github.com/natsid/natsid/subjects"
)

var (
	examples = new(exampletb.T)
	// natsid starts the worker that the tests share, once.
	natsid = sync.OnceValue(func() *e2e.Cluster { return e2e.Start(examples, e2e.Config{}) })
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(examples.Around(m), natstest.Left()...) }

// stamper returns a Stamper of a tag that no other test uses.
func stamper(t *testing.T) *stamp.Stamper {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	t.Cleanup(ids.Close)
	return stamp.New(client.Must(ids.Segment(t.Name(), client.SegmentConfig{})))
}

func with(values ...string) *nats.Msg {
	m := nats.NewMsg("orders.new")
	for _, v := range values {
		m.Header.Add(stamp.Header, v)
	}
	return m
}

func TestAMessageGetsOneIDAndKeepsIt(t *testing.T) {
	s, m := stamper(t), &nats.Msg{Subject: "orders.new"}
	id, err := s.Msg(t.Context(), m)
	if err != nil || id < 1 || m.Header.Get(stamp.Header) != id.String() || len(m.Header) != 1 {
		t.Fatalf("%v, %v, headers %v", id, err, m.Header)
	}
	again, err := s.Msg(t.Context(), m)
	if read, readErr := stamp.ID(m.Header); err != nil || readErr != nil || again != id || read != id {
		t.Errorf("stamped again it has %v (%v) and read %v (%v), want %v", again, err, read, readErr, id)
	}
}

func TestAMessageWithSomethingElseInItsHeaderIsLeftAlone(t *testing.T) {
	s := stamper(t)
	for _, m := range []*nats.Msg{
		with("0"), with("-1"), with("x"), with("01"), with(""), with("9223372036854775808"), with("7", "8"),
	} {
		before := fmt.Sprint(m.Header)
		_, err := s.Msg(t.Context(), m)
		batch := []*nats.Msg{with(), m}
		all := s.Msgs(t.Context(), batch)
		if !errors.Is(err, stamp.ErrMalformed) || !errors.Is(all, stamp.ErrMalformed) {
			t.Errorf("%s: %v; among others: %v", before, err, all)
		}
		if _, err := stamp.ID(batch[0].Header); fmt.Sprint(m.Header) != before || !errors.Is(err, stamp.ErrNone) {
			t.Errorf("%s became %v, and its neighbour %v", before, m.Header, batch[0].Header)
		}
	}
}

// counted counts requests for several IDs.
type counted struct {
	client.Source
	requests int
}

func (c *counted) NextN(ctx context.Context, n int) (subjects.Runs, error) {
	c.requests++
	return c.Source.NextN(ctx, n)
}

func TestABatchIsStampedInItsOrderByFewRequests(t *testing.T) {
	msgs := make([]*nats.Msg, 25_001)
	for i := range msgs {
		msgs[i] = with()
	}
	msgs[1] = with("77777")
	ids := &counted{Source: clienttest.New()}
	if err := stamp.New(ids).Msgs(t.Context(), msgs); err != nil || ids.requests != 3 {
		t.Fatalf("%v after %d requests, want 3", err, ids.requests)
	}
	for i, m := range msgs {
		want := subjects.ID(max(1, i)) // message 1 has used no ID
		if i == 1 {
			want = 77777
		}
		if id, err := stamp.ID(m.Header); err != nil || id != want {
			t.Fatalf("message %d has ID %v, %v, want %d", i, id, err, want)
		}
	}
}

// A source is a client.Source that gives other runs than it should.
type source struct {
	client.Source
	runs subjects.Runs
}

func (s source) NextN(context.Context, int) (subjects.Runs, error) { return s.runs, nil }

func TestASourceThatGivesAnotherNumberOfIDsStampsNothing(t *testing.T) {
	for _, runs := range []subjects.Runs{nil, {{First: 1, Last: 2}}, {{First: 1, Last: 4}}} {
		msgs := []*nats.Msg{with(), with(), with()}
		if err := stamp.New(source{runs: runs}).Msgs(t.Context(), msgs); err == nil || len(msgs[0].Header) > 0 {
			t.Errorf("%v for 3 messages: %v, %v", runs, err, msgs[0].Header)
		}
	}
}

func TestAHandlerGetsMessagesWithIDs(t *testing.T) {
	nc, got := natsid().Conn, make(chan *nats.Msg, 10)
	sub, err := nc.Subscribe(t.Name(), stamper(t).Handler(func(m *nats.Msg) { got <- m },
		func(_ *nats.Msg, err error) { t.Error(err) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i := range 3 {
		if err := nc.Publish(t.Name(), []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		m := next(t, got)
		if _, err := stamp.ID(m.Header); err != nil || string(m.Data) != strconv.Itoa(i) {
			t.Errorf("%q: %v", m.Data, err)
		}
	}
}

func TestAConsumerGetsMessagesWithIDs(t *testing.T) {
	got := make(chan jetstream.Msg, 10)
	consume(t, stamper(t).Consumer(func(m jetstream.Msg) { got <- m },
		func(_ jetstream.Msg, err error) { t.Error(err) }))
	for i := range 3 {
		m := next(t, got)
		id, err := stamp.ID(m.Headers())
		kept := i != 1 || id == 77 && m.Headers().Get("Colour") == "red"
		if err != nil || !kept || string(m.Data()) != strconv.Itoa(i) {
			t.Errorf("%q: ID %v, %v, headers %v", m.Data(), id, err, m.Headers())
		}
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// consume has a handler consume three messages. The second has ID 77, the others no headers.
func consume(t *testing.T, handler jetstream.MessageHandler) {
	t.Helper()
	js, err := jetstream.New(natsid().Conn, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.StreamConfig{Name: t.Name(), Subjects: []string{t.Name()}}
	stream, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		m := &nats.Msg{Subject: t.Name(), Data: []byte(strconv.Itoa(i))}
		if i == 1 {
			m.Header = nats.Header{stamp.Header: {"77"}, "Colour": {"red"}}
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.Consume(handler)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
}

// A service that nobody serves gives no ID: the message goes to failed, which may have
// it delivered again, and it is not changed.
func TestWithoutAnIDFailedDecides(t *testing.T) {
	ids := client.Must(client.New(natsid().Conn, client.Config{Namespace: "nobody", Timeout: 50 * time.Millisecond}))
	defer ids.Close()
	s := stamp.New(client.Must(ids.Segment("order", client.SegmentConfig{})))
	passed := func() { t.Error("a message without an ID was passed on") }

	failed := make(chan error, 10)
	s.Handler(func(*nats.Msg) { passed() }, func(m *nats.Msg, err error) {
		if len(m.Header) > 0 {
			t.Errorf("it has headers %v", m.Header)
		}
		failed <- err
	})(&nats.Msg{Subject: "orders.new"})
	if err := next(t, failed); !errors.Is(err, client.ErrNotServed) {
		t.Errorf("%v, want ErrNotServed", err)
	}

	consume(t, s.Consumer(func(m jetstream.Msg) {
		if string(m.Data()) != "1" { // which has an ID
			passed()
		}
		_ = m.Ack()
	}, func(m jetstream.Msg, err error) {
		if string(m.Data()) == "0" {
			failed <- err
		}
		_ = m.Nak()
	}))
	for range 2 { // it comes again
		if err := next(t, failed); !errors.Is(err, client.ErrNotServed) {
			t.Errorf("%v, want ErrNotServed", err)
		}
	}
}

func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
		panic("unreachable")
	}
}

func ExampleStamper_Msg() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	s := stamp.New(client.Must(ids.Segment("example.order", client.SegmentConfig{})))

	m := &nats.Msg{Subject: "orders.new", Data: []byte("two books")}
	id, err := s.Msg(context.Background(), m)
	fmt.Println(id, m.Header.Get(stamp.Header), err)
	// Output: 1 1 <nil>
}

func ExampleStamper_Consumer() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	s := stamp.New(client.Must(ids.Segment("example.order", client.SegmentConfig{Prefetch: 1000, MaxAge: time.Second})))

	handler := s.Consumer(func(m jetstream.Msg) {
		id, _ := stamp.ID(m.Headers()) // it has one
		fmt.Println(id, string(m.Data()))
		_ = m.Ack()
	}, func(m jetstream.Msg, err error) {
		fmt.Println(err)
		_ = m.NakWithDelay(time.Second)
	})
	_ = handler // for the method Consume of a jetstream.Consumer
}
