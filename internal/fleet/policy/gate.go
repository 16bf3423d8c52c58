package policy

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/ratelimit"
)

// A Gate admits requests by the rules. Each of N workers has a Gate of its own, which admits a tag at 1/N of its
// rate. So in a time T all workers together issue at most
//
//	rate × (T + 1 s) + N × the largest batch
//
// if each knows N. A use of any size is admitted once the uses before it are paid off: a batch may be larger than the
// rate, and later requests wait longer for it. The zero value, like a nil Gate, admits everything. It is safe for
// concurrent use.
type Gate struct {
	table   atomic.Pointer[table] // nil without rules
	workers atomic.Int64

	mu sync.Mutex // serializes Set
}

// A table is the rules in the form in which requests are checked. It does not change, except for its buckets.
type table struct {
	rules  Rules
	tags   map[string]*entry
	others *shared // tags without an entry; nil if they are free
}

// An entry is the limits of one tag.
type entry struct {
	maxBatch int   // 0 means any
	rate     int64 // IDs/s; 0 means any
	bucket   *ratelimit.Bucket
}

// burst bounds the time for which an unused rate is saved up. longest bounds one request to the IDs that a tag gives
// in that time on this worker: a single request must not block a tag for hours.
const (
	burst   = time.Second
	longest = time.Minute
)

// Admit returns nil if n IDs of a tag may be issued now, a time that never goes back, and counts them. Otherwise it
// returns a [*BatchError] or a [*RateError]. For a tag without limits it costs one atomic load, and a map lookup if
// other tags have limits.
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

func (e *entry) admit(n int, now time.Duration, share float64, b *ratelimit.Bucket) error {
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
		return &RateError{Rate: e.rate, Wait: wait}
	}
	return nil
}

// A shared is the limit of each tag without an entry. Callers choose the names of tags, so memory must not grow with
// them: tags share a fixed number of buckets by hash.
type shared struct {
	entry
	seed    maphash.Seed
	buckets [sharing]*ratelimit.Bucket
}

const sharing = 4096

func newShared(rate int64) *shared {
	s := &shared{entry: entry{rate: rate}, seed: maphash.MakeSeed()}
	for i := range s.buckets {
		s.buckets[i] = ratelimit.New(burst)
	}
	return s
}

func (s *shared) bucket(tag string) *ratelimit.Bucket {
	return s.buckets[maphash.String(s.seed, tag)%sharing]
}

// Set replaces the rules, which must not change afterwards. The use of a tag so far stays counted.
func (g *Gate) Set(r Rules) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.table.Load()
	if len(r) == 0 {
		g.table.Store(nil)
		return
	}
	t := &table{rules: r, tags: make(map[string]*entry, len(r))}
	for tag := range r {
		t.tags[tag] = r.entry(tag, old)
	}
	switch all := r[""].Rate; {
	case all == 0:
	case old != nil && old.others != nil && old.others.rate == all:
		t.others = old.others
	default:
		t.others = newShared(all)
	}
	g.table.Store(t)
}

// entry returns the entry of a tag. It keeps the tag's bucket if the old table has one.
func (r Rules) entry(tag string, old *table) *entry {
	e := &entry{maxBatch: r[tag].MaxBatch, rate: r[tag].Rate}
	if all := r[""].Rate; e.rate == 0 || 0 < all && all < e.rate {
		e.rate = all
	}
	if old != nil && old.tags[tag] != nil {
		e.bucket = old.tags[tag].bucket
	} else {
		e.bucket = ratelimit.New(burst)
	}
	return e
}

// SetWorkers sets the number of workers, this one included, that share the requests for IDs of tags.
func (g *Gate) SetWorkers(n int) { g.workers.Store(int64(max(1, n))) }

// Workers returns the number that SetWorkers set, 1 at first.
func (g *Gate) Workers() int { return int(max(1, g.workers.Load())) }

// Rules returns the rules in force. The caller must not change them.
func (g *Gate) Rules() Rules {
	if g == nil {
		return nil
	}
	if t := g.table.Load(); t != nil {
		return t.rules
	}
	return nil
}

// HasRate reports whether a rate is in force, so that the number of workers matters.
func (g *Gate) HasRate() bool {
	for _, l := range g.Rules() {
		if l.Rate > 0 {
			return true
		}
	}
	return false
}
