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
