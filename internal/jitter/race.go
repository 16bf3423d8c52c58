package jitter

import (
	"context"
	"fmt"
	"time"
)

const (
	// closeRounds is how many lost rounds are followed by short pauses. Of two workers each wins a third of the rounds
	// at least, so one in ten million loses so many in a row.
	closeRounds = 40
	leastPause  = 500 * time.Microsecond
	mostPause   = 20 * time.Millisecond
)

// Race calls try, which reads an entry and replaces it by compare-and-set, until overtaken returns false for its error,
// or ctx ends. try returns the revision that it has read.
//
// The winner of a round may begin the next at once, and then writes a round trip after the entry has changed. A loser
// that reads the new entry before that can win. So it pauses for as long as its try took at most, which is two round
// trips. With the growing pauses of a [Backoff] one of two won nearly all rounds, and where a write takes 20 ms the
// other waited for up to 8 s. A loser of many rounds races with many others, and pauses for longer.
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
