// Package fleet lets all workers follow one policy, kept beside the marks; it is internal to natsid and may change.
//
//	_natsid.s.tag.<tag>    the limit of a tag, as the JSON of a [policy.Limit]
//	_natsid.s.order.<tag>  the order of a tag's IDs: {"order":"strict"}, or "loose", the default; and when it began
//	_natsid.s.throttle     the limit of each tag: {"rate":500}
//
// These are keys in the bucket of the marks. So settings do not go back without the marks, and the detection for the
// marks covers the settings, too: this package has none.
//
// A change is a compare-and-set, then a message to all workers, which read the key again. A worker that misses the
// message finds the change at its next look: after a reconnect, and once per poll. A look asks the leader for the
// first setting written after the known ones, and so on: one request if nothing has changed, however many loads there
// were. A setting that cannot be read stays as it was.
//
// A worker that never read the settings loads no range: see [Settings.Known].
//
// # Strict tags
//
// A tag that is loose becomes strict while workers hold its IDs in memory. So [Settings.SetOrder] returns once every
// worker that has a heartbeat, or answers, has confirmed that it has read the change and dropped these IDs; its error
// names those that have not. A worker that reconnects, or stood still, may have missed a change: it reads all
// settings again, and makes requests for tags wait if it could not for half an hour. A tag's first range waits for
// [Settings.CatchUp].
//
// Uniqueness does not depend on this package: settings decide who gets IDs, and in which order.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// Config is the bucket and the connections of the settings, and the callbacks that apply them. All fields but Log
// must be set.
type Config struct {
	Namespace subjects.Namespace
	Bucket    *buckets.Bucket // of the marks
	Conn      *nats.Conn      // must not be the connection on which requests arrive
	Gate      *policy.Gate
	Poll      time.Duration // interval of polls for missed changes
	// Live returns the names of the workers that have a heartbeat.
	Live func(context.Context) ([]string, error)
	// SetStrict is called with the strict tags, whenever all settings have been read. After it returns, no ID loaded
	// before is served for them. Doubt is called when a tag may have become strict since: until SetStrict is called
	// again, no tag may be served from memory.
	SetStrict func(tags map[string]bool)
	Doubt     func()
	Log       *slog.Logger // nil discards
}

// Settings are the limits and orders as one worker sees them. It is safe for concurrent use.
type Settings struct {
	cfg     Config
	wasRead atomic.Bool // at least once
	isStale atomic.Bool // changed settings must be read

	entries
	ordering
	count count

	catching   sync.Mutex // guards caughtUpAt
	caughtUpAt time.Time  // when the last read of CatchUp began
}

// New returns settings that are not read yet.
func New(cfg Config) *Settings {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Settings{cfg: cfg}
	s.entries = entries{cfg: &s.cfg, isStale: &s.isStale, byKey: make(map[string]buckets.Entry)}
	s.ordering = ordering{cfg: &s.cfg, isStale: &s.isStale, wake: make(chan struct{}, 1)}
	s.count.cfg = &s.cfg
	return s
}

// readTimeout bounds each attempt to read all settings.
const readTimeout = 3 * time.Second

// Begin tries once to read the settings.
func (s *Settings) Begin(ctx context.Context) { s.refresh(ctx) }

// Run follows the settings until ctx ends.
func (s *Settings) Run(ctx context.Context) error {
	keys := make(chan string, 256)
	sub, err := s.cfg.Conn.Subscribe(s.cfg.Namespace.SettingsChanged(), func(m *nats.Msg) {
		select {
		case keys <- string(m.Data):
		default:
			s.isStale.Store(true)
		}
	})
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails only on a closed connection
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { s.count.keep(ctx) })
	counting.Go(func() { s.ordering.watch(ctx) })
	return s.follow(ctx, keys)
}

// lookEvery is the interval of local checks for missed changes.
const lookEvery = time.Second

