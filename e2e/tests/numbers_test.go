package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

func registryOn(js jetstream.JetStream) *kvregistry.Registry {
	ns := subjects.Namespace("id")
	return kvregistry.New(js, kvregistry.Config{
		History: wire.HistoryBucket(ns), Workers: wire.WorkerBucket(ns),
		WorkerSubject: func(w int) string { return wire.Worker(ns, w) },
	})
}

// denied returns JetStream for a user who may not publish to a subject.
func denied(t *testing.T, subject string) jetstream.JetStream {
	t.Helper()
	s := launch(t, &server.Options{JetStream: true, Users: []*server.User{{
		Username: "a", Password: "a",
		Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}},
	}}})
	as := append(kvregistry.Options(), nats.UserInfo("a", "a"))
	js, err := jetstream.New(natstest.Connect(t, s.ClientURL(), as...))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// To a worker whose questions the server drops, all numbers are silent.
func TestAQuestionThatIsNotDeliveredIsNoSilence(t *testing.T) {
	t.Parallel()
	r := registryOn(denied(t, "id.worker.*"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := r.Ask(ctx, 3)
	if err == nil || errors.Is(err, workerid.ErrNoWorker) || errors.Is(err, workerid.ErrBystander) {
		t.Errorf("%v, want that it is not known", err)
	}
}

// Clocks are compared, and windows renewed, while the bucket of the heartbeats does not answer; and nothing is wrong
// with the connection then.
func TestWithoutHeartbeatsTheRecordsTellTheTime(t *testing.T) {
	t.Parallel()
	js := denied(t, "$JS.API.STREAM.INFO.KV_id_workers")
	r := registryOn(js)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), patience/10)
		ms, err := r.Time(ctx)
		if d := time.Since(time.UnixMilli(ms)).Abs(); err != nil || d > patience {
			t.Errorf("%v off, %v", d, err)
		}
		late, end := context.WithTimeout(ctx, 10*time.Millisecond)
		if err := r.Report(late, 1, workerid.Heartbeat{}); err == nil {
			t.Error("a heartbeat was reported")
		}
		end()
		cancel()
	}
	if n := js.Conn().Stats().Reconnects; n > 0 {
		t.Errorf("it reconnected %d times", n)
	}
}
