package buckets

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
)

// An opening opens a bucket when it is first needed, and judges the settings.
type opening struct {
	*reader
	cfg   Config
	maker maker

	opened  atomic.Pointer[attempt]
	changed atomic.Pointer[error] // what makes the open bucket unfit; nil if nothing

	mu      sync.Mutex
	attempt *attempt // under way, or the one that succeeded; nil if none
	trouble error    // why the bucket is not open; nil if it is
}

// An attempt is one attempt to open a bucket. mismatch and err are valid once done is closed.
type attempt struct {
	done     chan struct{}
	mismatch string
	err      error
}

func (o *opening) failed(why error) error {
	if errors.Is(why, context.DeadlineExceeded) && !errors.Is(why, nats.ErrMaxSubscriptionsExceeded) {
		why = fmt.Errorf("no answer: JetStream has no leader, or is too far away: %w", why)
	}
	return fmt.Errorf("bucket %s cannot be opened: %w", o.bucket, why)
}

// get returns the attempt that opened the bucket. Concurrent calls share an attempt, which goes on when the call that
// began it ends.
func (o *opening) get(ctx context.Context) (*attempt, error) {
	if a := o.opened.Load(); a != nil {
		return a, nil
	}
	o.mu.Lock()
	a := o.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		o.attempt = a
		go o.try(a)
	}
	o.mu.Unlock()
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		return nil, o.failed(ctx.Err())
	}
}

const (
	// openTimeout bounds an attempt, unless JetStream is known to be far away. A cluster never answers a request that
	// it got while it had no leader, even once a leader is elected.
	openTimeout = 3 * time.Second
	// openRequests is how many requests an attempt needs at most: to make a bucket, and to write what it is.
	openRequests = 6
)

func (o *opening) try(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), o.latency.enough(openRequests, openTimeout))
	defer cancel()
	info, err := o.find(ctx)
	if err == nil {
		a.mismatch = o.cfg.mismatch(info)
		err = o.cfg.Judge(info)
	}
	if err == nil {
		err = o.found(ctx, info)
	}
	if err != nil {
		a.err = o.failed(err)
	}
	o.maker.saw(info.LastSeq)
	o.mu.Lock()
	if o.trouble = a.err; a.err != nil {
		o.attempt = nil
	} else {
		o.maker.again.Store(true)
		o.changed.Store(nil)
		o.opened.Store(a)
	}
	o.mu.Unlock()
	close(a.done)
}

// find describes the bucket, and creates it if there is none. Some servers learn of a new bucket late, so find asks for
// up to 0.5 s more.
func (o *opening) find(ctx context.Context) (info Info, err error) {
	if info, err = o.info(ctx); !errors.Is(err, ErrNoBucket) || o.cfg.Existing {
		return info, err
	}
	if err = o.maker.make(ctx, o.cfg, o.streams); err != nil && !errors.Is(err, ErrBucketExists) {
		return Info{}, err
	}
	for tries := 0; ; tries++ {
		info, err = o.info(ctx)
		if !errors.Is(err, ErrNoBucket) || tries == 10 || jitter.Sleep(ctx, 50*time.Millisecond) != nil {
			return info, err
		}
	}
}

// found writes the first entry of a bucket into which nothing was ever written.
//
// Law: the write demands that nothing was written into this very bucket. A bucket that took its place has higher
// revisions, so of all first entries of buckets of a name only one is ever written.
func (o *opening) found(ctx context.Context, i Info) error {
	isUntouched := i.Metadata[makerKey] != notFounded && i.LastSeq < max(1, i.FirstSeq)
	if !isUntouched || o.cfg.First == nil || o.cfg.MayFound != nil && o.cfg.MayFound(ctx) != nil {
		return nil
	}
	key, value := o.cfg.First(i.Created)
	revision, err := o.streams.Publish(ctx, o.bucket, key, Write{Value: value, Last: new(uint64), LastOfAll: &i.LastSeq})
	o.maker.saw(revision) // the revision is 0 after an error
	if errors.Is(err, ErrRevision) {
		return nil // another process was faster, or the bucket was made again
	}
	return err
}

// on calls f with the bucket, and opens it first if necessary. If the bucket is gone, on creates it again and calls f
// with the new one, where f finds no key and no revision seen before. The bucket is gone only if JetStream itself says
// so: a stream without an answer may merely lack a leader.
func on[T any](ctx context.Context, o *opening, f func() (T, error)) (v T, err error) {
	for range 2 {
		a, away := o.get(ctx)
		if away == nil {
			away = o.unfit()
		}
		if away != nil {
			return v, away
		}
		v, err = f()
		gone := err
		if errors.Is(err, ErrNoAnswer) {
			_, gone = o.streams.Info(ctx, o.bucket)
		}
		if !errors.Is(gone, ErrNoBucket) {
			return v, err
		}
		o.forget(a, err)
	}
	return v, o.failed(err) // not Trouble, which another call may have cleared
}

// forget closes the bucket that an attempt opened, and reports its loss once.
func (o *opening) forget(a *attempt, why error) {
	o.mu.Lock()
	first := o.opened.CompareAndSwap(a, nil)
	if first {
		o.attempt, o.trouble = nil, o.failed(why)
	}
	o.mu.Unlock()
	if first && o.cfg.Lost != nil {
		o.cfg.Lost()
	}
}

// unfit returns why the open bucket is not used, nil if it is.
func (o *opening) unfit() error {
	if err := o.changed.Load(); err != nil {
		return *err
	}
	return nil
}

// note records whether the settings fit. An unfit bucket stays in use if it is tolerant and takes writes: its owner
// stops by itself.
func (o *opening) note(i Info) error {
	err := o.cfg.Judge(i)
	if err != nil {
		err = fmt.Errorf("bucket %s: %w", o.bucket, err)
	}
	if err == nil || o.cfg.Tolerant && i.Mirror == nil && !i.Sealed {
		o.changed.Store(nil)
	} else {
		o.changed.Store(&err)
	}
	return err
}
