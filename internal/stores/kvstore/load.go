package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

// load loads as many IDs as wanted returns, which is called with the step before each compare-and-set.
//
// Law: where that has no answer soon, what it may have reserved is kept, and the entry is read again. That read decides
// what became of it, by its token, as it would in the tag's next load: see [attempt.Ranges].
func (s *Store) load(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (l segment.Loaded, err error) {
	err = jitter.Race(ctx, again, func() (uint64, error) {
		l, err = s.tryLoad(ctx, tag, floor, strict, wanted)
		return l.Write.Read, err
	})
	if err != nil {
		return segment.Loaded{}, wrap(tag, err)
	}
	return l, nil
}

func (s *Store) tryLoad(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (segment.Loaded, error) {
	kve, e, err := s.read(ctx, tag) //mutant:load-read
	//mutant:disabled
	if err == nil && e.Disabled {
		err = segment.ErrDisabled
	}
	if err != nil {
		return segment.Loaded{}, err
	}
	n := wanted(e.Rules.Step(e.Step))
	if err := ctx.Err(); err != nil { // as when another worker is to load: what is kept stays
		return segment.Loaded{}, err
	}
	lowest, limit, err := e.Rules.Window(max(e.Mark, e.Least, floor), strict, s.cfg.Clock)
	if err != nil {
		return segment.Loaded{}, err
	}
	//mutant:marks-floor
	l, reserved, err := s.kept.Next(tag, attempt.View{
		Revision: kve.Revision, Written: kve.Created, Tokens: e.Tokens, Mark: e.Mark,
		Lowest: max(floor, e.Least, lowest), Limit: limit, Strict: strict,
	}, n)
	loaded := segment.Loaded{Range: l.Range, Step: e.Step, Least: e.Least, Rules: e.Rules, Write: l.Write}
	if err != nil || reserved {
		return loaded, err
	}
	mark := e.Mark
	e.Mark, e.Tokens = l.End, l.Tokens()
	e.Record.Load(time.Now(), l.Len())
	loaded.Write.Written, err = s.kv.UpdateSoon(ctx, tag, e.encode(), kve.Revision) //mutant:load-write
	switch {
	case err == nil && mark < floor: // that mark was the present one, since the write that replaced it was acknowledged
		s.cfg.WentBack(fmt.Sprintf("the mark of tag %s was %d, and this worker had loaded up to %d", tag, mark, floor))
	case isOvertaken(err):
		s.kept.Refused(tag, l)
	case err != nil:
		s.keep(tag, l)
	}
	return loaded, err //mutant:loaded
}

// keep keeps the range of a load that may have landed.
func (s *Store) keep(tag string, l attempt.Load) {
	s.kept.Keep(tag, l)
	if !l.Again() {
		s.cfg.Wrote(tag, l.Write)
	}
}

// again reports whether a write that ended with err is tried again: another worker's came first, or it has no answer
// yet.
func again(err error) bool { return isOvertaken(err) || errors.Is(err, buckets.ErrSilent) }
