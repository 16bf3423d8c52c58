package worker

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// Limits admits requests for IDs of tags, by the limits of each tag and by the throttle: one rate in IDs per second
// that an operator set for every tag. Each of N workers has its own Limits, which admits a tag at 1/N of its rate. So
// of a tag all workers together issue, in a time T, at most
//
//	rate × (T + 1 s) + N × the largest batch
//
// if each worker knows the rate and N. One request may ask for more IDs than the rate gives in a second: it is admitted
// as any other, once earlier uses are paid, and later requests wait longer. A nil Limits admits everything. Limits is
// safe for concurrent use.
//
// A request is refused before it draws an ID. So a limit that is wrong, or learned late, never makes an ID repeat.
type Limits struct {
	rules    func(tag string) segment.Rules
	throttle func() int64
	workers  atomic.Int64
	isUsed   atomic.Bool // a rate was applied since the workers were last counted
	own      sync.Map    // tag to *bucket, for tags with a rate of their own
	seed     maphash.Seed
	// Callers choose the names of tags, so memory must not grow with them: tags without a rate of their own share a
	// fixed number of buckets by hash.
	shared [sharedBuckets]bucket
}

const (
	// saved bounds what an unused rate saves up: as many IDs as it gives in this time may then be issued at once.
	saved = time.Second
	// longest bounds one request: to the IDs that the rate gives this worker in that time. Otherwise one request could
	// block a tag for hours.
	longest       = time.Minute
	sharedBuckets = 4096
)

// NewLimits returns limits. rules returns the rules of a tag, as far as this worker knows them; throttle returns the
// rate that holds for each tag, 0 for none. Both must be fast.
func NewLimits(rules func(tag string) segment.Rules, throttle func() int64) *Limits {
	l := &Limits{rules: rules, throttle: throttle, seed: maphash.MakeSeed()}
	for i := range l.shared {
		l.shared[i].fill(saved)
	}
	return l
}

// Admit returns nil if n IDs of a tag may be issued at the time now, and counts them. Otherwise it returns the
// [*subjects.Error] for the caller. now must never go back.
func (l *Limits) Admit(tag string, n int, now time.Duration) error {
	if l == nil {
		return nil
	}
	r, rate := l.rules(tag), l.throttle()
	if err := fits(r, n); err != nil {
		return err
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
		e := subjects.Errorf(subjects.BadRequest, "this tag is limited to %d IDs/s, and one request to the IDs of "+
			"%d s on one worker: ask for at most %d IDs", rate, int(longest.Seconds()), most)
		e.MaxBatch = most
		return e
	}
	if wait := l.bucket(tag, r).take(now, saved, int64(n), share); wait > 0 {
		return tooMany(wait, "this tag is limited to %d IDs/s", rate)
	}
	return nil
}

// Fits returns the [*subjects.Error] for the caller if n exceeds the tag's largest batch, which may be known only after
// a load. It counts nothing.
func (l *Limits) Fits(tag string, n int) error {
	if l == nil {
		return nil
	}
	return fits(l.rules(tag), n)
}

func fits(r segment.Rules, n int) error {
	if r.MaxBatch == 0 || n <= r.MaxBatch {
		return nil
	}
	e := subjects.Errorf(subjects.BadRequest, "this tag is limited to %d IDs a request", r.MaxBatch)
	e.MaxBatch = r.MaxBatch
	return e
}

// tooMany returns a refusal after which the caller may retry once wait has passed. It names the next whole millisecond,
// since replies hold no fractions.
func tooMany(wait time.Duration, format string, args ...any) error {
	e := subjects.Errorf(subjects.TooMany, format, args...)
	e.RetryAfter = wait.Truncate(time.Millisecond) + time.Millisecond
	return e
}

