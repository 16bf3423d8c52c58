package buckets

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// far is a JetStream that answers after so long.
type far struct {
	Streams
	takes time.Duration
}

func (f *far) Info(ctx context.Context, _ string) (Info, error) {
	select {
	case <-time.After(f.takes):
		i := sound(1)
		i.Now = time.Now()
		return i, nil
	case <-ctx.Done():
		return Info{}, ctx.Err()
	}
}

func (f *far) Last(ctx context.Context, _, _ string) (Entry, error) {
	_, err := f.Info(ctx, "")
	return Entry{Revision: 1}, err
}

func TestABucketKnowsHowFarAwayJetStreamIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js := &far{takes: time.Millisecond}
		b := New(js, Config{Name: "b"})
		get := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := b.Get(ctx, "key")
			return err
		}
		want := func(when string, enough time.Duration) {
			t.Helper()
			if got := b.Enough(4, time.Second); got != enough {
				t.Errorf("%s: 4 requests need %v, want %v", when, got, enough)
			}
		}
		for range 3 {
			if err := get(); err != nil {
				t.Fatal(err)
			}
		}
		want("near", time.Second)
		js.takes = 900 * time.Millisecond
		_ = get()
		want("after one late answer", time.Second)
		_ = get()
		want("after two", 4500*time.Millisecond)
		js.takes = time.Hour
		for range 10 {
			_ = get()
			b.Measure(t.Context())
		}
		want("while it is away", 4500*time.Millisecond)
		js.takes = 2 * time.Second
		if err := get(); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		b.Measure(t.Context())
		want("farther than a call waits, and measured", 5*time.Second)
		for range 2 {
			b.latency.note(time.Minute, nats.ErrDisconnected) // that was no answer
		}
		want("after the connection broke", 5*time.Second)
		b.latency.note(js.takes, nil) // calls have the time now
		want("and called", 10*time.Second)
		js.takes = time.Millisecond
		for range 30 {
			_ = get()
		}
		want("near again", time.Second)
	})
}
