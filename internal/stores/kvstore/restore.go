package kvstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

// wentBack stops the registry if the mark of a tag is below what this worker had loaded, and returns why nothing is
// loaded.
//
// Law: the entry that proves it stays as it is. So whoever is killed before the registry knows of it proves it again.
func (s *Store) wentBack(ctx context.Context, tag string, was state, floor int64) error {
	if err := s.confirm(ctx, tag, was); err != nil {
		return err
	}
	why := fmt.Sprintf("the mark of tag %s was %d, and this worker had loaded up to %d", tag, was.Mark, floor)
	s.cfg.WentBack(why, floor-was.Mark)
	return errors.New("kvstore: " + why)
}

// Marks implements [lineage.Tags].
func (s *Store) Marks(ctx context.Context) (tags []segment.Tag, err error) {
	all, _, _, err := s.marks(ctx)
	for name, t := range all {
		tags = append(tags, t.asListed(name))
	}
	return tags, err
}

// Confirm implements [lineage.Tags].
func (s *Store) Confirm(ctx context.Context, tag string) (segment.Tag, error) {
	was, err := s.readMark(ctx, tag)
	if err == nil && was.isMissing() {
		err = segment.ErrUnknownTag
	}
	if err == nil {
		err = s.confirm(ctx, tag, was)
	}
	return was.tag(tag), wrap(tag, err)
}

// confirm writes an entry as it was read. Where there is none, it writes one that is read as the same.
func (s *Store) confirm(ctx context.Context, tag string, was state) (err error) {
	if was.isMissing() {
		_, err = s.kv.Create(ctx, tag, entry{Mark: 1}.encode())
		return err
	}
	w := segment.Write{
		How: segment.ByRestore, Before: was.raw, After: was.raw, Read: was.kve.Revision, Replaced: was.kve.Created,
	}
	w.Written, err = s.kv.Update(ctx, tag, was.kve.Value, was.kve.Revision)
	s.wrote(tag, w, written(err))
	return err
}

// Restore implements [lineage.Tags].
func (s *Store) Restore(ctx context.Context, tag string, f segment.Floor) error {
	return wrap(tag, jitter.Race(ctx, isOvertaken, func() (uint64, error) {
		was, err := s.readMark(ctx, tag)
		if err != nil {
			return 0, err
		}
		if was.isMissing() {
			return 0, s.writeAgain(ctx, tag, f)
		}
		e := was.entry
		isMade := e.First && e.Rules == segment.Rules{}
		switch {
		case e.Disabled:
			return 0, nil
		case isMade && *f.Rules != segment.Rules{}: //mutant:first-use
			e.Rules, e.First = *f.Rules, false
			if e.Least = e.Mark; e.Rules.Bounded() {
				e.Mark, e.Least, e.Era = f.End, 0, f.Era
			}
		case (e.Rules.Bounded() || e.undecided) && e.Mark < f.End: //mutant:lift
			e.Mark = f.End
		default:
			return 0, nil
		}
		_, err = s.replace(ctx, tag, segment.ByRestore, was, e)
		return was.kve.Revision, err
	}))
}

// writeAgain writes the entry of a tag that the bucket lacks: with the mark up to which this worker loaded the tag, in
// the era in which it did.
func (s *Store) writeAgain(ctx context.Context, tag string, f segment.Floor) (err error) {
	try := attempt.New(0, "")
	e := entry{Mark: f.End, Step: f.Step, Rules: *f.Rules, Era: f.Era, Tokens: try.Tokens()}
	w := segment.Write{How: segment.ByRestore, After: e.Mark}
	w.Written, err = s.kv.CreateFirst(ctx, tag, e.encode())
	if errors.Is(err, buckets.ErrKeyRemoved) {
		return nil
	}
	s.wrote(tag, w, written(err))
	return err
}

// turns are the undecided tags that were met, so that they go on by themselves in a later period. The zero value is
// ready to use.
type turns struct {
	mu  sync.Mutex
	met map[met]sight
}

// met is a tag in an era in which it was undecided, with its rules.
type met struct {
	tag, era string
	rules    segment.Rules
}

// A sight is when it was met first by a sure clock that was not set since.
type sight struct {
	begins int64         // the lowest ID of that period
	at     time.Time     // by that clock
	uptime time.Duration // by one that cannot be set
}

// clocksApart is by how much clocks that are compared may differ, amply.
const clocksApart = time.Minute

// hasTurned decides an undecided entry where a period has begun by a sure clock that cannot have begun before the
// registry was resumed, and reports whether it did.
//
// Law: the entry was met undecided, thus after the resume, in another period by this clock, and a minute later, too. So
// no worker can have loaded an ID of the later period in the history that was lost. A clock that was set since may have
// been wrong then: the entry is met anew.
func (t *turns) hasTurned(tag string, e *entry, clock segment.Clock, uptime time.Duration) bool {
	now, isSure := clock()
	if e.Rules.Period == "" || !isSure {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key, begins := met{tag, e.present, e.Rules}, e.Rules.Begins(now)
	first, known := t.met[key]
	wasSet := (now.Sub(first.at) - (uptime - first.uptime)).Abs() > clocksApart
	switch {
	case !known || wasSet:
		if t.met == nil {
			t.met = make(map[met]sight)
		}
		t.met[key] = sight{e.Rules.Begins(now.Add(clocksApart)), now, uptime}
		return false
	case begins <= first.begins || begins <= e.Mark: //mutant:turned
		return false
	}
	e.Mark, e.Era, e.undecided = begins, e.present, false
	return true
}