func (l *Limits) bucket(tag string, r segment.Rules) *bucket {
	if r.Rate == 0 {
		return &l.shared[maphash.String(l.seed, tag)%sharedBuckets]
	}
	b, ok := l.own.Load(tag)
	if !ok {
		full := new(bucket)
		full.fill(saved)
		b, _ = l.own.LoadOrStore(tag, full)
	}
	return b.(*bucket)
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

// FirstUses returns a function that allows perMinute new tags a minute. Beyond that it returns a [*subjects.Error] for
// the caller. It bounds the tags that callers create by first use; those that operators create do not count. The
// function is safe for concurrent use.
func FirstUses(perMinute int64) func() error {
	b, began, perSecond := new(bucket), time.Now(), float64(perMinute)/time.Minute.Seconds()
	b.fill(time.Minute)
	return func() error {
		if wait := b.take(time.Since(began), time.Minute, 1, perSecond); wait > 0 {
			return tooMany(wait, "this worker makes at most %d new tags a minute on first use", perMinute)
		}
		return nil
	}
}

// A bucket admits uses at a rate, and after a time without uses as many at once as the rate gives in the time burst. A
// use of any size is admitted while something is left, and may take more than is left: the bucket is then in debt, and
// admits nothing until the rate has paid the debt. So the uses in a time never exceed what the rate gives in it, plus
// one burst and the last use.
//
// The value is the time, in ns, at which all past uses are paid. The rate may change between calls: past uses are paid
// at the rate that they had. A bucket is safe for concurrent use, takes no lock and allocates nothing.
type bucket struct{ atomic.Int64 }

// fill makes the bucket full. The time now, given to take, must then be 0 or later.
func (b *bucket) fill(burst time.Duration) { b.Store(-int64(burst)) }

// take uses n at a rate per second, and returns 0; or it uses nothing and returns how long to wait. now must come from
// one clock, which never goes back.
func (b *bucket) take(now, burst time.Duration, n int64, perSecond float64) (wait time.Duration) {
	for cost := price(n, perSecond); ; {
		paid := b.Load()
		from := max(paid, int64(now-burst))
		if from >= int64(now) {
			return time.Duration(from) - now + 1
		}
		if b.CompareAndSwap(paid, from+cost) {
			return 0
		}
	}
}

// price returns how many ns the rate needs to pay n uses. It rounds up, so the rate is never exceeded.
func price(n int64, perSecond float64) int64 {
	return int64(min(math.MaxInt64/4, math.Ceil(float64(n)*float64(time.Second)/perSecond)))
}

const (
	countEvery = 10 * time.Second // how often workers are counted while a rate is in use
	countFor   = time.Second      // bounds the wait for answers
)

// Share counts the workers that serve tags, while a rate is in use, until ctx ends. conn must not be the connection on
// which requests arrive.
func (l *Limits) Share(ctx context.Context, conn *nats.Conn, ns subjects.Namespace) {
	var c count
	var asked time.Time
	for jitter.Sleep(ctx, jitter.Around(time.Second)) == nil {
		if time.Since(asked) < countEvery || !l.isUsed.Swap(false) {
			continue
		}
		asked = time.Now()
		if n := serving(ctx, conn, ns); n > 0 {
			l.workers.Store(c.of(n))
		}
	}
}

// A count is the number of workers that share a rate. It rises at once, but falls only after two lower counts in a row:
// an answer may come late.
type count struct{ last int64 }

func (c *count) of(n int64) int64 {
	counted := max(n, c.last)
	c.last = n
	return counted
}

// serving returns how many of the workers that answer serve tags.
func serving(ctx context.Context, conn *nats.Conn, ns subjects.Namespace) (n int64) {
	ctx, cancel := context.WithTimeout(ctx, countFor)
	defer cancel()
	// Without a connection nobody answers: then the count does not change.
	_ = natsbus.Gather(ctx, conn, wire.ServicePing(ns), nil, func(m *nats.Msg) (enough bool) {
		var ping micro.Ping
		if json.Unmarshal(m.Data, &ping) == nil && ping.Metadata[wire.SegmentEndpoint] == wire.Ready {
			n++
		}
		return false
	})
	return n
}
