package buckets

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// idle is how long JetStream keeps a consumer that a listing left behind.
const idle = 30 * time.Second

// pull begins a listing whose entries are asked for. What a consumer delivers by itself does not cross accounts, but
// answers do.
func (o onJetStream) pull(ctx context.Context, bucket, filter string, l *listing) error {
	consumer, err := o.js.CreateConsumer(ctx, streamName(bucket), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		FilterSubject: filter, InactiveThreshold: idle, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		return translate(err)
	}
	info := consumer.CachedInfo()
	l.pending = info.NumPending
	if err := l.subscribe(); err != nil {
		return err
	}
	if l.pending == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]int{"batch": math.MaxInt32, "expires": int(idle)})
	if err != nil {
		return err
	}
	return l.conn.PublishRequest(o.api.Next(bucket, info.Name), l.sub.Subject, body)
}
