package stage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/exampletb"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/stamp"
	"github.com/natsid/natsid/subjects"
)

var (
	shared = new(exampletb.T)
	natsid = sync.OnceValue(func() *e2e.Cluster { return e2e.Start(shared, e2e.Config{}) })
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m), natstest.Left()...) }

// A pair is a source with messages and a target, of one test.
type pair struct {
	t              *testing.T
	js             jetstream.JetStream
	ids            *client.Client
	source, target string
}

func newPair(t *testing.T, n int) *pair {
	t.Helper()
	js, err := jetstream.New(natsid().Conn, jetstream.WithDefaultTimeout(time.Minute))
	must(t, err)
	p := &pair{t: t, js: js, ids: client.Must(client.New(natsid().Conn, client.Config{}))}
	name := strings.ReplaceAll(t.Name(), "/", "-")
	p.source, p.target = name+"-from", name+"-to"
	t.Cleanup(p.ids.Close)
	p.createSource()
	subjects := []string{"stamped." + t.Name() + ".>"}
	must(t, p.to().Create(t.Context(), subjects, func(context.Context) error { return nil }))
	p.publish(0, n)
	return p
}

func (p *pair) createSource() {
	p.t.Helper()
	_, err := p.js.CreateStream(p.t.Context(), jetstream.StreamConfig{
		Name: p.source, Subjects: []string{p.t.Name() + ".>"},
	})
	must(p.t, err)
}

func (p *pair) to() *stage.Stream { return stage.TargetOn(p.js, p.target, "stamp_test") }

func (p *pair) publish(from, to int) {
	p.t.Helper()
	for i := from; i < to; i++ {
		m := &nats.Msg{Subject: p.t.Name() + ".new", Data: fmt.Append(nil, i), Header: nats.Header{"Colour": {"red"}}}
		m.Header.Set("Nats-Msg-Id", fmt.Sprint("m", i))
		_, err := p.js.PublishMsgAsync(m)
		must(p.t, err)
	}
	select {
	case <-p.js.PublishAsyncComplete():
	case <-time.After(2 * time.Minute):
		p.t.Fatal("the source takes no messages")
	}
}

// stage returns a stage that copies all that is there.
func (p *pair) stage(change ...func(*stage.Config)) *stage.Stage {
	to := p.to()
	cfg := stage.Config{
		Source: stage.SourceOn(p.js, p.source), SourceName: p.source,
		Target: to,
		Fits:   to.Fits, Stamp: stamp.New(client.Must(p.ids.Segment(p.t.Name(), client.SegmentConfig{}))).Msgs,
		Subject:  func(s string) string { return "stamped." + s },
		Existing: stage.StopAtID, Once: true,
	}
	for _, c := range change {
		c(&cfg)
	}
	return stage.New(cfg)
}

// held returns how many messages the target holds.
func (p *pair) held() int {
	p.t.Helper()
	s, err := p.js.Stream(p.t.Context(), p.target)
	must(p.t, err)
	return int(s.CachedInfo().State.Msgs)
}

// verify checks that the target holds n messages, each once and in order, with IDs.
func (p *pair) verify(n int) {
	p.t.Helper()
	if held := p.held(); held != n {
		p.t.Fatalf("the target holds %d messages, want %d", held, n)
	}
	c, err := p.js.OrderedConsumer(p.t.Context(), p.target, jetstream.OrderedConsumerConfig{})
	must(p.t, err)
	all, err := c.Fetch(n, jetstream.FetchMaxWait(30*time.Second))
	must(p.t, err)
	ids := make(map[subjects.ID]bool)
	for m := range all.Messages() {
		i, h := len(ids), m.Headers()
		id, err := stamp.ID(h)
		if err != nil || ids[id] || string(m.Data()) != fmt.Sprint(i) || h.Get("Colour") != "red" ||
			h.Get("Nats-Msg-Id") != "" || m.Subject() != "stamped."+p.t.Name()+".new" {
			p.t.Fatalf("message %d: %q on %s, ID %v (%v), headers %v", i, m.Data(), m.Subject(), id, err, h)
		}
		ids[id] = true
	}
	if len(ids) != n {
		p.t.Fatalf("%d messages were read, want %d: %v", len(ids), n, all.Error())
	}
}

func TestAllIsCopiedOnceAndWhatComesLaterIsToo(t *testing.T) {
	p, published := newPair(t, 2500), 2500
	for _, n := range []int{2500, 2500, 2501, 2507} {
		p.publish(published, n)
		published = max(published, n)
		must(t, p.stage().Run(t.Context()))
		p.verify(n)
	}
}

func TestWhatCannotBeCopiedSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*pair)
		want    string
	}{
		"no source": {func(p *pair) { must(p.t, p.js.DeleteStream(t.Context(), p.source)) }, "there is no stream"},
		"no target": {func(p *pair) { must(p.t, p.js.DeleteStream(t.Context(), p.target)) }, "--create"},
		"a target with a transform": {func(p *pair) {
			p.change(func(c *jetstream.StreamConfig) {
				c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: ">"}
			})
		}, "transforms subjects"},
		"a message that has an ID": {func(p *pair) {
			m := &nats.Msg{Subject: p.t.Name() + ".new", Header: nats.Header{stamp.Header: {"7"}}}
			_, err := p.js.PublishMsg(t.Context(), m)
			must(p.t, err)
		}, "has an ID already"},
		"subjects of no stream": {func(p *pair) {
			p.change(func(c *jetstream.StreamConfig) { c.Subjects = []string{"other." + p.t.Name()} })
		}, "does not take"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			p := newPair(t, 10)
			tc.prepare(p)
			p.stops(tc.want)
		})
	}
}

// wantStop checks that a stage ended with a Stop whose text contains want.
func wantStop(t *testing.T, err error, want string) {
	t.Helper()
	if _, ok := errors.AsType[*stage.Stop](err); !ok || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want a Stop with %q", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
