// Package fleet lets all workers follow one policy, kept beside the marks; it is internal to natsid and may change.
//
//	_natsid.s.tag.<tag>    the limit of a tag, as the JSON of a [policy.Limit]
//	_natsid.s.order.<tag>  the order of a tag's IDs: {"order":"strict"}, or "loose" as before; and from when on
//	_natsid.s.throttle     what is throttled, as the JSON of a [policy.Throttle]
//
// These are keys in the bucket of the marks. So settings do not go back without the marks, and what notices that of the
// marks notices it of settings: here nothing does.
//
// A change is a compare-and-set, then a message to all workers, which read the key again. Who misses the message finds
// the change at its next look: after a reconnect, and once a poll. It asks the leader for the first setting that was
// written after those that it knows, and so on: one request where nothing has changed, whatever was loaded. What cannot
// be read stays as it was.
//
// A worker that never read the settings loads no range: see [Settings.Known].
//
// # Strict tags
//
// A tag that is loose becomes strict while workers hold its IDs in memory. So [Settings.SetOrder] returns once every
// worker that has a heartbeat, or answers, says that it has read the change and has dropped them; and it names those
// that do not. A worker that reconnects, or stood still, may have missed a change: it reads all settings again, and
// lets tags wait once it could not for half an hour. A tag's first range waits for [Settings.CatchUp].
//
// Nothing here bears on uniqueness: settings decide who gets IDs, and in which order, and never that one repeats.
package fleet

import (
	"context"
	"encoding/json"
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

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/policy"
	"github.com/natsid/natsid/subjects"
)

// Config says where settings are kept and who must honour them. All fields but HasMarks, SetStrict, Doubt and Log must
// be set.
type Config struct {
	Namespace subjects.Namespace
	Bucket    *buckets.Bucket // of the marks
	Conn      *nats.Conn      // must not be the one that requests arrive on
	Gate      *policy.Gate
	Poll      time.Duration // how often to look for what was missed
	// HasMarks says that the tags have marks, on which the order of a strict tag rests.
	HasMarks bool
	// Live returns the names of the workers that have a heartbeat.
	Live func(context.Context) ([]string, error)
	// SetStrict is called with the tags that are strict, whenever all settings have been read. When it returns, nothing
	// of before is served for them. Doubt is called when one may have become strict since: until SetStrict is called
	// again, no tag may be served from memory.
	SetStrict func(tags map[string]bool)
	Doubt     func()
	Log       *slog.Logger // nil discards
}

// Settings are the limits, orders and throttles as one worker sees them. It is safe for concurrent use.
type Settings struct {
	cfg   Config
	read  atomic.Bool   // at least once
	again atomic.Bool   // what has changed must be read
	wake  chan struct{} // has room for one word that it must be read now

	mu      sync.Mutex
	entries map[string]buckets.Entry // markers of removed ones included
	seq     uint64                   // the revision of the bucket up to which all settings were read
	rereads int                      // what was read of the bucket before the last one is not taken in

	// ordering guards calls of SetStrict and Doubt, doubts, which counts the latter, and certain: what was read before
	// a doubt does not end it.
	ordering sync.Mutex
	doubts   int
	certain  certainty

	catching sync.Mutex // guards caught
	caught   time.Time  // when the last read of CatchUp began

	honoured atomic.Uint64 // the last revision of the bucket whose strict tags are in force here

	count count
}

// The keys.
const (
	prefix      = buckets.Own + ".s."
	throttleKey = prefix + "throttle"
	limitPrefix = prefix + "tag."
	orderPrefix = prefix + "order."
)

// New returns settings that are not read yet.
func New(cfg Config) *Settings {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.SetStrict == nil {
		cfg.SetStrict = func(map[string]bool) {}
	}
	if cfg.Doubt == nil {
		cfg.Doubt = func() {}
	}
	return &Settings{cfg: cfg, entries: make(map[string]buckets.Entry), wake: make(chan struct{}, 1)}
}

// readTimeout bounds each attempt to read all settings.
const readTimeout = 3 * time.Second

// Begin reads the settings once, if it can.
func (s *Settings) Begin(ctx context.Context) { s.refresh(ctx) }

// Run follows the settings until ctx ends.
func (s *Settings) Run(ctx context.Context) error {
	keys := make(chan string, 256)
	sub, err := s.cfg.Conn.Subscribe(s.cfg.Namespace.SettingsChanged(), func(m *nats.Msg) {
		select {
		case keys <- string(m.Data):
		default:
			s.again.Store(true)
		}
	})
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a connection that is gone
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { s.keepCount(ctx) })
	counting.Go(func() { s.watch(ctx) })
	return s.follow(ctx, keys)
}

// lookEvery is how often it is found out whether something was missed, without asking anyone.
const lookEvery = time.Second

