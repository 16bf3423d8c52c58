// Package fleet lets all workers follow one policy, in a bucket; it is internal to natsid and may change.
//
//	id_settings  key tag.<tag>    the limit of a tag, as the JSON of a [policy.Limit]
//	             key order.<tag>  the order of a tag's IDs: {"order":"strict"}, or "loose" as before; and from when on
//	             key throttle     what is throttled, as the JSON of a [policy.Throttle]
//
// A change is a compare-and-set, then a message to all workers, which read the key again. Who misses the message finds
// the change at its next look: after a reconnect, and once a poll. What cannot be read stays as it was.
//
// # The level of the registry
//
// A worker of before knows no limit, and would issue what is forbidden. So the identity of the marks has a level, the
// least that workers must honour, and a worker of a lower one does not start. The first limit raises it, and is
// refused while a worker of before is live. With --guard off there is no identity: then only live workers are asked.
//
// A worker that may not serve without limits, since the level says so, serves no segments until it has read them, and
// until those that run have, too: see [Settings.meet].
//
// # Strict tags
//
// Which tags are strict stands here too, and not in their marks: an older worker, which serves them loosely, would drop
// such a field at its next load. The first strict tag raises the level, as the first limit does.
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

// Config says where settings are kept and who must honour them. All fields but Marks, Refuse, SetStrict, Doubt, Lost
// and Log must be set.
type Config struct {
	Namespace subjects.Namespace
	Streams   buckets.Streams
	Replicas  int        // of the bucket, if it is created; 0 chooses
	Conn      *nats.Conn // must not be the one that requests arrive on
	Gate      *policy.Gate
	Poll      time.Duration // how often to look for what was missed
	// Marks is where the level is kept; nil if there is no such place.
	Marks Marks
	// Live returns the names of the workers that have a heartbeat.
	Live func(context.Context) ([]string, error)
	// Refuse is called with why segments must not be served, and with nil when they may be.
	Refuse func(error)
	// SetStrict is called with the tags that are strict, whenever all settings have been read. When it returns, nothing
	// of before is served for them. Doubt is called when one may have become strict since: until SetStrict is called
	// again, no tag may be served from memory.
	SetStrict func(tags map[string]bool)
	Doubt     func()
	// Lost is called when settings that were in force are gone from the bucket. It must not block.
	Lost func(what string)
	Log  *slog.Logger // nil discards
}

// Marks keep the level of the registry: which settings its workers must honour.
type Marks interface {
	// Level returns the level as it was last read, 0 if it was not.
	Level() int
	// RaiseLevel raises the level durably. Workers below it refuse the marks from then on.
	RaiseLevel(ctx context.Context, level int) error
}

// Settings are the limits, orders and throttles as one worker sees them. It is safe for concurrent use.
type Settings struct {
	cfg   Config
	kv    *buckets.Bucket
	read  atomic.Bool   // at least once
	again atomic.Bool   // all must be read again
	seq   atomic.Uint64 // the revision of the bucket up to which all was read
	wake  chan struct{} // has room for one word that all must be read now

	mu      sync.Mutex
	entries map[string]buckets.Entry
	lost    bool      // the bucket was, so what it holds is not all
	made    time.Time // when the bucket was

	// ordering guards calls of SetStrict and Doubt, doubts, which counts the latter, and certain: what was read before
	// a doubt does not end it.
	ordering sync.Mutex
	doubts   int
	certain  certainty

	catching sync.Mutex // guards caught
	caught   time.Time  // when the last read of CatchUp began
	met      time.Time  // until then the first read waits for other workers

	honoured atomic.Uint64 // the last revision of the bucket whose strict tags are in force here

	count   count
	refused bool // only Begin and Run use it
}

// The keys.
const (
	throttleKey = "throttle"
	limitPrefix = "tag."
	orderPrefix = "order."
)

// New returns settings that are not read yet.
func New(cfg Config) *Settings {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Refuse == nil {
		cfg.Refuse = func(error) {}
	}
	if cfg.SetStrict == nil {
		cfg.SetStrict = func(map[string]bool) {}
	}
	if cfg.Doubt == nil {
		cfg.Doubt = func() {}
	}
	if cfg.Lost == nil {
		cfg.Lost = func(string) {}
	}
	s := &Settings{cfg: cfg, entries: make(map[string]buckets.Entry), wake: make(chan struct{}, 1)}
	s.kv = buckets.New(cfg.Streams, buckets.Config{
		Name: cfg.Namespace.SettingsBucket(), Description: "natsid: limits, orders and throttles, for ever",
		Replicas: cfg.Replicas, Lost: s.bucketLost, Log: cfg.Log,
	})
	return s
}

// readTimeout bounds each attempt to read all settings.
const readTimeout = 3 * time.Second

// Begin reads the settings once. If it cannot, and the registry's level demands them, segments are refused until Run
// has read them.
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
			if !strings.HasPrefix(key, orderPrefix) {
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
			if s.inDoubt() {
				wait = min(wait, lookEvery)
			}
			due = time.Now().Add(wait)
		}
	}
}

func (s *Settings) nextPoll() time.Time {
	return time.Now().Add(s.cfg.Poll/2 + jitter.UpTo(s.cfg.Poll))
}

