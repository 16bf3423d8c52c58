package buckets

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// late is how long an entry that is missing may take to arrive.
const late = 100 * time.Millisecond

// quiet is how long nothing may arrive before a listing is begun again. It doubles each time.
const quiet = 250 * time.Millisecond

// errQuiet says that a listing did not end, though nothing arrives any more.
var errQuiet = errors.New("buckets: the listing stands still")

// List implements [Streams]. JetStream says how many entries it will deliver, and then waits for ever for one that
// expires before its turn. So a listing that stands still is begun again.
func (o onJetStream) List(ctx context.Context, bucket, prefix string) ([]Entry, error) {
	for patience := quiet; ; patience *= 2 {
		entries, err := o.listOnce(ctx, bucket, prefix, patience)
		if !errors.Is(err, errQuiet) {
			return entries, err
		}
	}
}

func (o onJetStream) listOnce(
	ctx context.Context, bucket, prefix string, patience time.Duration,
) (entries []Entry, err error) {
	l := &listing{prefix: subjectPrefix(bucket), patience: patience}
	if prefix == "" { // otherwise how many keys there are is not known
		info, err := o.Info(ctx, bucket)
		if err != nil {
			return nil, err
		}
		l.keys = info.Entries // without history there is one for each key
	}
	begin := o.push
	if o.js.Options().APIPrefix != "" {
		begin = o.pull
	}
	ctx, ended := o.rights.await(ctx, o.prefix()+"CONSUMER.CREATE."+streamName(bucket)+".")
	defer func() { err = ended(err) }()
	err = begin(ctx, bucket, l.prefix+prefix+">", l)
	if l.sub != nil { // it fails if the connection is closed; then the consumer ends by itself
		defer func() { _ = l.sub.Unsubscribe() }()
	}
	if err != nil {
		return nil, err
	}
	return l.read(ctx)
}

// push begins a listing whose entries JetStream sends.
func (o onJetStream) push(ctx context.Context, bucket, filter string, l *listing) error {
	js, err := o.js.Conn().JetStream(nats.APIPrefix(o.prefix()))
	if err != nil {
		return err
	}
	l.sub, err = js.SubscribeSync(filter, nats.BindStream(streamName(bucket)), nats.OrderedConsumer(),
		nats.DeliverLastPerSubject(), nats.Context(ctx))
	if err != nil {
		return translate(err)
	}
	l.pending, err = l.sub.InitialConsumerPending()
	return err
}

// A listing is a bucket being read.
type listing struct {
	prefix   string        // of all subjects
	patience time.Duration // how long to wait for the next entry
	keys     int           // when it began, markers included; 0 if unknown
	pending  uint64        // what the server had to deliver when the listing began
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
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if ended {
				break // the missing ones have expired or were purged
			}
			return nil, errQuiet
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
	wait := l.patience
	if ended {
		wait = late
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := l.sub.NextMsgWithContext(ctx)
	if err != nil {
		return Entry{}, 0, err
	}
	if isStatus(m) {
		return Entry{}, 0, errQuiet
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
