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
	// about is the estimate: the lower of the last two times, lowered by an eighth per answer at most. Requests without
	// an answer do not change it.
	about      time.Duration
	unanswered bool // the last request timed out
	// patience is the timeout of a write: three times the slowest, lowered by a sixteenth with each answer. A write
	// without an answer doubles it, up to mostSilent, since all writes may be slow now.
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
	// slow times the usual latency is the shortest timeout of a read or write.
	slow = 3
	// askAgain is the shortest wait before an unanswered read is repeated.
	askAgain = 100 * time.Millisecond
	// mostSilent bounds the timeout of a write, however many had no answer: after it the write counts as lost, not
	// late.
	mostSilent = time.Second
)

// forRead returns the wait before an unanswered read is repeated.
func (l *latency) forRead() time.Duration { return l.enough(slow, askAgain) }

// forWrite returns the timeout of a write, and a func to call when the write ends: with the time that its answer took
// or, without an answer, the time waited.
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
