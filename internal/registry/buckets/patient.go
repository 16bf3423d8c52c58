package buckets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/jitter"
)

// Patience is how long a command waits for JetStream: after the hard loss of a server, an election takes 4 to 7 s. A
// read is first given firstPatience; each further attempt has twice as much.
const (
	Patience      = 20 * time.Second
	firstPatience = 2 * time.Second
	writePatience = 5 * time.Second
)

// ErrNoJetStream is returned if JetStream answered neither a request nor its repetitions.
var ErrNoJetStream = errors.New("JetStream does not answer: its stream has no leader, or JetStream is too far away; " +
	"try again")

// Patient returns streams for a command: each call ends within [Patience], whatever its context. A read without an
// answer is repeated, since NATS does not report that the leader of a stream was killed.
//
// Law: a write is sent once. A second copy would find what the first one wrote, and take that for another writer's.
func Patient(streams Streams) Streams { return patient{streams} }

type patient struct{ streams Streams }

var _ Streams = patient{}

// Info implements [Streams].
func (p patient) Info(ctx context.Context, bucket string) (Info, error) {
	return repeat(ctx, firstPatience, func(ctx context.Context) (Info, error) { return p.streams.Info(ctx, bucket) })
}

// Last implements [Streams].
func (p patient) Last(ctx context.Context, bucket, key string) (Entry, error) {
	return repeat(ctx, firstPatience, func(ctx context.Context) (Entry, error) {
		return p.streams.Last(ctx, bucket, key)
	})
}

// Next implements [Streams].
func (p patient) Next(ctx context.Context, bucket, prefix string, from uint64) (Entry, error) {
	return repeat(ctx, firstPatience, func(ctx context.Context) (Entry, error) {
		return p.streams.Next(ctx, bucket, prefix, from)
	})
}

// List implements [Streams]. Its first attempt may take all of [Patience]: a listing of many keys takes long, and
// streams themselves begin a listing again if no answers come.
func (p patient) List(ctx context.Context, bucket, prefix string) ([]Entry, error) {
	return repeat(ctx, Patience, func(ctx context.Context) ([]Entry, error) {
		return p.streams.List(ctx, bucket, prefix)
	})
}

// Make implements [Streams].
func (p patient) Make(ctx context.Context, c jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	return p.streams.Make(ctx, c)
}

// Publish implements [Streams].
func (p patient) Publish(ctx context.Context, bucket, key string, w Write) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	return p.streams.Publish(ctx, bucket, key, w)
}

// repeat calls ask until it gets an answer, for [Patience] at most. The parameter after is the timeout of the first
// call; each further call has twice as much.
func repeat[T any](
	ctx context.Context, after time.Duration, ask func(context.Context) (T, error),
) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for ; ; after *= 2 {
		once, cancel := context.WithTimeout(ctx, after)
		answer, err = ask(once)
		cancel()
		if err == nil || !isSilence(err) {
			return answer, err
		}
		if jitter.Sleep(ctx, 200*time.Millisecond) != nil {
			return answer, fmt.Errorf("%w (%w)", ErrNoJetStream, err)
		}
	}
}