// refresh reads all settings, and reports whether it could.
func (s *Settings) refresh(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := s.begin()
	all, err := s.readAll(ctx)
	if all { // it is not where settings that were lost are being written again
		s.honour(began)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	if err == nil {
		s.read.Store(true)
		if s.refused {
			s.refused = false
			s.cfg.Refuse(nil)
		}
		return true
	}
	why := s.Demanded()
	switch {
	case why != nil:
		s.refused = true
		s.cfg.Refuse(fmt.Errorf("%w: %w", why, err))
	case s.read.Load(): // polls and loads say at the same time that JetStream is away
		s.cfg.Log.Debug("settings of tags cannot be read; those known are kept", "error", err)
	default:
		s.cfg.Log.Warn("settings of tags cannot be read; requests are served without, since no worker must honour "+
			"any as far as this one knows", "error", err)
	}
	return false
}

var errDemanded = errors.New("the limits and orders of tags are not known yet, and must be honoured")

// Demanded returns an error if no range may be loaded yet: the registry has limits, and they were never read.
func (s *Settings) Demanded() error {
	if s.read.Load() || s.cfg.Marks == nil || s.cfg.Marks.Level() < policy.LevelLimits {
		return nil
	}
	return errDemanded
}

// Unread reports whether settings were never read.
func (s *Settings) Unread() bool { return !s.read.Load() }

// readAll reads what has changed since the last call; mostly nothing, which one request shows. It reports whether all
// is known now.
//
// Law: a worker says that it honours a revision only once it has read all entries up to that one. The description of
// the bucket says what its last revision is, and not that what was listed then contains it.
func (s *Settings) readAll(ctx context.Context) (bool, error) {
	for {
		state, err := s.kv.Look(ctx)
		if err != nil || s.read.Load() && state.LastSeq == s.seq.Load() {
			return err == nil, err
		}
		all, upTo, err := s.kv.Current(ctx)
		if err != nil {
			return false, err
		}
		if again, err := s.restore(ctx, state.Created, all); again || err != nil {
			return false, err // what was known goes on to hold
		}
		again, err := s.meet(ctx, upTo)
		if err != nil {
			return false, err
		}
		if !again {
			s.take(state, all, upTo)
			return true, nil
		}
	}
}

// take puts what was read, up to a revision, in place of what was known.
func (s *Settings) take(state buckets.State, all map[string]buckets.Entry, upTo uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.Mine && len(all) == 0 && !s.read.Load() && s.cfg.Marks != nil &&
		s.cfg.Marks.Level() >= policy.LevelLimits {
		s.cfg.Lost("the bucket " + s.cfg.Namespace.SettingsBucket() + " was gone with all limits, orders and " +
			"throttles, so that strict tags are loose: set them again with `natsid tag update` and `natsid throttle`")
	}
	for key, e := range s.entries {
		if _, there := all[key]; there || e.Revision > upTo {
			all[key] = later(e, all[key]) // a change that this worker made meanwhile
		}
	}
	s.entries = all
	s.seq.Store(upTo)
	s.apply()
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
	e, err := s.kv.Get(ctx, key)
	if err != nil {
		s.again.Store(true) // removed, or not to be read at the moment
		return
	}
	s.learn(e)
}

// learn takes in an entry.
func (s *Settings) learn(e buckets.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[e.Key] = later(e, s.entries[e.Key])
	s.apply()
}

// apply makes the gate follow the entries. A limit or throttle that cannot be read changes nothing.
func (s *Settings) apply() {
	old := s.cfg.Gate.Rules()
	rules := policy.Rules{Limits: make(map[string]policy.Limit), Throttle: policy.Throttle{}}
	for key, e := range s.entries {
		tag, ofTag := strings.CutPrefix(key, limitPrefix)
		kept, err := "what it was before is kept", error(nil)
		switch {
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
				"bucket", s.cfg.Namespace.SettingsBucket(), "key", key, "error", err)
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

// bucketLost notes that the bucket is gone with all settings. They go on to hold here.
func (s *Settings) bucketLost() {
	s.mu.Lock()
	known := len(s.entries) > 0
	s.lost = s.lost || known
	s.mu.Unlock()
	s.again.Store(true)
	if known {
		s.cfg.Lost("the bucket " + s.cfg.Namespace.SettingsBucket() + " is gone; workers go on with the limits, " +
			"orders and throttles that they know, and write them again: check them with `natsid tag list`")
	}
}

// restore writes settings that were lost into the new bucket, which was made then and holds all, unless they were set
// anew. It reports whether any were lost.
func (s *Settings) restore(ctx context.Context, made time.Time, all map[string]buckets.Entry) (bool, error) {
	s.mu.Lock()
	another := !s.made.IsZero() && !made.Equal(s.made) // made again by another worker, which may know less
	lost, known := (s.lost || another) && len(s.entries) > 0, maps.Clone(s.entries)
	s.mu.Unlock()
	for key, e := range known {
		if _, there := all[key]; there || !lost {
			continue
		}
		if _, err := s.kv.Create(ctx, key, e.Value); err != nil && !errors.Is(err, buckets.ErrKeyExists) {
			return lost, fmt.Errorf("%s was lost with its bucket, and cannot be written again: %w", key, err)
		}
	}
	s.mu.Lock()
	s.made, s.lost = made, false
	s.mu.Unlock()
	if lost {
		s.again.Store(true)
	}
	return lost, nil
}
