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
	last time.Duration // of the last request
	// about is the most that two requests in a row took, of which the second was answered, so that it does not grow
	// while JetStream is away. It falls by an eighth with each faster answer.
	about      time.Duration
	unanswered bool // the last request
	// patience is three times what the slowest write took, and falls by a sixteenth with each answer. A write that has
	// no answer doubles it: all may be slow now.
	patience time.Duration
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
	// slow is how many times what answers take a read or write is waited for, at least.
	slow = 3
	// askAgain is how long a read is waited for, at least, until it is asked again.
	askAgain = 100 * time.Millisecond
	// mostSilent bounds how long a write is waited for because those before had no answer: it may be lost, not late.
	mostSilent = time.Second
)

// forRead returns how long a read is waited for until it is asked again.
func (l *latency) forRead() time.Duration { return l.enough(slow, askAgain) }

// forWrite returns how long a write is waited for, and a func that must be called with how long it took, or with how
// long it was waited for in vain.
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
