package app_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// marks returns the bucket of the marks as any client of NATS sees it.
func marks(t *testing.T, nc *nats.Conn) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "id_segments")
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// limited has a worker serve the tag order, with at most 5 IDs a request, and throttle each tag.
func limited(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ns := subjects.DefaultNamespace
	wait.For(t, func() error {
		_, err := order(nc, "").Next(t.Context())
		return err
	})
	for subject, body := range map[string]any{
		ns.TagUpdate():           wire.TagUpdate{Tag: "order", MaxBatch: new(5)},
		wire.ThrottleSubject(ns): wire.Throttle{Rate: new(int64(700))},
	} {
		wait.For(t, func() error {
			_, err := natstest.Ask[any](t.Context(), nc, subject, body)
			return err
		})
	}
}

// wantLimited checks that a request for 6 IDs is refused, and one for 5 is not.
func wantLimited(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if _, err := order(nc, "").NextN(t.Context(), 5); err != nil {
		t.Error(err)
	}
	m, err := nc.Request("id.segment.order", []byte("6"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if e := subjects.ParseError(m.Header); e == nil || e.MaxBatch != 5 {
		t.Errorf("%v, want the limit that was set", e)
	}
}

// Whoever copies the bucket of the marks, or goes back to a copy of it, has the settings of that moment with it.
func TestSettingsAreWhereTheMarksAre(t *testing.T) {
	t.Parallel()
	from := natstest.Connect(t, natstest.Start(t))
	to := natstest.Connect(t, natstest.Start(t))
	first := launch(t, joined(t, from.ConnectedUrl()))
	first.where()
	cl := client.Must(client.New(from, client.Config{}))
	limited(t, from)
	wait.For(t, func() error {
		_, err := cl.CreateTag(t.Context(), subjects.TagCreate{Tag: "invoice", Strict: true})
		return err
	})
	last, _ := ids(t, patient(from, ""))
	first.stop()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}

	old := marks(t, from)
	for _, key := range []string{"_natsid", "invoice"} {
		if e, err := old.Get(t.Context(), key); err != nil || len(e.Value()) == 0 {
			t.Errorf("%s: %v, %v", key, e, err)
		}
	}
	copied(t, old, to)
	second := launch(t, joined(t, to.ConnectedUrl()))
	second.where()
	wantLimited(t, to)
	if id, _ := ids(t, patient(to, "")); id <= last {
		t.Errorf("%d after %d", id, last)
	}
	tags, err := client.Must(client.New(to, client.Config{})).ListTags(t.Context(), subjects.TagList{})
	if err != nil || len(tags) != 2 || tags[0].Tag != "invoice" || !tags[0].Strict {
		t.Errorf("%+v, %v, want a strict tag and another", tags, err)
	}
}

// copied copies a bucket to another NATS as any client can, and lets nobody notice.
func copied(t *testing.T, from jetstream.KeyValue, to *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(to, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: from.Bucket()})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+from.Bucket())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := from.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		e, err := from.Get(t.Context(), key)
		if err == nil {
			value := e.Value()
			if id, err := era.Decode(value); err == nil {
				id.Created = stream.CachedInfo().Created
				value = id.Encode()
			}
			_, err = kv.Put(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
