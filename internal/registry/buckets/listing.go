package buckets

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/jitter"
)

const (
	// mostAtOnce is how many entries a listing requests together, unless the consumer allows fewer.
	mostAtOnce = 4096
	// quiet is how long a listing waits for an entry before it is begun again; each time it waits twice as long.
	quiet = time.Second
)

// errQuiet says that an entry of a listing was lost, or that entries have ceased to arrive.
var errQuiet = errors.New("buckets: the listing stands still")

// List implements [Streams]. It pulls entries from a consumer until the consumer says that there are no more. It uses
// no push consumer: that does not work across accounts, and does not end if its last entry expires before it is sent.
func (o onJetStream) List(ctx context.Context, bucket, prefix string) (entries []Entry, err error) {
	for patience := quiet; ; patience *= 2 {
		began := time.Now()
		if entries, err = o.listOnce(ctx, bucket, prefix, patience); !errors.Is(err, errQuiet) {
			return entries, err
		}
		if ended := jitter.Sleep(ctx, patience-time.Since(began)); ended != nil { // each attempt makes a consumer
			return nil, fmt.Errorf("%w (%w)", ended, err)
		}
	}
}

// listOnce lists entries through a consumer that JetStream removes soon after its last request, so workers need no
// right to delete consumers. If consumers stayed for long, a thousand workers that start at once would reach
// JetStream's limit.
func (o onJetStream) listOnce(
	ctx context.Context, bucket, prefix string, patience time.Duration,
) (entries []Entry, err error) {
	consumer, began := rand.Text(), time.Now()
	limited, cancel := context.WithTimeout(ctx, 2*patience) // a request can be lost with the server that had it
	defer cancel()
	made, err := o.request(limited, o.api.List(bucket, consumer, prefix+">"), map[string]any{
		"stream_name": streamName(bucket),
		"config": jetstream.ConsumerConfig{
			Name: consumer, FilterSubject: subjectPrefix(bucket) + prefix + ">", AckPolicy: jetstream.AckNonePolicy,
			InactiveThreshold: patience, MemoryStorage: true, Replicas: 1,
		},
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errQuiet, err)
	}
	if err != nil {
		return nil, err
	}
	// If JetStream answers late, entries come late, too. Then wait longer, since to begin again would add load.
	l := listing{prefix: len(subjectPrefix(bucket)), patience: max(patience, 4*time.Since(began))}
	l.batch = cmp.Or(min(made.Config.MaxBatch, mostAtOnce), mostAtOnce)
	l.messages = make(chan *nats.Msg, l.batch+1) // room for the status that ends a batch, too
	sub, err := o.js.Conn().ChanSubscribe(o.js.Conn().NewInbox(), l.messages)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails if the connection is closed
	body, err := json.Marshal(map[string]any{"batch": l.batch, "no_wait": true})
	if err != nil {
		return nil, err
	}
	next := o.api.Next(bucket, consumer)
	for ended := false; err == nil && !ended; {
		ended, err = await(ctx, o.lost, func(ctx context.Context) (bool, error) {
			if err := o.js.Conn().PublishRequest(next, sub.Subject, body); err != nil {
				return false, err
			}
			return l.read(ctx)
		})
	}
	return l.entries, err
}

// A listing is the state of a pass through a bucket's entries, which a consumer delivers.
type listing struct {
	prefix   int           // the length of what all subjects begin with
	patience time.Duration // how long to wait for the next entry
	batch    int           // how many entries are asked for at once
	messages chan *nats.Msg
	entries  []Entry
}

// read reads the entries that were requested, and reports whether the listing has ended with them.
func (l *listing) read(ctx context.Context) (ended bool, err error) {
	timer := time.NewTimer(l.patience)
	defer timer.Stop()
	for range l.batch {
		var m *nats.Msg
		select {
		case m = <-l.messages:
			timer.Reset(l.patience)
		case <-timer.C:
			return false, errQuiet
		case <-ctx.Done():
			return false, ctx.Err()
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case noMessages, noMessagesOld:
			return true, nil
		default:
			return false, fmt.Errorf("%w: %s %s", errQuiet, status, m.Header.Get("Description"))
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		if meta.Sequence.Consumer != uint64(len(l.entries))+1 {
			return false, errQuiet
		}
		l.entries = append(l.entries, Entry{
			Key: m.Subject[l.prefix:], Value: m.Data, Revision: meta.Sequence.Stream, Created: meta.Timestamp,
			Removed: isMarker(m.Header),
		})
	}
	return false, nil
}

// The status by which nats-server says "no more entries", and that of nats-server before 2.11.
const noMessages, noMessagesOld = "404", "408"
