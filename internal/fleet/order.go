package fleet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/subjects"

	"github.com/natsid/natsid/internal/jitter"
)

// An order is the value of a tag's key.
type order struct {
	Order string `json:"order,omitempty"`
	// From is the time from which a tag that was loose is strict, if all workers had confirmed in time; nil for other
	// tags.
	From *time.Time `json:"from,omitempty"`
}

// Valid reports whether operators can have set the order.
func (o order) Valid() bool {
	return o.Order == "" || o.Order == subjects.OrderLoose || o.Order == subjects.OrderStrict
}

// confirmFor is how long workers have for one answer, and confirmBy the part of a request's time that is kept for its
// own answer.
const (
	confirmFor = 300 * time.Millisecond
	confirmBy  = 250 * time.Millisecond
)

// SetOrder makes a tag, which need not exist, strict or loose. See worker.Settings.
func (s *Settings) SetOrder(ctx context.Context, tag string, strict bool, from time.Time) error {
	o := order{Order: subjects.OrderLoose}
	if strict {
		o.Order = subjects.OrderStrict
		if !from.IsZero() {
			o.From = &from
		}
	}
	revision, err := s.set(ctx, orderPrefix+tag, func(old []byte) ([]byte, error) {
		if was := (order{}); !strict && read(old, &was) == nil && was.Order != subjects.OrderStrict {
			return old, nil
		}
		return merge(old, o, "order", "from")
	})
	if err != nil || !strict {
		return err
	}
	return s.confirm(ctx, tag, revision)
}

// Reassert makes the tags that this worker knows as strict strict in the bucket, and reads all settings again. A
// bucket that was lost, or went back, may have them as loose.
//
// Law: a strict tag stays strict if one worker remembers it. Before the bucket is used again, each worker that had
// stopped has called Reassert, and each worker that starts has read the result.
func (s *Settings) Reassert(ctx context.Context) error {
	for tag := range s.strict() {
		_, err := s.set(ctx, orderPrefix+tag, func(old []byte) ([]byte, error) {
			if was := (order{}); read(old, &was) == nil && was.Order == subjects.OrderStrict {
				return old, nil
			}
			return merge(old, order{Order: subjects.OrderStrict}, "order", "from")
		})
		if err != nil {
			return fmt.Errorf("fleet: tag %s cannot be made strict again: %w", tag, err)
		}
	}
	return s.Reread(ctx)
}

// confirm waits until all workers that answer or are live honour the order of a tag. Its error names those that do
// not.
func (s *Settings) confirm(ctx context.Context, tag string, revision uint64) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(readTimeout)
	}
	for {
		live, err := s.cfg.Live(ctx)
		if err != nil {
			return fmt.Errorf("%s is to be strict, but the workers cannot be listed: %w", tag, err)
		}
		answers, err := s.count.ask(ctx, min(confirmFor, max(0, time.Until(deadline)-confirmBy)), live)
		if err != nil {
			return fmt.Errorf("%s is to be strict, but the workers cannot be asked: %w", tag, err)
		}
		missing := unconfirmed(answers, live, revision)
		if len(missing) == 0 {
			return nil
		}
		if time.Until(deadline) < confirmBy+confirmFor/10 {
			return subjects.Errorf(subjects.Unavailable, "tag %s is to be strict, and is not yet: no confirmation "+
				"from %.200s; repeat this once they answer, or once they are stopped and their heartbeats have expired",
				tag, printable(strings.Join(missing, ", ")))
		}
		s.announce(orderPrefix + tag)
		if err := jitter.Sleep(ctx, confirmFor/10); err != nil {
			return fmt.Errorf("%s is to be strict, and not all workers have confirmed it: %w", tag, err)
		}
	}
}

// unconfirmed returns the names of the workers that answer or are live, and do not honour a revision.
func unconfirmed(answers []answer, live []string, revision uint64) (names []string) {
	names = slices.Clone(live)
	for _, a := range answers {
		names = slices.DeleteFunc(names, func(name string) bool { return name == a.instance })
	}
	for _, a := range answers {
		if a.honours < revision {
			names = append(names, a.instance)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = strconv.Quote(name)
	}
	return slices.Compact(names)
}

// CatchUp ensures that all tags that were strict when it was called are in force on this worker.
//
// Law: the first range of a tag serves no request before CatchUp has returned. A strict tag is made strict before it
// is created, so every worker that could load from it reads that in CatchUp, however long its process or its network
// stood still.
func (s *Settings) CatchUp(ctx context.Context) error {
	if err := s.catchUp(ctx); err != nil {
		return fmt.Errorf("which tags are strict cannot be read: %w", err)
	}
	return nil
}

// catchUp reads the settings that have changed, unless another call has read them since this one was made.
func (s *Settings) catchUp(ctx context.Context) error {
	called := time.Now()
	s.catching.Lock()
	defer s.catching.Unlock()
	if s.caughtUpAt.After(called) {
		return nil
	}
	began := s.begin()
	if err := s.readOn(ctx, s.now(), 0); err != nil {
		return err
	}
	s.honour(began, &s.entries)
	s.caughtUpAt = began.until
	return nil
}
