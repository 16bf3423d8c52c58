package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// onSource is a [Source] in JetStream.
type onSource struct {
	js      jetstream.JetStream
	name    string
	filters []string
}

// SourceOn returns the stream of that name as a source. Of filters, patterns that do not
// overlap, one must match the subject of a message; without any all messages are read.
func SourceOn(js jetstream.JetStream, name string, filters ...string) Source {
	return &onSource{js, name, filters}
}

// State implements [Source].
func (s *onSource) State(ctx context.Context) (SourceState, error) {
	stream, err := s.js.Stream(ctx, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return SourceState{}, stop("there is no stream %s to copy", s.name)
	}
	if err != nil {
		return SourceState{}, fmt.Errorf("stream %s: %w", s.name, err)
	}
	info := stream.CachedInfo()
	if info.Config.Retention != jetstream.LimitsPolicy {
		return SourceState{}, stop("stream %s has %v retention, where messages leave it when others have read them: "+
			"copy a stream with limits", s.name, info.Config.Retention)
	}
	have := info.State
	state := SourceState{info.Created, have.FirstSeq, have.LastSeq, have.LastSeq}
	if len(s.filters) > 0 || have.NumDeleted > 0 {
		state.End, err = s.end(ctx)
	}
	return state, err
}

// end returns the sequence of the last message that is to be read; 0 if there is none.
func (s *onSource) end(ctx context.Context) (end uint64, err error) {
	filters := s.filters
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, f := range filters {
		switch m, err := messageOf(ctx, s.js, s.name, fmt.Sprintf(`{"last_by_subj":%q}`, f)); {
		case err == nil:
			end = max(end, m.Seq)
		case !errors.Is(err, errNoMessage):
			return 0, err
		}
	}
	return end, nil
}

// Before implements [Source]. A consumer that begins at the time says where it begins.
func (s *onSource) Before(ctx context.Context, t time.Time) (uint64, error) {
	c, err := s.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &t, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return 0, fmt.Errorf("stream %s cannot be read: %w", s.name, err)
	}
	return c.CachedInfo().Delivered.Stream, s.js.DeleteConsumer(ctx, s.name, c.CachedInfo().Name)
}

// Open implements [Source].
func (s *onSource) Open(ctx context.Context, after uint64) (Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	consumer, err := s.js.OrderedConsumer(ctx, s.name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, FilterSubjects: s.filters,
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s cannot be read: %w", s.name, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2 * batchMessages))
	if err != nil {
		return nil, fmt.Errorf("stream %s cannot be read: %w", s.name, err)
	}
	return &onReader{messages: messages}, nil
}

// An onReader reads what one consumer delivers: when its stream is deleted it is, too, so
// all messages come from the stream of one creation. The library would go on with a new
// consumer of a new stream.
type onReader struct {
	messages jetstream.MessagesContext
	consumer string
}

// Next implements [Reader].
func (r *onReader) Next(ctx context.Context) (Message, error) {
	m, err := r.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Message{}, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, err
	}
	if r.consumer = cmp.Or(r.consumer, meta.Consumer); meta.Consumer != r.consumer {
		return Message{}, fmt.Errorf("the consumer of stream %s was lost", meta.Stream)
	}
	return Message{meta.Sequence.Stream, meta.NumPending, m.Subject(), m.Headers(), m.Data()}, nil
}

// Close implements [Reader].
func (r *onReader) Close() { r.messages.Stop() }
