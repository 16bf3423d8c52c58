package fleet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/policy"
	"github.com/natsid/natsid/subjects"
)

// An order is the value of a tag's key.
type order struct {
	Order string `json:"order,omitempty"`
}

// Valid reports whether operators can have set the order.
func (o order) Valid() bool {
	return o.Order == "" || o.Order == subjects.OrderLoose || o.Order == subjects.OrderStrict
}

// Honoured returns how far this worker has read the settings, as a revision of their bucket: the strict tags of then
// are in force here. 0 is not at all.
func (s *Settings) Honoured() uint64 { return s.honoured.Load() }

// confirmFor is how long workers have for one answer, and confirmBy what is left of a request's time for its own.
const (
	confirmFor = 300 * time.Millisecond
	confirmBy  = 250 * time.Millisecond
)

var errNoGuard = subjects.Errorf(subjects.BadRequest, "the order of a strict tag rests on the marks, which the guard "+
	"keeps, and a table alone may go back: start the workers with --guard on")

// SetOrder makes a tag, which need not exist, strict or loose. See worker.Settings.
func (s *Settings) SetOrder(ctx context.Context, tag string, strict bool) error {
	o := order{subjects.OrderLoose}
	if strict {
		if o.Order = subjects.OrderStrict; s.cfg.Marks == nil {
			return errNoGuard
		}
	}
	revision, err := s.set(ctx, orderPrefix+tag, policy.LevelOrder, func(old []byte) ([]byte, error) {
		return merge(old, o, "order")
	})
	if err != nil || !strict {
		return err
	}
	return s.confirm(ctx, tag, revision)
}

// confirm waits until all workers that are found honour the order of a tag, and names those that do not.
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
			return err
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
		time.Sleep(confirmFor / 10)
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

// honour puts the strict tags that were read in force, unless there was another doubt since.
func (s *Settings) honour(doubts int) {
	strict, seq := s.strict(), s.seq.Load()
	s.ordering.Lock()
	defer s.ordering.Unlock()
	if doubts != s.doubts {
		s.again.Store(true)
		return
	}
	s.cfg.SetStrict(strict)
	s.sure = doubts
	s.honoured.Store(seq)
}

// inDoubt reports whether tags wait until the settings have been read.
func (s *Settings) inDoubt() bool {
	s.ordering.Lock()
	defer s.ordering.Unlock()
	return s.sure != s.doubts
}

// strict returns the tags that are strict. One whose order cannot be read is.
func (s *Settings) strict() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags := make(map[string]bool)
	for key, e := range s.entries {
		tag, ok := strings.CutPrefix(key, orderPrefix)
		if o := (order{}); ok && (read(e.Value, &o) != nil || o.Order == subjects.OrderStrict) {
			tags[tag] = true
		}
	}
	return tags
}

func (s *Settings) doubted() int {
	s.ordering.Lock()
	defer s.ordering.Unlock()
	return s.doubts
}

// cutOff is how long a worker may be disconnected, and still be found by who makes a tag strict: its heartbeat lasts.
const cutOff = 5 * time.Second

// watch lets this worker doubt, when it reconnects, that it knows which tags are strict: if some are, as far as it
// knows, or if it was away for so long that nobody waited for it to hear of the first one.
func (s *Settings) watch(ctx context.Context) {
	conn := s.cfg.Conn
	changes := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CONNECTED)
	defer conn.RemoveStatusListener(changes)
	var lost time.Time // zero while connected
	for {
		select {
		case now := <-changes:
			switch {
			case now != nats.CONNECTED && lost.IsZero():
				lost = time.Now()
			case now == nats.CONNECTED && !lost.IsZero():
				if s.ordered() || time.Since(lost) > cutOff {
					s.doubt()
				}
				lost = time.Time{}
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *Settings) ordered() bool {
	return s.cfg.Marks != nil && s.cfg.Marks.Level() >= policy.LevelOrder
}

// doubt lets all tags wait until all settings have been read.
func (s *Settings) doubt() {
	s.cfg.Log.Info("reconnected to NATS; requests for tags wait until it is read which of them are strict")
	s.ordering.Lock()
	s.doubts++
	s.cfg.Doubt()
	s.ordering.Unlock()
	s.again.Store(true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
