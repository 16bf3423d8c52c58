package fleet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
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

// Honoured returns the revision of the bucket up to which this worker has read the settings: the strict tags of that
// revision are in force here. 0 means none.
func (s *Settings) Honoured() uint64 { return s.honoured.Load() }

// confirmFor is how long workers have for one answer, and confirmBy the part of a request's time that is kept for its
// own answer.
const (
	confirmFor = 300 * time.Millisecond
	confirmBy  = 250 * time.Millisecond
)

var errNoGuard = subjects.Errorf(subjects.BadRequest, "the order of a strict tag rests on the marks, which the guard "+
	"keeps, and a table alone may go back: start the workers with --guard on")

// SetOrder makes a tag, which need not exist, strict or loose. See worker.Settings.
func (s *Settings) SetOrder(ctx context.Context, tag string, strict bool, from time.Time) error {
	o := order{Order: subjects.OrderLoose}
	if strict {
		if o.Order = subjects.OrderStrict; !s.cfg.HasMarks {
			return errNoGuard
		}
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

// StrictFrom returns the time from which a tag that was loose is strict; the zero time if it always was, as far as is
// known.
func (s *Settings) StrictFrom(tag string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := order{}
	if e, ok := s.entries[orderPrefix+tag]; !ok || e.Removed || read(e.Value, &o) != nil || o.From == nil {
		return time.Time{}
	}
	return *o.From
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
		answers, err := s.ask(ctx, min(confirmFor, max(0, time.Until(deadline)-confirmBy)), live)
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
		select {
		case <-time.After(confirmFor / 10):
		case <-ctx.Done():
			return fmt.Errorf("%s is to be strict, and not all workers have confirmed it: %w", tag, ctx.Err())
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

// honour puts the strict tags that were read in force, unless another doubt began since the read began.
func (s *Settings) honour(read certainty) {
	s.ordering.Lock()
	defer s.ordering.Unlock()
	if read.doubts != s.doubts {
		s.isStale.Store(true)
		return
	}
	seq := s.now().seq
	s.cfg.SetStrict(s.strict())
	s.certain = read
	s.honoured.Store(seq)
}

// CatchUp ensures that all tags that were strict when it was called are in force on this worker.
//
// Law: the first range of a tag serves no request before CatchUp has returned. A strict tag is made strict before it
// is created, so every worker that could load from it reads that in CatchUp, however long its process or its network
// stood still.
func (s *Settings) CatchUp(ctx context.Context) error {
	if !s.cfg.HasMarks {
		return nil
	}
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
	s.honour(began)
	s.caughtUpAt = began.until
	return nil
}

// A certainty is the time until which this worker certainly knew which tags are strict. It is extended as long as the
// connection on which they were read is up: the command that makes a tag strict waits for all workers that are
// connected.
type certainty struct {
	until      time.Time // zero if they were never read
	reconnects uint64    // of the connection, when the tags were read
	doubts     int       // number of doubts at that time
	broken     bool      // it is no longer extended
	asked      uint64    // reconnects when a read of all settings was requested, if broken
}

// begin returns the certainty that a read which begins now will give.
func (s *Settings) begin() certainty {
	s.ordering.Lock()
	defer s.ordering.Unlock()
	return certainty{until: time.Now(), reconnects: s.cfg.Conn.Stats().Reconnects, doubts: s.doubts}
}

// inDoubt reports whether tags wait until the settings have been read.
func (s *Settings) inDoubt() bool {
	s.ordering.Lock()
	defer s.ordering.Unlock()
	return s.certain.doubts != s.doubts
}

// strict returns the strict tags. A tag whose order cannot be read counts as strict.
func (s *Settings) strict() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags := make(map[string]bool)
	for key, e := range s.entries {
		tag, ok := strings.CutPrefix(key, orderPrefix)
		if o := (order{}); ok && !e.Removed && (read(e.Value, &o) != nil || o.Order == subjects.OrderStrict) {
			tags[tag] = true
		}
	}
	return tags
}

const (
	// cutOff is how long a worker may stand still while a command that makes a tag strict still finds it: its
	// heartbeat lasts longer.
	cutOff = 5 * time.Second
	// certainFor is how long a worker that may have missed a change serves tags from memory.
	certainFor = subjects.HeldLoose
)

// watch keeps track of the certainty until ctx ends.
func (s *Settings) watch(ctx context.Context) {
	conn := s.cfg.Conn
	changes := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CONNECTED)
	defer conn.RemoveStatusListener(changes)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-changes:
		case <-ctx.Done():
			return
		}
		s.lookAt(time.Now(), conn.IsConnected(), conn.Stats().Reconnects)
	}
}

// lookAt extends the certainty while the connection is up. If the connection was lost, or the process stood still, it
// requests a read of all settings; until then loose tags are served from memory, for certainFor at most.
//
// Law: a worker serves a tag from memory as a loose one only if less than certainFor has passed since it certainly
// knew that the tag is loose. A change can miss the worker only after that moment, and takes effect
// [subjects.StrictAfter] later: by then every caller that the worker served has put its IDs to use.
func (s *Settings) lookAt(now time.Time, connected bool, reconnects uint64) {
	s.ordering.Lock()
	defer s.ordering.Unlock()
	if s.certain.until.IsZero() {
		return
	}
	age := since(s.certain.until, now)
	if connected && reconnects == s.certain.reconnects && age < cutOff && !s.certain.broken {
		s.certain.until = now
		return
	}
	if age >= certainFor && s.certain.doubts == s.doubts {
		s.doubts++
		s.cfg.Doubt()
		s.cfg.Log.Warn("whether tags have become strict could not be read for so long that requests for tags wait "+
			"until it can be", "for", age.Round(time.Second).String())
	}
	if s.certain.broken && s.certain.asked == reconnects {
		return
	}
	s.certain.broken, s.certain.asked = true, reconnects
	s.isStale.Store(true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// since returns the larger of the times passed by either clock: the monotonic one stands still while a machine is
// suspended.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
