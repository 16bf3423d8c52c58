package buckets_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// JetStream announces the only entry of a bucket, which then expires before it is delivered. That takes many tries:
// each bucket is listed again and again until it is empty.
func TestAListingEndsThoughItsLastEntryExpiresMeanwhile(t *testing.T) {
	url := natstest.Start(t)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			js := natstest.JetStream(t, url)
			cfg := buckets.Config{Name: fmt.Sprintf("b%d", i), TTL: time.Second}
			b := buckets.New(buckets.OnJetStream(js), cfg)
			open(t, b)
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
	for late := time.Now().Add(time.Minute); ; {
		_, err := b.Open(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(late) {
			t.Errorf("not open after a minute: %v", err)
			return
		}
	}
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

// A listing of an empty bucket makes no consumer: workers that start at once each list what nobody has written yet.
func TestAnEmptyBucketIsListedWithoutAConsumer(t *testing.T) {
	url := natstest.Start(t)
	js := natstest.JetStream(t, url)
	b := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: "empty"})
	open(t, b)
	made, err := js.Conn().SubscribeSync("$JS.API.CONSUMER.CREATE.>")
	if err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		all, err := b.All(t.Context())
		if err != nil || len(all) != want {
			t.Errorf("%v, %v, want %d entries", all, err, want)
		}
		if err := js.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		if n, _, err := made.Pending(); err != nil || n != want {
			t.Errorf("with %d entries %d consumers were made, %v", want, n, err)
		}
		if _, err := b.Put(t.Context(), "key", nil); err != nil {
			t.Fatal(err)
		}
	}
}
