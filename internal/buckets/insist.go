package buckets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// askAgain is how long a read has no answer, at least, until it is asked again.
	askAgain = 100 * time.Millisecond
	// slow is how many times what answers take that is, at least.
	slow = 3
	// openAgain is how long a bucket that is opened is not described until that is asked again. It does not grow with
	// the time that answers take, as that of an attempt to open does: what was asked may be lost all the same.
	openAgain = 500 * time.Millisecond
)

// insist calls ask, and once more beside that if there was no answer after some time, then after twice that, and so on.
// The first answer counts, one that refuses too. ask must change nothing.
//
// What the leader of a stream has not answered when it steps down is lost, as is what it was asked before the next one
// leads: nobody says so. The next one mostly leads within 0.1 s, and a read would wait for all the time that it has.
func insist[T any](ctx context.Context, after time.Duration, ask func(context.Context) (T, error)) (T, error) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= after {
		return ask(ctx) // there is no time for more
	}
	first, giveUp := context.WithCancel(ctx)
	defer giveUp()
	again, stop := context.WithCancel(ctx)
	defer stop()
	var second T
	var refused error
	done := make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(done)
		if second, refused = insist(again, 2*after, ask); isAnswer(refused) {
			giveUp()
		}
	})
	v, err := ask(first)
	if timer.Stop() {
		return v, err
	}
	if isAnswer(err) {
		stop()
	}
	<-done
	if !isAnswer(err) && isAnswer(refused) {
		return second, refused
	}
	return v, err
}

// read is insist for a bucket that insists, and asks once for another. What is asked again says nothing of how long
// answers take: it may end with the first.
func read[T any](
	ctx context.Context, b *Bucket, after time.Duration, ask func(context.Context) (T, error),
) (T, error) {
	var asked atomic.Bool
	one := func(ctx context.Context) (T, error) {
		if asked.Swap(true) {
			return ask(ctx)
		}
		return timed(b, func() (T, error) { return ask(ctx) })()
	}
	if !b.cfg.Insist {
		return one(ctx)
	}
	return insist(ctx, after, one)
}

// isAnswer reports whether a call that ended with err need not be made again: its time has not just passed.
func isAnswer(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

const (
	// listAgain is how long a listing takes at least until keys are read one by one beside it.
	listAgain = 250 * time.Millisecond
	// fewKeys is how many may be read so.
	fewKeys = 64
)

// listAnyhow lists the keys that begin with prefix, which are about so many. JetStream begins a listing only while the
// group of all its servers has a leader, which is not that of the bucket: its election takes up to 9 s. So a listing
// that requests wait for is made of single reads where it has no answer soon, if the keys are few.
func (b *Bucket) listAnyhow(ctx context.Context, prefix string, keys int) ([]Entry, error) {
	var asked atomic.Bool
	list := func(ctx context.Context) ([]Entry, error) {
		if asked.Swap(true) {
			return b.walk(ctx, prefix, keys)
		}
		entries, _, err := b.streams.List(ctx, b.cfg.Name, prefix)
		return entries, err
	}
	if !b.cfg.Insist {
		return list(ctx)
	}
	return insist(ctx, b.Enough(slow, listAgain), list)
}

// walk reads the keys that begin with prefix in the order of their revisions, each from the leader. So it misses none
// that was there when it began: one that is written meanwhile moves to the end, and is read again. Where they are
// many, or turn out to be, it does nothing until ctx ends.
func (b *Bucket) walk(ctx context.Context, prefix string, keys int) ([]Entry, error) {
	many := keys > fewKeys
	all := make(map[string]Entry)
	for from := uint64(1); !many; many = len(all) > 2*fewKeys { // some may be new
		e, err := insist(ctx, b.Enough(slow, askAgain), func(ctx context.Context) (Entry, error) {
			return b.streams.Next(ctx, b.cfg.Name, prefix, from)
		})
		switch {
		case errors.Is(err, ErrNoKey):
			return slices.Collect(maps.Values(all)), nil
		case err != nil:
			return nil, err
		}
		all[e.Key], from = e, e.Revision+1
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// ErrSilent is returned by UpdateSoon for a write that had no answer in time. It may land later, or never.
var ErrSilent = errors.New("buckets: a write has no answer yet")

// UpdateSoon is [Bucket.Update], but does not wait for much longer than answers take: for 0.2 s, or three times what
// the slowest took of late. Then it returns [ErrSilent], if ctx leaves the caller time to find out what became of the
// write, as after any error of unknown outcome.
//
// A write that the leader of the stream had taken when it stepped down is not answered either: see insist.
func (b *Bucket) UpdateSoon(
	ctx context.Context, key string, value []byte, last uint64,
) (revision uint64, err error) {
	began, patience := time.Now(), b.Enough(slow, b.writes.patience())
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	revision, err = b.Update(limited, key, value, last)
	switch {
	case err == nil || errors.Is(err, ErrRevision):
		b.writes.answered(time.Since(began))
	case errors.Is(err, context.DeadlineExceeded) && limited.Err() != nil && ctx.Err() == nil:
		b.writes.unanswered(patience)
		err = fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return revision, err
}

// A pace is how long writes took lately, at most. The zero value knows of none. It is safe for concurrent use.
type pace struct {
	mu      sync.Mutex
	slowest time.Duration // that was answered; it fades by a sixteenth with each
	silent  time.Duration // how long the next one is waited for, after some without an answer in a row
}

// mostSilent bounds how long writes are waited for because those before had no answer: it may be lost, and not late.
const mostSilent = time.Second

func (p *pace) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest, p.silent = max(took, p.slowest-p.slowest/16), 0
}

// unanswered notes that a write was given up after so long. The next one has more time: all may be slow now.
func (p *pace) unanswered(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = min(2*after, mostSilent)
}

func (p *pace) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(2*askAgain, slow*p.slowest, p.silent)
}
