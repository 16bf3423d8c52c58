package buckets

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A latency estimates how long JetStream takes to answer. The zero value knows nothing. It is safe for concurrent use.
type latency struct {
	mu   sync.Mutex
	last time.Duration // time of the last request
	// about is the estimate: an answer sets it to the lower of the last two times, but lowers it by an eighth at most.
	// It does not grow while JetStream is away.
	about      time.Duration
	unanswered bool // the last request timed out
	// patience is how long a write is waited for: three times the slowest, less a sixteenth with each answer. A write
	// without answer doubles it, up to mostSilent: all writes may be slow now.
	patience time.Duration
}

func (l *latency) note(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, ErrNoAnswer), errors.Is(err, errLost),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed):
		return // such an outcome does not count
	case errors.Is(err, context.DeadlineExceeded):
		l.unanswered = true
	default:
		l.about, l.unanswered = max(min(took, l.last), l.about-l.about/8), false
	}
	l.last = took
}

// timed calls f, and notes how long an answer took.
func timed[T any](l *latency, f func() (T, error)) (T, error) {
	began := time.Now()
	v, err := f()
	l.note(time.Since(began), err)
	return v, err
}

// enough is [Bucket.Enough].
func (l *latency) enough(requests int, least time.Duration) time.Duration {
	const margin = 1.25
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(least, time.Duration(float64(requests)*margin*float64(l.about)))
}

const (
	// slow times the usual time of an answer is the shortest wait for a read or write.
	slow = 3
	// askAgain is the shortest wait before an unanswered read is repeated.
	askAgain = 100 * time.Millisecond
	// mostSilent bounds the wait for a write after writes without answer: it may be lost, not late.
	mostSilent = time.Second
)

// forRead returns the wait before an unanswered read is repeated.
func (l *latency) forRead() time.Duration { return l.enough(slow, askAgain) }

// forWrite returns how long to wait for a write, and a func that must be called with the time that its answer took or,
// without an answer, with the time waited.
func (l *latency) forWrite() (patience time.Duration, ended func(after time.Duration, answered bool)) {
	l.mu.Lock()
	patience = max(2*askAgain, l.patience)
	l.mu.Unlock()
	return l.enough(slow, patience), func(after time.Duration, answered bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if answered {
			l.patience = max(slow*after, l.patience-l.patience/16)
		} else {
			l.patience = max(l.patience, min(2*after, mostSilent))
		}
	}
}
