package policy

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/ratelimit"
	"github.com/natsid/natsid/segment"
)

// Limits admits requests by the limits of their tags. Each of N workers has its own Limits, which admits a tag at 1/N
// of its rate. So in a time T all workers together issue at most
//
//	rate × (T + 1 s) + N × the largest batch
//
// if each worker knows the rate and N. A batch may be larger than the rate: it is admitted once earlier uses are paid
// off, and later requests wait longer. A nil Limits admits everything. It is safe for concurrent use.
type Limits struct {
	rules    func(tag string) segment.Rules
	throttle func() int64
	workers  atomic.Int64
	isUsed   atomic.Bool // a rate was applied since the last reset
	own      sync.Map    // tag to *ratelimit.Bucket, for tags with a rate of their own
	seed     maphash.Seed
	// Callers choose the names of tags, so memory must not grow with them: tags without a rate of their own share a
	// fixed number of buckets by hash.
	shared [sharing]*ratelimit.Bucket
}

// burst is how long an unused rate is saved up. longest bounds one request: it may ask for what this worker issues of
// the tag in that time, so that one request does not block a tag for hours.
const (
	burst   = time.Second
	longest = time.Minute
	sharing = 4096
)

// New returns limits. rules returns the rules of a tag, as far as this worker knows them; throttle returns the rate
// that holds for each tag, 0 for none. Both must be fast.
func New(rules func(tag string) segment.Rules, throttle func() int64) *Limits {
	l := &Limits{rules: rules, throttle: throttle, seed: maphash.MakeSeed()}
	for i := range l.shared {
		l.shared[i] = ratelimit.New(burst)
	}
	return l
}

// Admit returns nil if n IDs of a tag may be issued at the time now, and counts them. Otherwise it returns a
// [*BatchError] or a [*RateError]. now must never go back.
func (l *Limits) Admit(tag string, n int, now time.Duration) error {
	if l == nil {
		return nil
	}
	r, rate := l.rules(tag), l.throttle()
	if r.MaxBatch > 0 && n > r.MaxBatch {
		return &BatchError{Max: r.MaxBatch}
	}
	if r.Rate > 0 && (rate == 0 || r.Rate < rate) {
		rate = r.Rate
	}
	if rate == 0 {
		return nil
	}
	if !l.isUsed.Load() {
		l.isUsed.Store(true)
	}
	share := float64(rate) / float64(l.Workers())
	if most := max(1, int(min(math.MaxInt32, share*longest.Seconds()))); n > most {
		return &BatchError{Max: most, Rate: rate}
	}
	if wait := l.bucket(tag, r).Take(now, int64(n), share); wait > 0 {
		return &RateError{Rate: rate, Wait: wait}
	}
	return nil
}

// Fits returns a [*BatchError] if n exceeds the tag's largest batch, which may be known only after a load. It counts
// nothing.
func (l *Limits) Fits(tag string, n int) error {
	if l == nil {
		return nil
	}
	if most := l.rules(tag).MaxBatch; most > 0 && n > most {
		return &BatchError{Max: most}
	}
	return nil
}

func (l *Limits) bucket(tag string, r segment.Rules) *ratelimit.Bucket {
	if r.Rate == 0 {
		return l.shared[maphash.String(l.seed, tag)%sharing]
	}
	b, ok := l.own.Load(tag)
	if !ok {
		b, _ = l.own.LoadOrStore(tag, ratelimit.New(burst))
	}
	return b.(*ratelimit.Bucket)
}

// Workers returns the number of workers, this one included, that share the rate of a tag; 1 until they are counted.
func (l *Limits) Workers() int { return int(max(1, l.workers.Load())) }

// Throttle returns the rate that holds for each tag, 0 for none.
func (l *Limits) Throttle() int64 {
	if l == nil {
		return 0
	}
	return l.throttle()
}
