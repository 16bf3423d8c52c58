package buckets_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// JetStream announces the only entry of a bucket, which then expires before it is delivered. That takes many tries:
// each bucket is listed again and again until it is empty.
func TestAListingEndsThoughItsLastEntryExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	var wg sync.WaitGroup
	for i := range 24 {
		js := natstest.JetStream(t, url)
		cfg := buckets.Config{Name: fmt.Sprintf("b%d", i), TTL: time.Second}
		b := buckets.New(buckets.OnJetStream(js), cfg)
		open(t, b)
		wg.Go(func() {
			for range 2 {
				if _, err := b.Put(t.Context(), "key", nil); err != nil {
					t.Error(err)
				}
				listUntilEmpty(t, b)
			}
		})
	}
	wg.Wait()
}

// open opens a bucket, on a machine that may be busy with many others.
func open(t *testing.T, b *buckets.Bucket) {
	wait.For(t, func() error { return b.Open(t.Context()) })
}

func listUntilEmpty(t *testing.T, b *buckets.Bucket) {
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for n := 1; n > 0; {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				all, err := b.All(ctx)
				cancel()
				if err != nil {
					t.Errorf("a listing did not end: %v", err)
					return
				}
				n = len(all)
			}
		})
	}
	wg.Wait()
}

// between returns an open bucket of a JetStream some of whose requests are handled by handle.
func between(
	t *testing.T, nc *nats.Conn, cfg buckets.Config, handle func(call string, m *nats.Msg) (handled bool),
) *buckets.Bucket {
	t.Helper()
	_, err := nc.Subscribe("odd.>", func(m *nats.Msg) {
		call := strings.TrimPrefix(m.Subject, "odd.")
		if handle(call, m) {
			return
		}
		if !strings.HasPrefix(call, "$KV.") {
			call = "$JS.API." + call
		}
		_ = nc.PublishRequest(call, m.Reply, m.Data)
	})
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.NewWithAPIPrefix(nc, "odd")
	if err != nil {
		t.Fatal(err)
	}
	b := buckets.New(buckets.OnJetStream(js), cfg)
	open(t, b)
	return b
}

// A server that dies takes the consumer of a listing with it, and says nothing.
func TestAListingThatStandsStillIsBegunAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	nc := natstest.Connect(t, natstest.Start(t))
	b := between(t, nc, buckets.Config{Name: "b"}, func(call string, _ *nats.Msg) (handled bool) {
		return strings.HasPrefix(call, "CONSUMER.MSG.NEXT.") && asked.Add(1) == 1
	})
	if _, err := b.Put(t.Context(), "key", nil); err != nil {
		t.Fatal(err)
	}
	if all, err := b.All(t.Context()); err != nil || len(all) != 1 || asked.Load() != 2 {
		t.Errorf("%v, %v, asked %d times, want the key, asked twice", all, err, asked.Load())
	}
}

// Each entry is there though the server allows small batches, and each beginning of a listing makes one consumer.
func TestAListingAsksForNoMoreThanItsConsumerAllowsAndPausesAfterEachRefusal(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.StartWith(t, "jetstream { limits { max_request_batch: 10 } }"))
	var made, refusing atomic.Int64
	b := between(t, nc, buckets.Config{Name: "b"}, func(call string, m *nats.Msg) (handled bool) {
		if strings.HasPrefix(call, "CONSUMER.CREATE.") {
			made.Add(1)
		}
		if handled = strings.HasPrefix(call, "CONSUMER.MSG.NEXT.") && refusing.Load() > 0; handled {
			refused := nats.NewMsg(m.Reply)
			refused.Header = nats.Header{"Status": {"409"}, "Description": {"Exceeded Something"}}
			_ = nc.PublishMsg(refused)
		}
		return handled
	})
	for i := range 25 {
		if _, err := b.Put(t.Context(), fmt.Sprintf("k%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := b.All(t.Context()); err != nil || len(all) != 25 {
		t.Errorf("%d entries, %v, want 25", len(all), err)
	}
	made.Store(0)
	refusing.Store(1)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	if _, err := b.All(ctx); err == nil || !strings.Contains(err.Error(), "409 Exceeded Something") {
		t.Errorf("%v, want the status", err)
	}
	if n := made.Load(); n > 2 {
		t.Errorf("%d consumers were made in 2.5 s", n)
	}
}

// A fleet that starts makes keys between the moment when a listing begins and the one when it is read. None is lost:
// the client would log it.
func TestAListingHasRoomForKeysThatAreMadeMeanwhile(t *testing.T) {
	t.Parallel()
	lost := make(chan error, 100)
	url := natstest.Start(t)
	nc, err := nats.Connect(url, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { lost <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	b := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: "growing"})
	open(t, b)
	// While the consumer is made, more keys are.
	const more = 2000
	if _, err := b.Put(t.Context(), "first", nil); err != nil {
		t.Fatal(err)
	}
	once := new(sync.Once)
	grow := func(*nats.Msg) {
		once.Do(func() {
			for i := range more {
				if err := nc.Publish(fmt.Sprintf("$KV.growing.k%d", i), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if _, err := nc.Subscribe("$JS.API.CONSUMER.CREATE.KV_growing.>", grow); err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < more+1; {
		all, err := b.All(t.Context())
		if err != nil || len(all) < seen {
			t.Fatalf("%d entries after %d, %v", len(all), seen, err)
		}
		seen = len(all)
	}
	select {
	case err := <-lost:
		t.Error(err)
	default:
	}
}
