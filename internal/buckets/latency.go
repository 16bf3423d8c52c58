package buckets

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A latency is how long JetStream takes to answer a request, about: the most that two requests in a row have shown, of
// which the second was answered, so that it does not grow while JetStream is away. It falls by an eighth with each
// faster answer.
type latency struct {
	mu         sync.Mutex
	last       time.Duration // of the last request
	about      time.Duration
	unanswered bool // the last request
}

func (l *latency) note(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, ErrNoAnswer), errors.Is(err, errLost),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed):
		return // that says nothing
	case errors.Is(err, context.DeadlineExceeded):
		l.unanswered = true
	default:
		l.about, l.unanswered = max(min(took, l.last), l.about-l.about/8), false
	}
	l.last = took
}

// Measure asks JetStream for something, with more patience than other calls, if it left the last one unanswered: the
// next ones may need more time, see Enough.
func (b *Bucket) Measure(ctx context.Context) {
	b.latency.mu.Lock()
	unanswered := b.latency.unanswered
	b.latency.mu.Unlock()
	if !unanswered {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	_, _ = b.Time(ctx) // the time that it took is noted
}

// timed returns f, which notes how long an answer took.
func timed[T any](b *Bucket, f func() (T, error)) func() (T, error) {
	return func() (T, error) {
		began := time.Now()
		v, err := f()
		b.latency.note(time.Since(began), err)
		return v, err
	}
}

// Enough returns the time within which so many requests, one after the other, should be answered: least, or more where
// JetStream is far away.
func (b *Bucket) Enough(requests int, least time.Duration) time.Duration {
	const margin = 1.25
	b.latency.mu.Lock()
	defer b.latency.mu.Unlock()
	return max(least, time.Duration(float64(requests)*margin*float64(b.latency.about)))
}
