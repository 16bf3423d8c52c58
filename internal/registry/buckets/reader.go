package buckets

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A reader reads the entries of a bucket that is open.
type reader struct {
	streams Streams
	bucket  string
	insists bool // see [Config].Insist
	latency latency
}

// read calls ask, and measures how long the answer to the first call took. If the reader insists, read also hedges:
// when no answer has come within the duration after, it calls ask a second time, after twice that duration a third
// time, and so on. The first response wins, even if it is a refusal; ask must be idempotent.
//
// A leader that steps down does not answer its open requests, and requests are lost until another server leads,
// mostly within 0.1 s. NATS does not report this, so without a hedge a read would wait for its whole timeout.
func read[T any](
	ctx context.Context, r *reader, after time.Duration, ask func(context.Context) (T, error),
) (v T, err error) {
	if !r.insists {
		return timed(&r.latency, func() (T, error) { return ask(ctx) })
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer)
	var asks sync.WaitGroup
	defer asks.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for first := true; ; first, after = false, 2*after {
		asks.Go(func() {
			a := answer{}
			if first {
				a.v, a.err = timed(&r.latency, func() (T, error) { return ask(ctx) })
			} else {
				a.v, a.err = ask(ctx)
			}
			select {
			case answers <- a:
			case <-ctx.Done():
			}
		})
		select {
		case a := <-answers:
			return a.v, a.err
		case <-time.After(after):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// info describes the bucket. The first request may be lost while the bucket is being opened, so a reader that insists
// repeats it after 0.5 s, whatever the latency.
func (r *reader) info(ctx context.Context) (Info, error) {
	const openAgain = 500 * time.Millisecond
	return read(ctx, r, openAgain, func(ctx context.Context) (Info, error) { return r.streams.Info(ctx, r.bucket) })
}

// newest returns the last entry of a key, a value or the marker of its removal; [ErrNoKey] if it never had a value.
func (r *reader) newest(ctx context.Context, key string) (Entry, error) {
	return read(ctx, r, r.latency.forRead(), func(ctx context.Context) (Entry, error) {
		return r.streams.Last(ctx, r.bucket, key)
	})
}

// since returns the entries whose keys begin with prefix, markers of removed values included, in the order of
// revisions: all with revisions of at least from and at most upTo, and perhaps the next one after these. It reads each
// from the leader by a request.
func (r *reader) since(ctx context.Context, prefix string, from, upTo uint64) (entries []Entry, err error) {
	for from <= upTo {
		e, err := read(ctx, r, r.latency.forRead(), func(ctx context.Context) (Entry, error) {
			return r.streams.Next(ctx, r.bucket, prefix, from)
		})
		if errors.Is(err, ErrNoKey) {
			break
		}
		if err != nil {
			return nil, err
		}
		entries, from = append(entries, e), e.Revision+1
	}
	return entries, nil
}

// all lists the entries whose keys begin with prefix, no older than the call. A replica that lags may serve the
// listing, so the entries that the replica lacks are read from the leader, up to the highest revision at the call. A
// key written during the call may be missing, or have its former value.
//
// Law: a listing is in the order of revisions, and ends with the last entry that its server has. So the last entry
// that a key had at the call, or one that replaced it, is listed, or has a revision above all that are listed.
func (r *reader) all(ctx context.Context, prefix string) ([]Entry, error) {
	now, err := r.info(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := r.streams.List(ctx, r.bucket, prefix)
	if err != nil {
		return nil, err
	}
	upTo, highest := now.LastSeq, uint64(0)
	for _, e := range entries {
		highest = max(highest, e.Revision)
	}
	more, err := r.since(ctx, prefix, highest+1, upTo) //mutant:behind
	if err != nil {
		return nil, err
	}
	return append(entries, more...), nil
}

// Listed returns the last entry of each key of a bucket, markers of removed values included, for a caller without a
// [Bucket]. They are no older than the call. A key written during the call may be missing, or have its former value.
func Listed(ctx context.Context, streams Streams, bucket string) (map[string]Entry, error) {
	return latest((&reader{streams: streams, bucket: bucket}).all(ctx, ""))
}

// latest returns the last of the entries of each key. In entries, a later entry of a key follows the earlier one.
func latest(entries []Entry, err error) (map[string]Entry, error) {
	all := make(map[string]Entry, len(entries))
	for _, e := range entries {
		all[e.Key] = e
	}
	return all, err
}

// A latency estimates how long JetStream takes to answer. The zero value knows nothing. It is safe for concurrent use.
type latency struct {
	mu   sync.Mutex
	last time.Duration // time of the last request
	// about is the estimate: the lower of the last two times, but an answer lowers it by at most an eighth. Requests
	// without an answer do not change it.
	about      time.Duration
	unanswered bool // the last request timed out
	// patience is the timeout of a write: three times the slowest write, lowered by a sixteenth with each answer. A
	// write without an answer doubles it, up to mostSilent, since all writes may be slow now.
	patience time.Duration
}

func (l *latency) note(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, ErrNoAnswer), errors.Is(err, errLost),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed):
		return // no answer came, but this says nothing about JetStream's speed
	case errors.Is(err, context.DeadlineExceeded):
		l.unanswered = true
	default:
		l.about, l.unanswered = max(min(took, l.last), l.about-l.about/8), false
	}
	l.last = took
}

// timed calls f, which sends a request, and notes how long the answer took.
func timed[T any](l *latency, f func() (T, error)) (T, error) {
	began := time.Now()
	v, err := f()
	l.note(time.Since(began), err)
	return v, err
}

// enough returns a timeout for requests in a row, by the estimate: see [Bucket.Enough].
func (l *latency) enough(requests int, least time.Duration) time.Duration {
	const margin = 1.25
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(least, time.Duration(float64(requests)*margin*float64(l.about)))
}

const (
	// slow: a request counts as late after this many times the usual latency.
	slow = 3
	// askAgain is the shortest wait before an unanswered read is repeated.
	askAgain = 100 * time.Millisecond
	// mostSilent bounds the timeout of a write, however many had no answer: a write that takes longer counts as lost,
	// not as late.
	mostSilent = time.Second
)

// forRead returns the wait before an unanswered read is repeated.
func (l *latency) forRead() time.Duration { return l.enough(slow, askAgain) }

// forWrite returns the timeout of a write, and a func to call when the write ends: with the time until its answer,
// or, if none came, with the time waited.
func (l *latency) forWrite() (patience time.Duration, ended func(after time.Duration, answered bool)) {
	l.mu.Lock()
	patience = max(2*askAgain, l.patience)
	l.mu.Unlock()
	return l.enough(slow, patience), func(after time.Duration, answered bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if answered {
			l.patience = max(slow*after, l.patience-l.patience/16)
		} else {
			l.patience = max(l.patience, min(2*after, mostSilent))
		}
	}
}

// Enough returns a timeout for a number of requests in a row: least, or more if JetStream answers slowly.
func (b *Bucket) Enough(requests int, least time.Duration) time.Duration {
	return b.latency.enough(requests, least)
}
