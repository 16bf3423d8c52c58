// Package jitter makes random pauses, so that workers that failed at one moment do not all retry at one moment.
package jitter

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Source returns a random number in [0, 1), and is safe for concurrent use. A simulation replaces Source by a function
// of its virtual time, before it starts anything, so that a seed decides each pause.
var Source = rand.Float64

// UpTo returns a random time in [0, d).
func UpTo(d time.Duration) time.Duration { return time.Duration(Source() * float64(d)) }

// Around returns a random time of half of d to one and a half of d.
func Around(d time.Duration) time.Duration { return d/2 + UpTo(d) }

// A Backoff is an endless sequence of pauses: each is 1.5 times as long as the one before, up to a bound, and each is
// multiplied by a random factor of 0.5 to 1.5. It implements [backoff.BackOff]. It is not safe for concurrent use.
type Backoff struct{ first, longest, next time.Duration }

var _ backoff.BackOff = (*Backoff)(nil)

// NewBackoff returns pauses that grow from about first to about longest.
func NewBackoff(first, longest time.Duration) *Backoff { return &Backoff{first, longest, first} }

// NextBackOff returns the next pause.
func (b *Backoff) NextBackOff() time.Duration {
	pause := b.next
	b.next = min(pause+pause/2, b.longest)
	return Around(pause)
}

// Reset starts over with the first pause.
func (b *Backoff) Reset() { b.next = b.first }

// Sleep returns nil after d, or the error of ctx if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return ctx.Err() // ctx may have ended at the same moment
	case <-ctx.Done():
		return ctx.Err()
	}
}
