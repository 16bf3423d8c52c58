package buckets

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// agreeing is a cluster in which another worker makes the bucket just before this one would.
type agreeing struct {
	Streams
	knows time.Time // from when on the servers know of the bucket
	leads time.Time // from when on it has a leader: what is asked before is never answered
	asks  atomic.Int64
}

func (a *agreeing) Info(ctx context.Context, _ string) (Info, error) {
	a.asks.Add(1)
	switch now := time.Now(); {
	case now.Before(a.knows):
		return Info{}, ErrNoBucket
	case now.Before(a.leads):
		<-ctx.Done()
		return Info{}, ctx.Err()
	}
	return sound(3), nil
}

func (a *agreeing) Make(context.Context, jetstream.StreamConfig) error { return ErrBucketExists }

func TestABucketThatAnotherWorkerJustMadeIsOpenedAsSoonAsItCanBe(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		knows, leads, took time.Duration
		asks               int64
	}{
		"it leads at once":          {asks: 1},
		"all know it a bit later":   {knows: 70 * ms, took: 100 * ms, asks: 4},
		"it has no leader yet":      {knows: -ms, leads: 90 * ms, took: 500 * ms, asks: 2},
		"known late, and then lead": {knows: 20 * ms, leads: 120 * ms, took: 550 * ms, asks: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				js := &agreeing{knows: began.Add(c.knows), leads: began.Add(c.leads)}
				err := New(js, Config{Name: "b", Insist: true}).Open(t.Context())
				if took := time.Since(began); err != nil || took != c.took || js.asks.Load() != c.asks {
					t.Errorf("%v after %v and %d asks, want %v and %d", err, took, js.asks.Load(), c.took, c.asks)
				}
			})
		})
	}
}

// A bucket that is deleted as soon as it is made is not waited for.
func TestABucketThatStaysUnknownIsGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		js := &agreeing{knows: began.Add(time.Hour)}
		if err := New(js, Config{Name: "b"}).Open(t.Context()); err == nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
