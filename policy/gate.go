package policy

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/ration"
)

// A Gate admits requests by the rules. Each worker of N has a Gate of its own, which admits a tag at an N-th of its
// rate. So in a time T all workers together issue at most
//
//	rate × (T + 1 s) + N × the largest batch
//
// if each knows N. A use of any size is admitted once what was used before is paid: a batch may be larger than the
// rate, and what follows waits the longer. The zero value, like a nil Gate, admits everything. It is safe for
// concurrent use.
type Gate struct {
	table   atomic.Pointer[table] // nil without rules
	workers atomic.Int64

	mu sync.Mutex // of those who set
}

// A table is the rules as requests meet them. It does not change, but for its buckets.
type table struct {
	rules  Rules
	tags   map[string]*entry
	others *shared // tags without an entry; nil if they are free
}

// An entry is what one tag allows.
type entry struct {
	maxBatch  int   // 0: any
	rate      int64 // 0: any
	throttled bool
	bucket    *ration.Bucket
}

// burst is for how long a tag that rested may give what it did not. longest is for how long one request may take all
// that a tag gives here: a single one must not shut a tag for hours.
const (
	burst   = time.Second
	longest = time.Minute
)

// Admit returns nil if n IDs of a tag may be issued now, a time that never goes back, and counts them. Otherwise it
// returns a [*BatchError] or a [*RateError]. For a tag that is free it costs one atomic load, and a look into a map
// where other tags are not.
func (g *Gate) Admit(tag string, n int, now time.Duration) error {
	if g == nil {
		return nil
	}
	t := g.table.Load()
	if t == nil {
		return nil
	}
	if e := t.tags[tag]; e != nil {
		return e.admit(n, now, g.share(e.rate), e.bucket)
	}
	if t.others != nil {
		return t.others.admit(n, now, g.share(t.others.rate), t.others.bucket(tag))
	}
	return nil
}

// share returns this worker's part of a rate.
func (g *Gate) share(rate int64) float64 { return float64(rate) / float64(max(1, g.workers.Load())) }

func (e *entry) admit(n int, now time.Duration, share float64, b *ration.Bucket) error {
	if e.maxBatch > 0 && n > e.maxBatch {
		return &BatchError{Max: e.maxBatch}
	}
	if e.rate == 0 {
		return nil
	}
	if most := max(1, int(min(math.MaxInt32, share*longest.Seconds()))); n > most {
		return &BatchError{Max: most, Rate: e.rate}
	}
	if wait := b.Take(now, int64(n), share); wait > 0 {
		return &RateError{Rate: e.rate, Throttled: e.throttled, Wait: wait}
	}
	return nil
}

// A shared is what each tag without an entry allows. Names of tags are callers' to choose, so memory for each is not:
// a tag shares its bucket with one in so many others.
type shared struct {
	entry
	seed    maphash.Seed
	buckets [sharing]*ration.Bucket
}

const sharing = 4096

func newShared(rate int64) *shared {
	s := &shared{entry: entry{rate: rate, throttled: true}, seed: maphash.MakeSeed()}
	for i := range s.buckets {
		s.buckets[i] = ration.New(burst)
	}
	return s
}

func (s *shared) bucket(tag string) *ration.Bucket {
	return s.buckets[maphash.String(s.seed, tag)%sharing]
}

// Set replaces the rules, which must not change afterwards. What tags have used stays used.
func (g *Gate) Set(r Rules) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.table.Load()
	if len(r.Limits) == 0 && r.Throttle.IsZero() {
		g.table.Store(nil)
		return
	}
	t := &table{rules: r, tags: make(map[string]*entry, len(r.Limits)+len(r.Throttle.Tags))}
	for tag := range r.Limits {
		t.tags[tag] = r.entry(tag, old)
	}
	for tag := range r.Throttle.Tags {
		t.tags[tag] = r.entry(tag, old)
	}
	switch all := r.Throttle.All; {
	case all == 0:
	case old != nil && old.others != nil && old.others.rate == all:
		t.others = old.others
	default:
		t.others = newShared(all)
	}
	g.table.Store(t)
}

// entry returns the entry of a tag, with the bucket that it had.
func (r Rules) entry(tag string, old *table) *entry {
	limit, throttle := r.Limits[tag], r.Throttle.Of(tag)
	e := &entry{maxBatch: limit.MaxBatch, rate: lower(limit.Rate, throttle)}
	e.throttled = throttle > 0 && e.rate == throttle
	if old != nil && old.tags[tag] != nil {
		e.bucket = old.tags[tag].bucket
	} else {
		e.bucket = ration.New(burst)
	}
	return e
}

// SetWorkers sets among how many workers, this one included, requests for IDs of tags are spread.
func (g *Gate) SetWorkers(n int) { g.workers.Store(int64(max(1, n))) }

// Workers returns what SetWorkers set, 1 at first.
func (g *Gate) Workers() int { return int(max(1, g.workers.Load())) }

// Rules returns what is in force. The caller must not change it.
func (g *Gate) Rules() Rules {
	if g == nil {
		return Rules{}
	}
	if t := g.table.Load(); t != nil {
		return t.rules
	}
	return Rules{}
}

// Counts reports whether a rate is in force, so that it matters how many workers there are.
func (g *Gate) Counts() bool {
	r := g.Rules()
	if !r.Throttle.IsZero() {
		return true
	}
	for _, l := range r.Limits {
		if l.Rate > 0 {
			return true
		}
	}
	return false
}