func (s *Settings) follow(ctx context.Context, keys <-chan string) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failures := jitter.NewBackoff(lookEvery, 10*time.Second)
	due := time.Now()
	if s.read.Load() {
		due = s.nextPoll()
	}
	for {
		select {
		case key := <-keys:
			if key == throttleKey || strings.HasPrefix(key, limitPrefix) {
				s.refreshKey(ctx, key)
				continue
			}
			s.again.Store(true) // whoever confirms one order confirms all of before
		case <-s.wake:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if time.Now().Before(due) && !s.again.Load() {
			continue
		}
		if s.again.Store(false); s.refresh(ctx) {
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

func (s *Settings) nextPoll() time.Time {
	return time.Now().Add(jitter.Around(s.cfg.Poll))
}

// refresh reads what has changed, and reports whether it could.
func (s *Settings) refresh(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := s.begin()
	err := s.look(ctx)
	if err == nil {
		s.honour(began)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	switch {
	case err == nil:
	case s.read.Load(): // polls and loads say at the same time that JetStream is away
		s.cfg.Log.Debug("settings of tags cannot be read; those known are kept", "error", err)
	default:
		s.cfg.Log.Warn("the limits and orders of tags cannot be read, so this worker loads no range", "error", err)
	}
	return err == nil
}

// ErrUnread says that the settings were never read.
var ErrUnread = errors.New("the limits and orders of tags are not known yet")

// Known returns nil once the settings were read. If they never were, it reads them: without, no range may be loaded.
func (s *Settings) Known(ctx context.Context) error {
	if s.read.Load() {
		return nil
	}
	if err := s.catchUp(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnread, err)
	}
	return nil
}

// Unread reports whether settings were never read.
func (s *Settings) Unread() bool { return !s.read.Load() }

// look reads what has changed, and how far the bucket is now. So the leader does not look through all writes of marks
// since the last change of a setting each time that it is asked for the next one.
func (s *Settings) look(ctx context.Context) error {
	now := s.now()
	if !s.read.Load() {
		return s.readOn(ctx, now, 0)
	}
	state, err := s.cfg.Bucket.Look(ctx)
	if err != nil {
		return err
	}
	return s.readOn(ctx, now, state.LastSeq)
}

// A moment is how far settings were read when a request was sent.
type moment struct {
	seq     uint64
	rereads int
}

func (s *Settings) now() moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return moment{s.seq, s.rereads}
}

// readOn reads what has changed since a moment; mostly nothing, which one request shows. The first call lists all.
// The bucket had the revision reached after that moment.
//
// Law: a worker says that it honours a revision only once it has read all settings up to that one.
func (s *Settings) readOn(ctx context.Context, since moment, reached uint64) error {
	if !s.read.Load() {
		all, upTo, err := s.cfg.Bucket.Current(ctx, prefix)
		if err == nil {
			s.take(since, upTo, slices.Collect(maps.Values(all))...)
			s.read.Store(true)
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

// take takes in entries that were read since a moment, without which none is missing up to a revision; 0 says nothing
// of that.
func (s *Settings) take(since moment, upTo uint64, entries ...buckets.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since.rereads != s.rereads {
		s.again.Store(true)
		return
	}
	for _, e := range entries {
		s.entries[e.Key] = later(e, s.entries[e.Key]) // this worker may know a change already
	}
	s.seq = max(upTo, s.seq)
	if len(entries) > 0 {
		s.apply()
	}
}

// Reread reads all settings of a bucket that is another one than before, or went back: its revisions say nothing of
// what is newer.
func (s *Settings) Reread(ctx context.Context) error {
	began := s.begin()
	all, upTo, err := s.cfg.Bucket.Current(ctx, prefix)
	if err != nil {
		return fmt.Errorf("fleet: the settings of tags cannot be read again: %w", err)
	}
	s.mu.Lock()
	s.entries, s.seq = all, upTo
	s.rereads++
	s.apply()
	s.mu.Unlock()
	s.read.Store(true)
	s.honour(began)
	return nil
}

func later(a, b buckets.Entry) buckets.Entry {
	if a.Revision > b.Revision {
		return a
	}
	return b
}

// refreshKey reads one setting that has changed.
func (s *Settings) refreshKey(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	now := s.now()
	e, err := s.cfg.Bucket.Get(ctx, key)
	if err != nil {
		s.again.Store(true) // removed, or not to be read at the moment
		return
	}
	s.take(now, 0, e)
}

// apply makes the gate follow the entries. A limit or throttle that cannot be read changes nothing.
func (s *Settings) apply() {
	old := s.cfg.Gate.Rules()
	rules := policy.Rules{Limits: make(map[string]policy.Limit), Throttle: policy.Throttle{}}
	for key, e := range s.entries {
		tag, ofTag := strings.CutPrefix(key, limitPrefix)
		kept, err := "what it was before is kept", error(nil)
		switch {
		case e.Removed:
		case key == throttleKey:
			if err = read(e.Value, &rules.Throttle); err != nil {
				rules.Throttle = old.Throttle
			}
		case ofTag:
			l := policy.Limit{}
			if err = read(e.Value, &l); err != nil {
				l = old.Limits[tag]
			}
			if l != (policy.Limit{}) {
				rules.Limits[tag] = l
			}
		case strings.HasPrefix(key, orderPrefix):
			kept, err = "the tag is strict", read(e.Value, new(order))
		}
		if err != nil {
			s.cfg.Log.Error("a setting cannot be read, and "+kept+"; set it again",
				"bucket", s.cfg.Namespace.SegmentBucket(), "key", key, "error", err)
		}
	}
	s.cfg.Gate.Set(rules)
}

// read reads a setting.
func read[T interface{ Valid() bool }](value []byte, into *T) error {
	err := json.Unmarshal(value, into)
	if err == nil && !(*into).Valid() {
		err = errors.New("it has a value that cannot be set")
	}
	return err
}
