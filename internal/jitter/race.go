package jitter

import (
	"context"
	"fmt"
	"time"
)

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
