package buckets

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// sound describes a bucket b that can be relied on.
func sound(replicas int) Info {
	return Info{StreamConfig: jetstream.StreamConfig{Subjects: []string{"$KV.b.>"}, Replicas: replicas}}
}

// fake is a JetStream that answers the first request of an attempt after wait:
// with err, or with a bucket if err is nil.
type fake struct {
	Streams
	wait     time.Duration
	err      error
	refused  error // of a write
	attempts int
}

func (f *fake) Info(ctx context.Context, _ string) (Info, error) {
	f.attempts++
	select {
	case <-time.After(f.wait):
		return sound(1), f.err
	case <-ctx.Done():
		return Info{}, ctx.Err()
	}
}

func (f *fake) Publish(context.Context, string, string, Write) (uint64, error) { return 1, f.refused }

// callers runs n calls at once, each with a timeout, and returns how many
// succeeded.
func callers(b *Bucket, n int, timeout time.Duration) (ok int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			if err := b.Purge(ctx, "key"); err == nil {
				mu.Lock()
				ok++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return ok
}

func TestABucketIsOpenedByTheFirstCallThatCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		js := &fake{err: away}
		b := New(js, Config{Name: "b"})
		if b.Trouble() == nil {
			t.Error("open before any call")
		}
		for tries := range 3 {
			err := b.Open(t.Context())
			if !errors.Is(err, away) || !errors.Is(b.Trouble(), away) || js.attempts != tries+1 {
				t.Errorf("call %d: %v, trouble %v, %d attempts", tries, err, b.Trouble(), js.attempts)
			}
		}
		js.err = nil
		for range 3 {
			if err := b.Purge(t.Context(), "key"); err != nil || b.Trouble() != nil || js.attempts != 4 {
				t.Errorf("when it can be opened: %v, trouble %v, %d attempts", err, b.Trouble(), js.attempts)
			}
		}
	})
}

func TestConcurrentCallsShareOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js := &fake{err: errors.New("away"), wait: time.Second}
		b := New(js, Config{Name: "b"})
		if ok := callers(b, 100, time.Minute); ok != 0 || js.attempts != 1 {
			t.Errorf("%d succeeded, %d attempts", ok, js.attempts)
		}
		js.err = nil
		if ok := callers(b, 100, time.Minute); ok != 100 || js.attempts != 2 {
			t.Errorf("%d succeeded, %d attempts", ok, js.attempts)
		}
	})
}

func TestACallEndsWithItsContextAndTheAttemptContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js := &fake{wait: 2 * time.Second}
		b := New(js, Config{Name: "b"})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Purge(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if ok := callers(b, 1, time.Minute); ok != 1 || js.attempts != 1 || time.Since(start) != 2*time.Second {
			t.Errorf("%d succeeded, %d attempts, after %v", ok, js.attempts, time.Since(start))
		}
	})
}

func TestAnAttemptWithoutAnAnswerTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js := &fake{wait: time.Hour}
		b := New(js, Config{Name: "b"})
		if ok := callers(b, 1, time.Minute); ok != 0 {
			t.Error("open without an answer")
		}
		js.wait = 0
		if ok := callers(b, 1, time.Minute); ok != 1 || js.attempts != 2 {
			t.Errorf("%d succeeded, %d attempts", ok, js.attempts)
		}
	})
}

func TestACallThatFindsNoBucketTwiceFailsThoughAnotherOpensIt(t *testing.T) {
	js := &fake{refused: ErrNoBucket}
	var b *Bucket
	b = New(js, Config{Name: "b", Lost: func() {
		if err := b.Open(t.Context()); err != nil { // another call does, at this moment
			t.Error(err)
		}
	}})
	if err := b.Purge(t.Context(), "key"); !errors.Is(err, ErrNoBucket) {
		t.Errorf("%v, want an error: nothing was written", err)
	}
}

// wiped is a JetStream that has lost its streams, and makes new ones.
type wiped struct {
	Streams
	there    bool
	revision uint64 // of the next write
	firstSeq uint64 // of the last stream made
}

func (w *wiped) Info(context.Context, string) (Info, error) {
	if !w.there {
		return Info{}, ErrNoBucket
	}
	return sound(1), nil
}

func (w *wiped) Make(_ context.Context, c jetstream.StreamConfig) error {
	w.there, w.firstSeq, w.revision = true, c.FirstSeq, c.FirstSeq
	return nil
}

func (w *wiped) Publish(context.Context, string, string, Write) (uint64, error) {
	if !w.there {
		return 0, ErrNoAnswer
	}
	return w.revision, nil
}

// The worker that creates a bucket again may have a clock that is an hour behind.
func TestRevisionsOfABucketCreatedAgainLieAboveThoseSeenWhateverTheClock(t *testing.T) {
	js := new(wiped)
	b := New(js, Config{Name: "b"})
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	_, err := b.Put(t.Context(), "key", nil)
	if err != nil || js.firstSeq < uint64(time.Now().Add(-time.Minute).UnixMicro()) {
		t.Fatalf("first revision %d, %v, want the Unix time in microseconds", js.firstSeq, err)
	}
	js.revision = ahead // written by a worker whose clock is right
	if _, err := b.Put(t.Context(), "key", nil); err != nil {
		t.Fatal(err)
	}
	js.there = false
	if _, err := b.Put(t.Context(), "key", nil); err != nil || js.firstSeq <= ahead {
		t.Errorf("created again from revision %d, %v, want above %d", js.firstSeq, err, ahead)
	}
}
