package buckets

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// late is how long an entry that is missing may take to arrive.
const late = 100 * time.Millisecond

// quiet is how long nothing may arrive before a listing is begun again. It doubles each time, up to mostQuiet.
const (
	quiet     = 250 * time.Millisecond
	mostQuiet = 16 * time.Second
)

// errQuiet says that a listing did not end, though nothing arrives any more.
var errQuiet = errors.New("buckets: the listing stands still")

// List implements [Streams]. JetStream says how many entries it will deliver, and then waits for ever for one that
// expires before its turn. So a listing that stands still is begun again: without flow control, if it may be that this
// user may not answer it.
func (o onJetStream) List(ctx context.Context, bucket, prefix string) (entries []Entry, last uint64, err error) {
	flow, stalled := !o.flowless.Load(), false
	for patience := quiet; patience <= mostQuiet; patience *= 2 {
		l := &listing{conn: o.js.Conn(), prefix: subjectPrefix(bucket), patience: patience, flow: flow}
		if entries, err = o.listOnce(ctx, bucket, prefix, l); !errors.Is(err, errQuiet) {
			last = l.last
			break
		}
		stalled = stalled || l.asked
		flow = flow && !l.asked
	}
	if stalled && err == nil {
		o.flowless.Store(true)
	}
	return entries, last, err
}

// listOnce reads a bucket through a consumer, which JetStream removes by itself once nobody listens: so neither the end
// of a listing nor a missing right to delete consumers makes anyone wait.
func (o onJetStream) listOnce(ctx context.Context, bucket, prefix string, l *listing) (entries []Entry, err error) {
	if prefix == "" { // otherwise how many keys there are is not known
		now, err := o.extent(ctx, bucket, nil)
		if err != nil {
			return nil, err
		}
		l.keys, l.last = now.Entries, now.Last
	}
	begin := o.push
	if o.js.Options().APIPrefix != "" {
		begin = o.pull
	}
	ctx, ended := o.rights.await(ctx, o.api.listing(bucket))
	defer func() { err = ended(err) }()
	began := time.Now()
	err = begin(ctx, bucket, l.prefix+prefix+">", l)
	// Where JetStream is late with its answer, it is late with the entries: a listing that is begun again adds to that.
	l.patience = max(l.patience, min(4*time.Since(began), mostQuiet))
	if l.sub != nil { // it fails if the connection is closed
		defer func() { _ = l.sub.Unsubscribe() }()
	}
	if err != nil {
		return nil, err
	}
	return l.read(ctx)
}

// push begins a listing whose entries JetStream sends.
func (o onJetStream) push(ctx context.Context, bucket, filter string, l *listing) (err error) {
	if err = l.subscribe(); err != nil {
		return err
	}
	cfg := jetstream.ConsumerConfig{
		Name: rand.Text(), DeliverSubject: l.sub.Subject, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject: filter, AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1,
		MemoryStorage: true, Replicas: 1, FlowControl: l.flow,
		// A thousand workers that start at once would meet JetStream's limit of consumers, were they kept for longer.
		InactiveThreshold: time.Second,
	}
	if l.flow {
		cfg.IdleHeartbeat = heartbeat
	}
	c, err := o.js.CreatePushConsumer(ctx, streamName(bucket), cfg)
	if err != nil {
		return translate(err)
	}
	l.pending = c.CachedInfo().NumPending
	return nil
}

// mostWaiting is how many messages may wait to be read, where it is not known how many will come. They are lost beyond,
// and the listing is begun again. fewWaiting is room for those whose keys were not counted.
const (
	mostWaiting = 1 << 16
	fewWaiting  = 1 << 11
)

// subscribe subscribes to an inbox. It has room for each key twice, should all change meanwhile, and for thousands that
// are made meanwhile, as when a fleet starts. Room for mostWaiting, which the client would make, costs more than to
// list a small bucket.
func (l *listing) subscribe() (err error) {
	room := mostWaiting
	if l.keys > 0 {
		room = min(room, 2*l.keys+fewWaiting)
	}
	l.messages = make(chan *nats.Msg, room)
	l.sub, err = l.conn.ChanSubscribe(l.conn.NewInbox(), l.messages)
	return err
}

// heartbeat is how often a consumer with flow control says that it lives. JetStream wants one.
const heartbeat = 5 * time.Second

// A listing is a bucket being read.
type listing struct {
	conn     *nats.Conn
	prefix   string        // of all subjects
	patience time.Duration // how long to wait for the next entry
	keys     int           // when it began, markers included, without history one for each key; 0 if unknown
	last     uint64        // the highest revision when it began; 0 if unknown
	pending  uint64        // what the server had to deliver when the listing began
	received uint64
	flow     bool // with flow control
	asked    bool // JetStream has asked for an answer, before it sends more
	sub      *nats.Subscription
	messages chan *nats.Msg
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
	m, err := l.message(ctx)
	if err != nil {
		return Entry{}, 0, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return Entry{}, 0, err
	}
	if meta.Sequence.Consumer != l.received+1 {
		return Entry{}, 0, errQuiet // messages were lost
	}
	return Entry{
		Key: m.Subject[len(l.prefix):], Value: m.Data, Revision: meta.Sequence.Stream, Created: meta.Timestamp,
		Removed: isMarker(m.Header),
	}, meta.NumPending, nil
}

// message returns the next message that is an entry. With flow control, JetStream sends some megabytes, and goes on
// when it is answered.
func (l *listing) message(ctx context.Context) (*nats.Msg, error) {
	for {
		var m *nats.Msg
		select {
		case m = <-l.messages:
		case <-ctx.Done():
			if l.conn.IsClosed() {
				return nil, nats.ErrConnectionClosed
			}
			return nil, ctx.Err()
		}
		switch m.Header.Get("Status") {
		case "":
			return m, nil
		case "100":
			if err := l.answer(m); err != nil {
				return nil, err
			}
		default: // the end of a request for messages
			return nil, errQuiet
		}
	}
}

// answer answers a message of flow control. A heartbeat may repeat one that was not answered.
func (l *listing) answer(m *nats.Msg) error {
	subject := m.Reply
	if subject == "" {
		subject = m.Header.Get("Nats-Consumer-Stalled")
	}
	if subject == "" {
		return nil
	}
	l.asked = true
	return l.conn.Publish(subject, nil)
}
