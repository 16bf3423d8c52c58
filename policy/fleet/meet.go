package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/natsid/natsid/policy"
)

const (
	// meetFor is how long a worker that starts waits for others to write again what was lost. One that cannot write
	// must not keep it from serving for ever.
	meetFor = 10 * time.Second
	// meetAgain is the pause before they are asked again.
	meetAgain = confirmFor / 10
)

// meet reports, before the first read counts, whether a worker that answers has read the bucket to another revision
// than this read. It asks such workers to look again; then all is to be read again.
//
// The bucket may have been lost and made again, by this very process perhaps: who knows what it held writes that again
// once it looks, which otherwise is up to a poll later.
//
// Law: a worker that starts takes no tag for loose as long as one that answers knows better: each of them has read the
// bucket, and has written what it knew, before the read that counts ended. One that has not read any settings knows
// nothing, and is not waited for.
func (s *Settings) meet(ctx context.Context, revision uint64) (again bool, err error) {
	if s.read.Load() || s.cfg.Marks == nil || s.cfg.Marks.Level() == policy.LevelNone {
		return false, nil
	}
	live, _ := s.cfg.Live(ctx) // if they cannot be listed, those count that answer in time
	answers, err := s.ask(ctx, confirmFor, live)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return false, err
	}
	apart := func(a answer) bool { return a.honours != 0 && a.honours != revision }
	i := slices.IndexFunc(answers, apart)
	if i < 0 {
		return false, nil
	}
	s.mu.Lock()
	if s.met.IsZero() {
		s.met = time.Now().Add(meetFor)
	}
	late := time.Now().After(s.met)
	s.mu.Unlock()
	if late {
		s.cfg.Log.Warn("another worker does not read the settings of tags: if it knows of any that were lost, they "+
			"are not in force here; look at its log, and at `natsid tag list`", "worker", answers[i].instance)
		return false, nil
	}
	s.announce(orderPrefix) // who hears this reads all
	select {
	case <-time.After(meetAgain):
		return true, nil
	case <-ctx.Done():
		return false, errRestoring
	}
}
