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

// silence is how long a reader waits for the next entry. An election after the hard loss of a server takes 4 to 7 s.
var silence = 15 * time.Second

// sameAge is how far apart in time the bucket of marks and the stream of grants may have been created, for the stream
// to count as a record of all writes of marks.
const sameAge = 10 * time.Minute

// Read adds the entries that the stream of grants has now, as its leader says; it leaves out messages that no natsid of
// this version wrote. The parameter marks is when the bucket of marks was made: it decides whether the history is
// Whole.
//
// The consumer resumes by itself after a lost message. A server that lags behind the leader may deliver too few
// entries: so after a silence Read asks the leader whether there are more.
func (h *History) Read(
	ctx context.Context, js jetstream.JetStream, streams buckets.Streams, bucket string, marks time.Time,
) error {
	info, err := streams.Info(ctx, bucket)
	if errors.Is(err, buckets.ErrNoBucket) {
		return fmt.Errorf("there is no stream of grants, bucket %s: no worker has written one, or it was deleted; "+
			"check --nats and --namespace", bucket)
	}
	if err != nil {
		return fmt.Errorf("read the stream of grants: %w", err)
	}
	c, err := js.OrderedConsumer(ctx, "KV_"+bucket, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"$KV." + bucket + ".>"}, MaxResetAttempts: 3,
		InactiveThreshold: 10 * time.Second, // JetStream keeps 1,000 consumers of a stream by default
	})
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(4000), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return err
	}
	defer messages.Stop()
	h.Whole = h.Since.IsZero() && info.Created.Sub(marks).Abs() < sameAge
	for next := max(1, info.FirstSeq); next <= info.LastSeq; {
		soon, cancel := context.WithTimeout(ctx, silence)
		m, err := messages.Next(jetstream.NextContext(soon))
		cancel()
		if err != nil {
			if _, none := streams.Next(ctx, bucket, "", next); errors.Is(none, buckets.ErrNoKey) {
				return nil // the remaining entries were deleted
			}
			return fmt.Errorf("JetStream does not deliver grants, entries %d to %d: see `nats stream info`, and try "+
				"again: %w", next, info.LastSeq, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		seq := meta.Sequence.Stream
		h.Whole = h.Whole && (h.Entries > 0 || seq <= next) // else the first ones have aged out
		next = seq + 1
		var e Entry
		if json.Unmarshal(m.Data(), &e) == nil {
			e.Entry, e.Stored = seq, meta.Timestamp.UTC()
			h.Add(&e)
		}
	}
	return nil
}
