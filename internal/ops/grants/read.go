package grants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// ErrNone is returned when there is no stream of grants.
var ErrNone = errors.New("there is no stream of grants: no worker has written one, or it was deleted")

// ErrIncomplete is returned when the stream of grants has entries that could not be read.
var ErrIncomplete = errors.New("JetStream does not deliver the rest of the stream of grants, so nothing is known of " +
	"it: see `nats stream info`, and try again")

// silence is how long a reader waits for the next entry. An election after the hard loss of a server takes 4 to 7 s.
const silence = 15 * time.Second

// A Reader reads the entries that the stream of grants had when it was opened.
type Reader struct {
	Made  time.Time // when the stream was created
	Cut   bool      // its first entries are gone
	Last  uint64    // sequence number of the last entry
	first uint64    // and of the first one

	js      jetstream.JetStream
	streams buckets.Streams
	bucket  string
	within  time.Duration // see silence
}

// A Scope is what was read.
type Scope struct {
	From       time.Time `json:"from,omitzero"` // when the first entry was stored
	Entries    int64     `json:"entries"`
	Missing    uint64    `json:"missing"`    // entries between others of one process
	Unreadable int       `json:"unreadable"` // entries that no natsid of this version wrote
}

// An At is the place of an entry in the stream.
type At struct {
	Sequence uint64
	Time     time.Time // when JetStream stored it
}

// Open returns a reader of the entries that the leader of a bucket's stream has now.
func Open(ctx context.Context, js jetstream.JetStream, bucket string) (*Reader, error) {
	streams := buckets.Patient(buckets.OnJetStream(js))
	info, err := streams.Info(ctx, bucket)
	if errors.Is(err, buckets.ErrNoBucket) {
		return nil, ErrNone
	}
	var first buckets.Entry
	if err == nil {
		first, err = streams.Next(ctx, bucket, "", 1)
	}
	if errors.Is(err, buckets.ErrNoKey) {
		first.Revision, err = info.LastSeq+1, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the stream of grants: %w", err)
	}
	return &Reader{
		Made: info.Created, Cut: first.Revision > max(1, info.FirstSeq), Last: info.LastSeq, first: first.Revision,
		js: js, streams: streams, bucket: bucket, within: silence,
	}, nil
}

// Read passes all entries that were stored at since or later to f, in the order of the stream, or returns an error. It
// leaves out second copies.
func (r *Reader) Read(ctx context.Context, since time.Time, f func(At, *Entry)) (s Scope, err error) {
	last := make(map[string]uint64) // by process, the number of its last entry
	err = r.scan(ctx, func(at At, body []byte) {
		if at.Time.Before(since) {
			return
		}
		if s.Entries++; s.From.IsZero() {
			s.From = at.Time.UTC()
		}
		var e Entry
		if err := json.Unmarshal(body, &e); err != nil || !e.isValid() {
			s.Unreadable++
			return
		}
		before, known := last[e.Process]
		if e.N <= before {
			return
		}
		if known || !r.Cut && since.IsZero() {
			s.Missing += e.N - before - 1
		}
		last[e.Process] = e.N
		f(at, &e)
	})
	return s, err
}

// scan passes all messages to f. A server may deliver nothing though there is more: it lags behind the leader, or a
// request was lost on the way to a new consumer. So then scan asks the leader, and makes another consumer.
func (r *Reader) scan(ctx context.Context, f func(At, []byte)) error {
	for next, heard := r.first, time.Now(); next <= r.Last; {
		err := r.pull(ctx, &next, func(at At, body []byte) {
			heard = time.Now()
			f(at, body)
		})
		if err == nil {
			return nil
		}
		if _, none := r.streams.Next(ctx, r.bucket, "", next); errors.Is(none, buckets.ErrNoKey) {
			return nil // they were deleted
		}
		if ctx.Err() != nil || time.Since(heard) > r.within {
			return fmt.Errorf("%w (entries %d to %d: %w)", ErrIncomplete, next, r.Last, err)
		}
	}
	return nil
}

// pull is scan through one consumer. It advances next.
func (r *Reader) pull(ctx context.Context, next *uint64, f func(At, []byte)) error {
	soon, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := r.js.CreateConsumer(soon, "KV_"+r.bucket, jetstream.ConsumerConfig{
		FilterSubject: "$KV." + r.bucket + ".>", AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next,
		InactiveThreshold: 10 * time.Second, // JetStream keeps 1,000 consumers of a stream by default
	})
	if err != nil {
		<-soon.Done() // no hurry
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(4000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for delivered := uint64(1); *next <= r.Last; delivered++ {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		m, err := messages.Next(jetstream.NextContext(soon))
		cancel()
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != delivered {
			return errors.New("some did not arrive")
		}
		*next = meta.Sequence.Stream + 1
		f(At{meta.Sequence.Stream, meta.Timestamp}, m.Data())
	}
	return nil
}
