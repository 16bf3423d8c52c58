package kvstore

import (
	"context"
	"errors"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// Load implements [segment.Store].
func (s *Store) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	return s.load(ctx, tag, floor, false, func(step int64) int64 { return max(n, step) })
}

// LoadStrict implements [segment.Store]. The order of IDs rests on the marks alone, since a table may lose commits.
func (s *Store) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (l segment.Loaded, err error) {
	return s.load(ctx, tag, floor, true, func(int64) int64 { return join() })
}

// load reserves as many IDs as wanted returns. It calls wanted with the tag's step before each compare-and-set.
//
// Law: if a compare-and-set gets no answer in time, its range is kept for the next attempt, and load reads the entry
// again. The token in the entry shows whether the write landed: see [keeper].
func (s *Store) load(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (l segment.Loaded, err error) {
	err = jitter.Race(ctx, again, func() (uint64, error) {
		l, err = s.tryLoad(ctx, tag, floor, strict, wanted)
		return l.Read, err
	})
	if err != nil {
		l.Range = segment.Range{}
	}
	return l, wrap(tag, err)
}

func (s *Store) tryLoad(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (segment.Loaded, error) {
	was, err := s.read(ctx, tag) //mutant:load-read
	//mutant:disabled
	if err == nil && was.Disabled {
		err = segment.ErrDisabled
	}
	if err == nil {
		err = was.servable()
	}
	if err != nil {
		return segment.Loaded{}, err
	}
	if was.Rules.Strict && !strict { //mutant:order
		return segment.Loaded{
			Step: max(1, was.now().Step), Least: was.Least, Rules: was.Rules, Era: was.Era,
		}, segment.ErrStrict
	}
	if was.row != nil {
		s.setbacks.check(tag, was, was.raises)
	}
	if (segment.Floor{End: floor}).Above(was.entry.tag(tag, was.kve.Created)) > 0 { //mutant:load-low
		return segment.Loaded{}, s.wentBack(ctx, tag, was, floor)
	}
	if was.undecided {
		return segment.Loaded{}, segment.ErrUndecided
	}
	e := was.now()
	n := wanted(e.Rules.Step(e.Step))
	if err := ctx.Err(); err != nil { // wanted may end it: another worker is to load
		return segment.Loaded{}, err
	}
	//mutant:marks-floor
	least := max(e.Seen, e.Least, floor) // up to Seen, Leaf may have taken IDs of a kept range
	lowest, limit, err := e.Rules.Window(max(e.Mark, least), s.cfg.Clock)
	if err != nil {
		return segment.Loaded{}, err
	}
	l, reserved, err := s.kept.next(tag, view{
		revision: was.kve.Revision, token: e.Token, mark: e.Mark,
		lowest: max(least, lowest), limit: min(limit, s.limit()), strict: strict, era: e.Era,
	}, n)
	if err != nil {
		return segment.Loaded{}, err
	}
	//mutant:reserve
	if !reserved {
		err = s.reserve(ctx, tag, was, l)
		l.acked = err == nil
	}
	if err == nil && s.cfg.Table != nil {
		err = s.advance(ctx, tag, l)
	}
	loaded := segment.Loaded{
		Range: l.Range, Step: e.Step, Least: e.Least, Rules: e.Rules, Era: e.Era,
		Read: was.kve.Revision,
	}
	return loaded, err //mutant:loaded
}

// reserve raises the tag's mark (its next ID) to the end of the range l. If that fails, the next load may use the
// range: see [keeper].
func (s *Store) reserve(ctx context.Context, tag string, was state, l reservation) error {
	e := was.now()
	e.Mark, e.Token = l.End, l.token
	s.sign(&e, was)
	write := s.write
	if was.kve.Revision > 0 {
		write = s.kv.UpdateSoon
	}
	_, err := write(ctx, tag, e.encode(), was.kve.Revision) //mutant:load-write
	switch {
	case isOvertaken(err):
		s.kept.lost(tag, l)
	case err != nil:
		s.kept.keep(tag, l)
	}
	s.raised(tag, was, l.End, written(err))
	return err
}

// advance raises the row's max_id to the end of a reserved range. If that fails, the range is kept, and the server may
// still execute the statement later. So a later load uses the range only if max_id is at most the range's start, and
// another UPDATE on that condition is acknowledged: of all UPDATEs that raise max_id from there, one succeeds. A
// max_id at the range's end proves nothing, since a Leaf node may have raised it.
func (s *Store) advance(ctx context.Context, tag string, l reservation) error {
	done, err := s.cfg.Table.Advance(ctx, tag, l.Start, l.End) //mutant:advance
	//mutant:advanced
	if err == nil && !done {
		err = errOvertaken
	}
	//mutant:confirmed
	if err != nil {
		s.kept.keep(tag, l)
		return err
	}
	s.setbacks.acknowledged(tag, l.End)
	return nil
}

// again reports whether a load whose write ended with err is to be repeated: another write came first, or the write has
// no answer yet.
func again(err error) bool { return isOvertaken(err) || errors.Is(err, buckets.ErrSilent) }

const (
	// loadRequests is how many requests to JetStream a load of an existing tag needs at most: it checks the marks,
	// reads one, and raises it.
	loadRequests = 6
	// maxLoad is the longest time limit of a load, enough where a round trip takes a second. It is also how long a load
	// waits if its answer is lost.
	maxLoad = 8 * time.Second
)

// Enough returns the time limit of a load: least, or a longer time if JetStream is slow.
func (s *Store) Enough(least time.Duration) time.Duration {
	return min(s.own.Enough(loadRequests, least), max(least, maxLoad))
}
