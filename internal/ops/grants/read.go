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

// ErrIncomplete is returned by [Reader.Read] when the stream of grants has entries that could not be read.
var ErrIncomplete = errors.New("JetStream does not deliver the rest of the stream of grants, so nothing is known of " +
	"it: see `nats stream info`, and try again")

// silence is how long a reader waits for the next entry. An election after the hard loss of a server takes 4 to 7 s.
const silence = 15 * time.Second

// A Reader reads the entries that the stream of grants had when it was opened.
type Reader struct {
	Made  time.Time // when the stream was created
	Cut   bool      // the first entries of the stream have aged out
	Last  uint64    // sequence number of the last entry
	first uint64    // sequence number of the first entry

	js      jetstream.JetStream
	streams buckets.Streams
	bucket  string
	within  time.Duration // how long to wait for the next entry
}

// A Scope says which part of the stream was read.
type Scope struct {
	From    time.Time `json:"from,omitzero"` // when the first entry was stored
	Entries int64     `json:"entries"`
	Missing uint64    `json:"missing"` // entries of known processes that were lost, and dropped grants
}

// Open asks the leader of the bucket's stream which entries it has now, and returns a reader of these.
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

// Read calls f with each entry that was stored at since or later, in the order of the stream. It leaves out second
// copies, and messages that no natsid of this version wrote.
//
// The consumer resumes by itself after a lost message. A server that lags behind the leader may deliver too few
// entries: so after a silence Read asks the leader whether there are more.
func (r *Reader) Read(ctx context.Context, since time.Time, f func(*Entry)) (s Scope, err error) {
	next := r.first
	c, err := r.js.OrderedConsumer(ctx, "KV_"+r.bucket, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"$KV." + r.bucket + ".>"}, MaxResetAttempts: 3,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
		InactiveThreshold: 10 * time.Second, // JetStream keeps 1,000 consumers of a stream by default
	})
	if err != nil {
		return s, err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(4000), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return s, err
	}
	defer messages.Stop()
	last := make(map[string]uint64) // number of the last entry, by process
	for next <= r.Last {
		soon, cancel := context.WithTimeout(ctx, r.within)
		m, err := messages.Next(jetstream.NextContext(soon))
		cancel()
		if err != nil {
			if _, none := r.streams.Next(ctx, r.bucket, "", next); errors.Is(none, buckets.ErrNoKey) {
				return s, nil // the remaining entries were deleted
			}
			return s, fmt.Errorf("%w (entries %d to %d: %w)", ErrIncomplete, next, r.Last, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return s, err
		}
		next = meta.Sequence.Stream + 1
		e := Entry{Sequence: meta.Sequence.Stream, Stored: meta.Timestamp.UTC()}
		bad := json.Unmarshal(m.Data(), &e)
		before, isKnown := last[e.Process]
		if bad != nil || e.Stored.Before(since) || e.N <= before {
			continue
		}
		if s.Entries++; s.From.IsZero() {
			s.From = e.Stored
		}
		if isKnown || !r.Cut && since.IsZero() {
			s.Missing += e.N - before - 1
		}
		last[e.Process] = e.N
		f(&e)
	}
	return s, nil
}
