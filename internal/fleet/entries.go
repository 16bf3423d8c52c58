package fleet

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// The keys.
const (
	prefix      = buckets.Own + ".s."
	throttleKey = prefix + "throttle"
	limitPrefix = prefix + "tag."
	orderPrefix = prefix + "order."
)

// entries are the settings that this worker has read. It is safe for concurrent use.
type entries struct {
	cfg     *Config
	isStale *atomic.Bool // set when settings must be read again

	mu      sync.Mutex
	byKey   map[string]buckets.Entry // markers of removed ones included
	seq     uint64                   // the revision of the bucket up to which all settings were read
	rereads int                      // number of Rereads: entries that were read before the last one are dropped
}

// A moment is how far settings had been read when a request was sent.
type moment struct {
	seq     uint64
	rereads int
}

func (e *entries) now() moment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return moment{e.seq, e.rereads}
}

// take takes in entries that were read since a moment. Together with the known ones they are complete up to the
// revision upTo; 0 means that this is unknown.
func (e *entries) take(since moment, upTo uint64, read ...buckets.Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if since.rereads != e.rereads {
		e.isStale.Store(true)
		return
	}
	for _, one := range read {
		if one.Revision > e.byKey[one.Key].Revision { // this worker may know a change already
			e.byKey[one.Key] = one
		}
	}
	e.seq = max(upTo, e.seq)
	if len(read) > 0 {
		e.apply()
	}
}

// replace takes in the entries of a bucket that was replaced or went back. They are complete up to the revision upTo.
func (e *entries) replace(all map[string]buckets.Entry, upTo uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byKey, e.seq = all, upTo
	e.rereads++
	e.apply()
}

// StrictFrom returns the time from which a tag that was loose is strict; the zero time if it always was, as far as is
// known.
func (e *entries) StrictFrom(tag string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := order{}
	if entry, ok := e.byKey[orderPrefix+tag]; !ok || entry.Removed || read(entry.Value, &o) != nil || o.From == nil {
		return time.Time{}
	}
	return *o.From
}

// strict returns the strict tags. A tag whose order cannot be read counts as strict.
func (e *entries) strict() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	tags := make(map[string]bool)
	for key, entry := range e.byKey {
		tag, ok := strings.CutPrefix(key, orderPrefix)
		if o := (order{}); ok && !entry.Removed && (read(entry.Value, &o) != nil || o.Order == subjects.OrderStrict) {
			tags[tag] = true
		}
	}
	return tags
}

// apply sets the gate's rules from the entries. A limit that cannot be read keeps its old value.
func (e *entries) apply() {
	old := e.cfg.Gate.Rules()
	rules := make(policy.Rules)
	for key, entry := range e.byKey {
		tag, ofTag := strings.CutPrefix(key, limitPrefix)
		kept, err := "its old value is kept", error(nil)
		switch {
		case entry.Removed:
		case ofTag, key == throttleKey:
			if !ofTag {
				tag = ""
			}
			l := policy.Limit{}
			if err = read(entry.Value, &l); err != nil {
				l = old[tag]
			}
			if l != (policy.Limit{}) {
				rules[tag] = l
			}
		case strings.HasPrefix(key, orderPrefix):
			kept, err = "the tag is strict", read(entry.Value, new(order))
		}
		if err != nil {
			e.cfg.Log.Error("a setting cannot be read, and "+kept+"; set it again",
				"bucket", e.cfg.Namespace.SegmentBucket(), "key", key, "error", err)
		}
	}
	e.cfg.Gate.Set(rules)
}

// read reads a setting.
func read[T interface{ Valid() bool }](value []byte, into *T) error {
	err := json.Unmarshal(value, into)
	if err == nil && !(*into).Valid() {
		err = errors.New("it has a value that cannot be set")
	}
	return err
}
