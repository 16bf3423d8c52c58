package buckets_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// headless returns a JetStream that answers what the leader of a stream answers alone. Once it has no leader of all its
// servers, it makes no consumers, and says nothing. Once it is behind, a member that lacks all keys describes streams;
// once it refuses, nobody does.
func headless(t *testing.T) (js jetstream.JetStream, leaderless, behind, refuses *atomic.Bool) {
	nc := natstest.Connect(t, natstest.Start(t))
	leaderless, behind, refuses = new(atomic.Bool), new(atomic.Bool), new(atomic.Bool)
	if _, err := nc.Subscribe("api.>", func(m *nats.Msg) {
		if api := strings.TrimPrefix(m.Subject, "api."); strings.HasPrefix(api, "$KV.") {
			_ = nc.PublishMsg(&nats.Msg{Subject: api, Reply: m.Reply, Data: m.Data, Header: m.Header})
		} else if behind.Load() && strings.Contains(string(m.Data), "subjects_filter") {
			_ = nc.Publish(m.Reply, []byte(`{"state":{"subjects":{}}}`))
		} else if refuses.Load() && strings.Contains(string(m.Data), "subjects_filter") {
			_ = nc.Publish(m.Reply, []byte(`{"error":{"code":503,"err_code":10118,"description":"stream is offline"}}`))
		} else if !leaderless.Load() || !strings.HasPrefix(api, "CONSUMER.") {
			_ = nc.PublishRequest("$JS.API."+api, m.Reply, m.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.NewWithAPIPrefix(nc, "api")
	if err != nil {
		t.Fatal(err)
	}
	return js, leaderless, behind, refuses
}

func TestFewKeysAreListedWithoutALeaderOfAllServers(t *testing.T) {
	js, leaderless, behind, refuses := headless(t)
	urgent := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: "b", Insist: true})
	other := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: "b"})
	const prefix = buckets.Own + ".w."
	put := func(key string) {
		t.Helper()
		if _, err := urgent.Create(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(b *buckets.Bucket, within time.Duration) (map[string]buckets.Entry, error) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return b.AllOwn(ctx, prefix)
	}
	for i := range 20 {
		put(fmt.Sprint(prefix, i))
	}
	put("tag")
	leaderless.Store(true)
	if err := urgent.Remove(t.Context(), prefix+"7", urgent.Known()-13); err != nil {
		t.Fatal(err)
	}
	for _, lags := range []bool{false, true} {
		behind.Store(lags)
		got, err := list(urgent, 30*time.Second)
		if err != nil || len(got) != 19 {
			t.Fatalf("%d entries, %v, want 19; described by a member that is behind: %t", len(got), err, lags)
		}
		for key, e := range got {
			if string(e.Value) != key || e.Key != key || e.Revision == 0 {
				t.Errorf("%s: %+v", key, e)
			}
		}
	}
	behind.Store(false)
	refuses.Store(true)
	if got, err := list(urgent, 30*time.Second); err != nil || len(got) != 19 {
		t.Errorf("%d entries, %v, want 19, though nobody counts them", len(got), err)
	}
	refuses.Store(false)
	if got, err := list(other, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody waits for it, and it was not listed by JetStream: %d entries, %v", len(got), err)
	}
	for i := range 50 {
		put(fmt.Sprint(prefix, "more", i))
	}
	if got, err := list(urgent, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("many keys were read one by one: %d entries, %v", len(got), err)
	}
	leaderless.Store(false)
	if got, err := list(urgent, 30*time.Second); err != nil || len(got) != 69 {
		t.Errorf("%d entries, %v, want 69", len(got), err)
	}
}
