package worker

import (
	"time"

	"github.com/natsid/natsid/internal/ratelimit"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// Rations bound what one process gives, whoever asks. They outlast its connections. Each
// field is a setting of [NewRations]. A nil Rations bounds nothing. It is safe for
// concurrent use.
type Rations struct {
	ids, firsts, creates allowance
}

// An allowance is so much a second; the zero value is any.
type allowance struct {
	perSecond float64
	bucket    *ratelimit.Bucket // nil: any
}

const (
	// rest is the length of idle time whose unused IDs a worker may give at once.
	rest = time.Second
	// longest is for how long one request may take all IDs of a worker, while other requests wait.
	longest = 10 * time.Second
)

func newAllowance(n int64, per, burst time.Duration) allowance {
	if n == 0 {
		return allowance{}
	}
	return allowance{float64(n) / per.Seconds(), ratelimit.New(burst)}
}

// NewRations returns rations of so many IDs a second, and of so many new tags a minute, on
// first use and as many by request: a flood of first uses keeps no operator from making a
// tag. 0 is any number.
func NewRations(ids, tags int64) *Rations {
	return &Rations{
		ids:    newAllowance(ids, time.Second, rest),
		firsts: newAllowance(tags, time.Minute, time.Minute), creates: newAllowance(tags, time.Minute, time.Minute),
	}
}

// take uses n, or returns how long to wait.
func (a allowance) take(now time.Duration, n int) time.Duration {
	if a.bucket == nil {
		return 0
	}
	return a.bucket.Take(now, int64(n), a.perSecond)
}

func (a allowance) giveBack(n int) {
	if a.bucket != nil {
		a.bucket.Return(int64(n), a.perSecond)
	}
}

// most returns how many IDs one request may get, of a limit for other reasons.
func (l *Rations) most(limit int) int {
	if l == nil || l.ids.bucket == nil {
		return limit
	}
	return int(max(1, min(float64(limit), l.ids.perSecond*longest.Seconds())))
}

// admit uses n IDs, or returns an error for the caller. If the request is
// refused for another reason, giveBack must follow.
func (l *Rations) admit(n int, now time.Duration) error {
	if l == nil {
		return nil
	}
	if wait := l.ids.take(now, n); wait > 0 {
		return tooMany(wait, "this worker gives at most %.0f IDs a second", l.ids.perSecond)
	}
	return nil
}

// giveBack gives back n IDs that a request was admitted for, and did not get.
func (l *Rations) giveBack(n int) {
	if l != nil && n > 0 {
		l.ids.giveBack(n)
	}
}

// FirstUse uses one new tag, made on first use, or returns an error for the caller.
func (l *Rations) FirstUse() error {
	if l == nil {
		return nil
	}
	return l.firsts.newTag()
}

func (a allowance) newTag() error {
	if wait := a.take(clock(), 1); wait > 0 {
		return tooMany(wait, "this worker makes at most %.0f new tags a minute", a.perSecond*time.Minute.Seconds())
	}
	return nil
}

// make uses one new tag, made by request, and gives it back if none was made.
func (l *Rations) make(create func() (segment.Tag, error)) (segment.Tag, error) {
	if l == nil {
		return create()
	}
	if err := l.creates.newTag(); err != nil {
		return segment.Tag{}, err
	}
	t, err := create()
	if err != nil && isRefusal(err) {
		l.creates.giveBack(1)
	}
	return t, err
}

func tooMany(wait time.Duration, format string, args ...any) error {
	e := subjects.Errorf(subjects.TooMany, format+": retry later", args...)
	e.RetryAfter = wholeMillis(wait)
	return e
}

// wholeMillis returns the next time in whole milliseconds after d: replies have no finer one.
func wholeMillis(d time.Duration) time.Duration {
	return d.Truncate(time.Millisecond) + time.Millisecond
}
