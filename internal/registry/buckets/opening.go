package buckets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
)

// An attempt is one attempt to open a bucket, shared by all waiting calls. err is valid once done is closed.
type attempt struct {
	done chan struct{}
	err  error
}

func (b *Bucket) failed(why error) error {
	if errors.Is(why, context.DeadlineExceeded) && !errors.Is(why, nats.ErrMaxSubscriptionsExceeded) {
		why = fmt.Errorf("no answer: JetStream has no leader, or is too far away: %w", why)
	}
	return fmt.Errorf("bucket %s cannot be opened: %w", b.bucket, why)
}

// get returns the attempt that opened the bucket. Concurrent calls share an attempt. If the call that began it ends,
// the attempt continues.
func (b *Bucket) get(ctx context.Context) (*attempt, error) {
	if a := b.opened.Load(); a != nil {
		return a, nil
	}
	b.mu.Lock()
	a := b.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		b.attempt = a
		go b.try(a)
	}
	b.mu.Unlock()
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		return nil, b.failed(ctx.Err())
	}
}

const (
	// openTimeout bounds an attempt, unless JetStream is known to be far away. It is short, since a cluster never
	// answers a request that came while it had no leader, even once a leader is elected.
	openTimeout = 3 * time.Second
	// openRequests is how many requests an attempt needs at most: to make the bucket and write its first entry.
	openRequests = 6
)

func (b *Bucket) try(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), b.latency.enough(openRequests, openTimeout))
	defer cancel()
	info, err := b.find(ctx)
	if err == nil {
		err = b.cfg.Judge(info)
	}
	if err == nil {
		err = b.found(ctx, info)
	}
	if err == nil {
		b.cfg.compare(info)
	} else {
		a.err = b.failed(err)
	}
	b.Saw(info.LastSeq)
	b.mu.Lock()
	if b.trouble = a.err; a.err != nil {
		b.attempt = nil
	} else {
		b.again.Store(true)
		b.changed.Store(nil)
		b.opened.Store(a)
	}
	b.mu.Unlock()
	close(a.done)
}

// find describes the bucket, and creates it if there is none. Some servers learn of a new bucket late, so after
// creating it find asks for up to 0.5 s.
func (b *Bucket) find(ctx context.Context) (info Info, err error) {
	if info, err = b.info(ctx); !errors.Is(err, ErrNoBucket) || b.cfg.Existing {
		return info, err
	}
	if err = b.make(ctx); err != nil && !errors.Is(err, ErrBucketExists) {
		return Info{}, err
	}
	for tries := 0; ; tries++ {
		info, err = b.info(ctx)
		if !errors.Is(err, ErrNoBucket) || tries == 10 || jitter.Sleep(ctx, 50*time.Millisecond) != nil {
			return info, err
		}
	}
}

// found writes the first entry of a bucket into which nothing was ever written.
//
// Law: a first entry lands only in the bucket for which it was made, and only if nothing was written there: the write
// demands the last revision that was read. If another bucket has replaced it since, that one has higher revisions,
// and refuses the write.
func (b *Bucket) found(ctx context.Context, i Info) error {
	isUntouched := i.Metadata[makerKey] != notFounded && i.LastSeq < max(1, i.FirstSeq)
	if !isUntouched || b.cfg.First == nil || b.cfg.Existing {
		return nil
	}
	if may, err := b.mayFound(ctx); err != nil || !may {
		return err
	}
	key, value := b.cfg.First(i.Created)
	w := Write{Value: value, Last: new(uint64), LastOfAll: &i.LastSeq}
	revision, err := b.streams.Publish(ctx, b.bucket, key, w)
	b.Saw(revision) // the revision is 0 after an error
	if errors.Is(err, ErrRevision) {
		return nil // another process was faster, or the bucket was made again
	}
	return err
}

// on opens the bucket if necessary, and calls f. If the bucket is gone, on creates it again and calls f once more;
// the new bucket has no key and no revision seen before. The bucket counts as gone only if JetStream itself says so:
// a stream that does not answer may merely lack a leader.
func on[T any](ctx context.Context, b *Bucket, f func() (T, error)) (v T, err error) {
	for range 2 {
		a, away := b.get(ctx)
		if away == nil {
			away = b.unfit()
		}
		if away != nil {
			return v, away
		}
		v, err = f()
		gone := err
		if errors.Is(err, ErrNoAnswer) {
			_, gone = b.streams.Info(ctx, b.bucket)
		}
		if !errors.Is(gone, ErrNoBucket) {
			return v, err
		}
		b.forget(a, err)
	}
	return v, b.failed(err) // not b.Trouble(), which another call may have cleared
}

// forget treats the bucket that an attempt opened as gone: the next call opens it again. It calls Lost once.
func (b *Bucket) forget(a *attempt, why error) {
	b.mu.Lock()
	first := b.opened.CompareAndSwap(a, nil)
	if first {
		b.attempt, b.trouble = nil, b.failed(why)
	}
	b.mu.Unlock()
	if first && b.cfg.Lost != nil {
		b.cfg.Lost()
	}
}

// unfit returns why the open bucket must not be used; nil if it may.
func (b *Bucket) unfit() error {
	if err := b.changed.Load(); err != nil {
		return *err
	}
	return nil
}

// note records whether the settings fit. If they do not, the bucket stays in use if it is Tolerant and takes writes.
func (b *Bucket) note(i Info) error {
	err := b.cfg.Judge(i)
	if err != nil {
		err = fmt.Errorf("bucket %s: %w", b.bucket, err)
	}
	if err == nil || b.cfg.Tolerant && i.Mirror == nil && !i.Sealed {
		b.changed.Store(nil)
	} else {
		b.changed.Store(&err)
	}
	return err
}
