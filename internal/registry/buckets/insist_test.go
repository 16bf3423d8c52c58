package buckets

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// elected is a JetStream whose bucket has a leader only from some time on: what it was asked before is never answered.
type elected struct {
	far
	leads time.Time
	asks  atomic.Int64
	err   error // of its answers
}

func (e *elected) Last(ctx context.Context, bucket, key string) (Entry, error) {
	e.asks.Add(1)
	if time.Now().Before(e.leads) {
		<-ctx.Done()
		return Entry{}, ctx.Err()
	}
	entry, err := e.far.Last(ctx, bucket, key)
	return entry, errors.Join(err, e.err)
}

func TestAReadThatALeaderTookWithItIsMadeAgain(t *testing.T) {
	const (
		ms    = time.Millisecond
		limit = time.Second
	)
	late := context.DeadlineExceeded
	for name, c := range map[string]struct {
		leads, takes time.Duration // from when on there is a leader, and how long its answers take
		refuses      error
		patient      bool // a bucket that does not insist
		took         time.Duration
		asks         int64
		fails        error
	}{
		"a leader answers":        {takes: ms, took: ms, asks: 1},
		"it refuses":              {takes: ms, refuses: ErrNoKey, took: ms, asks: 1, fails: ErrNoKey},
		"the next one leads soon": {leads: 40 * ms, takes: ms, took: 101 * ms, asks: 2},
		"the next one refuses": {
			leads: 40 * ms, takes: ms, refuses: ErrNoKey, took: 101 * ms, asks: 2, fails: ErrNoKey,
		},
		"the next one leads later":      {leads: 400 * ms, takes: ms, took: 701 * ms, asks: 4},
		"answers are slow":              {takes: 250 * ms, took: 250 * ms, asks: 2},
		"slow answers refuse":           {takes: 250 * ms, refuses: ErrNoKey, took: 250 * ms, asks: 2, fails: ErrNoKey},
		"nobody leads":                  {leads: time.Hour, took: limit, asks: 4, fails: late},
		"nobody waits for the bucket":   {leads: 40 * ms, patient: true, took: limit, asks: 1, fails: late},
		"only the last ask is answered": {leads: 699 * ms, takes: 290 * ms, took: 990 * ms, asks: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				js := &elected{far: far{takes: time.Microsecond}}
				b := New(js, Config{Name: "b", Insist: !c.patient})
				for range 3 {
					if _, err := b.Get(t.Context(), "key"); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				js.takes, js.leads, js.err = c.takes, began.Add(c.leads), c.refuses
				js.asks.Store(0)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				if _, err := b.Get(ctx, "key"); !errors.Is(err, c.fails) {
					t.Errorf("got %v, want %v", err, c.fails)
				}
				if took := time.Since(began); took != c.took || js.asks.Load() != c.asks {
					t.Errorf("it took %v and %d asks, want %v and %d", took, js.asks.Load(), c.took, c.asks)
				}
			})
		})
	}
}

// Where JetStream is far away, reads are not made twice.
func TestAReadIsMadeAgainOnlyAfterLongerThanAnswersTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js := &elected{far: far{takes: 300 * time.Millisecond}}
		b := New(js, Config{Name: "b", Insist: true})
		for range 2 {
			if _, err := b.Get(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
		}
		js.asks.Store(0)
		for range 10 {
			if _, err := b.Get(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
		}
		if n := js.asks.Load(); n != 10 {
			t.Errorf("10 reads were %d asks", n)
		}
	})
}

func (e *elected) Publish(ctx context.Context, bucket, key string, _ Write) (uint64, error) {
	entry, err := e.Last(ctx, bucket, key)
	return entry.Revision, err
}

func TestAWriteIsNotWaitedForMuchLongerThanWritesTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		js := &elected{far: far{takes: ms}}
		b := New(js, Config{Name: "b"})
		put := func(limit, took time.Duration, want, not error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			_, err := b.UpdateSoon(ctx, "key", nil, 1)
			if !errors.Is(err, want) || not != nil && errors.Is(err, not) || time.Since(began) != took {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(began), want, took)
			}
		}
		away := func(d time.Duration) { js.leads = time.Now().Add(d) }
		put(time.Second, 2*ms, nil, nil) // it opens the bucket first
		away(time.Hour)
		put(time.Second, 200*ms, ErrSilent, nil)
		put(time.Second, 400*ms, ErrSilent, nil) // writes may be slow: the next one gets more time
		put(time.Second, 800*ms, ErrSilent, nil)
		put(900*ms, 900*ms, context.DeadlineExceeded, ErrSilent)
		put(2*time.Second, time.Second, ErrSilent, nil)
		put(2*time.Second, time.Second, ErrSilent, nil) // and no more: they may be lost
		away(0)
		for range 100 {
			put(time.Second, ms, nil, nil)
		}
		js.takes = 150 * ms
		put(time.Second, 150*ms, nil, nil)
		js.takes = 440 * ms // three times as long is usual
		put(time.Second, 440*ms, nil, nil)
		js.err = ErrRevision
		put(time.Second, 440*ms, ErrRevision, ErrSilent)
		put(100*ms, 100*ms, context.DeadlineExceeded, ErrSilent)
	})
}

// deaf is a JetStream that never answers what it was asked about a bucket before some time.
type deaf struct {
	far
	hears time.Time
	asks  atomic.Int64
}

func (d *deaf) Info(ctx context.Context, bucket string) (Info, error) {
	d.asks.Add(1)
	if time.Now().Before(d.hears) {
		<-ctx.Done()
		return Info{}, ctx.Err()
	}
	return d.far.Info(ctx, bucket)
}

// An attempt to open a bucket has time for many requests, so that one that is lost must not take all of it.
func TestABucketIsOpenedSoonAfterWhatWasAskedFirstIsLost(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		lost, takes, took time.Duration // what was asked in the first while; how long answers take; until it is open
		asks              int64
		patient           bool
		fails             error
	}{
		"nothing is lost":                        {takes: ms, took: ms, asks: 1},
		"the first is lost":                      {lost: ms, takes: ms, took: 501 * ms, asks: 2},
		"the second, too":                        {lost: 600 * ms, takes: ms, took: 1501 * ms, asks: 3},
		"it is lost where JetStream is far away": {lost: ms, takes: 2700 * ms, took: 3200 * ms, asks: 3},
		"nobody waits for the bucket": {
			lost: ms, takes: ms, took: openTimeout, asks: 1, patient: true, fails: context.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				js := &deaf{far: far{takes: c.takes}, hears: began.Add(c.lost)}
				b := New(js, Config{Name: "b", Insist: !c.patient})
				for range 2 {
					b.latency.note(c.takes, nil)
				}
				err := b.Open(t.Context())
				if took := time.Since(began); !errors.Is(err, c.fails) || took != c.took || js.asks.Load() != c.asks {
					t.Errorf("%v after %v and %d asks, want %v after %v and %d", err, took, js.asks.Load(),
						c.fails, c.took, c.asks)
				}
			})
		})
	}
}
