package buckets

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// late is how long an entry that is missing may take to arrive.
const late = 100 * time.Millisecond

// List implements [Streams].
func (o onJetStream) List(ctx context.Context, bucket, prefix string) ([]Entry, error) {
	l := &listing{prefix: subjectPrefix(bucket)}
	if prefix == "" { // otherwise how many keys there are is not known
		info, err := o.Info(ctx, bucket)
		if err != nil {
			return nil, err
		}
		l.keys = info.Entries // without history there is one for each key
	}
	js, err := o.js.Conn().JetStream()
	if err != nil {
		return nil, err
	}
	l.sub, err = js.SubscribeSync(l.prefix+prefix+">", nats.BindStream(streamName(bucket)), nats.OrderedConsumer(),
		nats.DeliverLastPerSubject(), nats.Context(ctx))
	if err != nil {
		return nil, translate(err)
	}
	// It fails if the connection is closed; then the consumer ends by itself.
	defer func() { _ = l.sub.Unsubscribe() }()
	if l.pending, err = l.sub.InitialConsumerPending(); err != nil {
		return nil, err
	}
	return l.read(ctx)
}

// A listing is a bucket being read.
type listing struct {
	prefix   string // of all subjects
	keys     int    // when it began, markers included; 0 if unknown
	pending  uint64 // what the server had to deliver when the listing began
	received uint64
	sub      *nats.Subscription
	all      map[string]Entry
}

// read reads all entries. A key that changes meanwhile moves to the end of the stream, and the server counts it each
// time it passes: so it may report the end before it has shown every key. The missing ones follow at once.
func (l *listing) read(ctx context.Context) ([]Entry, error) {
	l.all = make(map[string]Entry, l.keys)
	ended := l.pending == 0
	for !ended || len(l.all) < l.keys {
		e, left, err := l.next(ctx, ended)
		if errors.Is(err, context.DeadlineExceeded) && ended && ctx.Err() == nil {
			break // the missing ones have expired or were purged
		}
		if err != nil {
			return nil, err
		}
		l.received++
		l.all[e.Key] = e
		ended = ended || left == 0 || l.received >= l.pending
	}
	entries := make([]Entry, 0, len(l.all))
	for _, e := range l.all {
		entries = append(entries, e)
	}
	return entries, nil
}

// next returns the next entry, and how many are left.
func (l *listing) next(ctx context.Context, ended bool) (e Entry, left uint64, err error) {
	if ended {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, late)
		defer cancel()
	}
	m, err := l.sub.NextMsgWithContext(ctx)
	if err != nil {
		return Entry{}, 0, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return Entry{}, 0, err
	}
	return Entry{
		Key: m.Subject[len(l.prefix):], Value: m.Data, Revision: meta.Sequence.Stream, Created: meta.Timestamp,
		Removed: isMarker(m.Header),
	}, meta.NumPending, nil
}