func (s *Settings) follow(ctx context.Context, keys <-chan string) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failures := jitter.NewBackoff(lookEvery, 10*time.Second)
	due := time.Now()
	if s.wasRead.Load() {
		due = s.nextPoll()
	}
	for {
		select {
		case key := <-keys:
			if key == throttleKey || strings.HasPrefix(key, limitPrefix) {
				s.refreshKey(ctx, key)
				continue
			}
			s.isStale.Store(true) // confirming one order confirms all earlier ones
		case <-s.wake:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if time.Now().Before(due) && !s.isStale.Load() {
			continue
		}
		if s.isStale.Store(false); s.refresh(ctx) {
			failures.Reset()
			due = s.nextPoll()
		} else {
			wait := failures.NextBackOff()
			if s.inDoubt() || s.Unread() {
				wait = min(wait, lookEvery)
			}
			due = time.Now().Add(wait)
		}
	}
}

func (s *Settings) nextPoll() time.Time { return time.Now().Add(jitter.Around(s.cfg.Poll)) }

// refresh reads the settings that have changed, and reports whether it could.
func (s *Settings) refresh(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := s.begin()
	err := s.look(ctx)
	if err == nil {
		s.honour(began, &s.entries)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	switch {
	case err == nil:
	case s.wasRead.Load(): // polls and loads log at the same time that JetStream is out of reach
		s.cfg.Log.Debug("settings of tags cannot be read; those known are kept", "error", err)
	default:
		s.cfg.Log.Warn("the limits and orders of tags cannot be read, so this worker loads no range", "error", err)
	}
	return err == nil
}

// ErrUnread is returned while the settings were never read.
var ErrUnread = errors.New("the limits and orders of tags are not known yet")

// Known returns nil once the settings were read. Before that it tries to read them: no range may be loaded without
// them.
func (s *Settings) Known(ctx context.Context) error {
	if s.wasRead.Load() {
		return nil
	}
	if err := s.catchUp(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnread, err)
	}
	return nil
}

// Unread reports whether settings were never read.
func (s *Settings) Unread() bool { return !s.wasRead.Load() }

// look reads the settings that have changed, and the bucket's last revision. So the leader does not search all writes
// of marks since the last change of a setting each time that it is asked for the next change.
func (s *Settings) look(ctx context.Context) error {
	now := s.now()
	if !s.wasRead.Load() {
		return s.readOn(ctx, now, 0)
	}
	state, err := s.cfg.Bucket.Look(ctx)
	if err != nil {
		return err
	}
	return s.readOn(ctx, now, state.LastSeq)
}

// readOn reads the settings that have changed since a moment; usually none, which one request shows. The first call
// lists all. The bucket had reached the revision reached after that moment.
//
// Law: a worker reports that it honours a revision only once it has read all settings up to that revision.
func (s *Settings) readOn(ctx context.Context, since moment, reached uint64) error {
	if !s.wasRead.Load() {
		all, upTo, err := s.cfg.Bucket.Current(ctx, prefix)
		if err == nil {
			s.take(since, upTo, slices.Collect(maps.Values(all))...)
			s.wasRead.Store(true)
		}
		return err
	}
	changed, err := s.cfg.Bucket.Since(ctx, prefix, since.seq+1)
	if err != nil {
		reached = 0
	}
	if n := len(changed); n > 0 {
		reached = max(reached, changed[n-1].Revision)
	}
	s.take(since, reached, changed...)
	return err
}

// Reread reads all settings of a bucket that was replaced or went back: its revisions do not show which entry is
// newer.
func (s *Settings) Reread(ctx context.Context) error {
	began := s.begin()
	all, upTo, err := s.cfg.Bucket.Current(ctx, prefix)
	if err != nil {
		return fmt.Errorf("fleet: the settings of tags cannot be read again: %w", err)
	}
	s.entries.replace(all, upTo)
	s.wasRead.Store(true)
	s.honour(began, &s.entries)
	return nil
}

// refreshKey reads one setting that has changed.
func (s *Settings) refreshKey(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	now := s.now()
	e, err := s.cfg.Bucket.Get(ctx, key)
	if err != nil {
		s.isStale.Store(true) // the setting was removed, or cannot be read at the moment
		return
	}
	s.take(now, 0, e)
}
