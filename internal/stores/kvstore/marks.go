package kvstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

// Mark implements [segment.Marks].
func (s *Store) Mark(ctx context.Context, tag string) (segment.Mark, error) {
	kve, e, err := s.readAny(ctx, tag)
	if errors.Is(err, segment.ErrUnknownTag) {
		return segment.Mark{}, nil
	}
	if err != nil {
		return segment.Mark{}, wrap(tag, err)
	}
	return e.mark(kve), nil
}

// SetMark implements [segment.Marks].
func (s *Store) SetMark(ctx context.Context, tag string, m segment.Mark) (revision uint64, err error) {
	if err := s.refusedFor(tag); err != nil {
		return 0, err
	}
	e := entry{
		Mark: m.High, Seen: m.Seen, Least: m.Least,
		Step: max(1, m.Step), Description: m.Description, Disabled: m.Disabled, Tokens: attempt.Tokens(m.Tokens),
		Record: m.Record, Rules: m.Rules,
	}
	if m.Revision == 0 {
		revision, err = s.kv.Create(ctx, tag, e.encode()) //mutant:first-mark
	} else {
		revision, err = s.kv.Update(ctx, tag, e.encode(), m.Revision)
	}
	if isOvertaken(err) {
		return 0, segment.ErrMarkMoved
	}
	if errors.Is(err, buckets.ErrInvalidKey) {
		return 0, segment.ErrInvalid
	}
	return revision, wrap(tag, err)
}

// AllMarks implements [segment.Marks]. A damaged entry has no mark that could be raised; loads of the tag name it.
func (s *Store) AllMarks(ctx context.Context) (map[string]segment.Mark, error) {
	if err := s.ids.refused(); err != nil {
		return nil, err
	}
	all, _, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return nil, fmt.Errorf("kvstore: list: %w", err)
	}
	marks := make(map[string]segment.Mark, len(all))
	for tag, kve := range all {
		e, err := decode(s.cfg.Bucket, kve)
		if err != nil {
			continue
		}
		marks[tag] = e.mark(kve)
	}
	return marks, nil
}
