// Package jitter makes random pauses, so that workers that failed at one moment do not all retry at one moment.
package jitter

import (
	"context"
	"fmt"
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

const (
	// closeRounds is how many lost rounds are followed by short pauses; after that the pauses grow. Of two workers
	// each wins at least a third of the rounds, so one loses 40 in a row with a probability of 10^-7.
	closeRounds = 40
	leastPause  = 500 * time.Microsecond
	mostPause   = 20 * time.Millisecond
)

// Race calls try, which reads an entry and replaces it by compare-and-set, until overtaken returns false for try's
// error, or ctx ends. try returns the revision that it has read.
//
// A round is all tries, of all workers, that read one revision; one try wins. The pause after a lost round is random,
// and at most as long as the try took: so the loser can read the new entry before the winner replaces that entry, too.
// With the growing pauses of a [Backoff], one of two workers won nearly all rounds: where a write takes 20 ms, the
// other waited for up to 8 s. A worker that lost many rounds has many rivals, so its pauses grow.
func Race(ctx context.Context, overtaken func(error) bool, try func() (revision uint64, err error)) error {
	var (
		seen   uint64
		rounds int
		long   = NewBackoff(leastPause, mostPause)
	)
	for tries := 1; ; tries++ {
		began := time.Now()
		revision, err := try()
		if !overtaken(err) {
			if err != nil && tries > 1 {
				err = fmt.Errorf("%w; others were faster %d times", err, tries-1)
			}
			return err
		}
		if revision != seen {
			seen = revision
			rounds++
		}
		pause := UpTo(min(max(time.Since(began), leastPause), mostPause))
		if rounds > closeRounds {
			pause = long.NextBackOff()
		}
		if err := Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%w; others were faster %d times", err, tries)
		}
	}
}
