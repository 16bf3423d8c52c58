package stage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// onSource is a [Source] in JetStream.
type onSource struct {
	js      jetstream.JetStream
	name    string
	filters []string
}

// SourceOn returns the stream of that name as the source of a stage. It reads only messages whose subject matches one
// of filters; without filters, all messages. The filters are patterns that do not overlap.
func SourceOn(js jetstream.JetStream, name string, filters ...string) Source {
	return &onSource{js, name, filters}
}

// State implements [Source].
func (s *onSource) State(ctx context.Context) (SourceState, error) {
	info, err := infoOf(ctx, s.js, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return SourceState{}, stop("there is no stream %s to copy", s.name)
	}
	if err != nil {
		return SourceState{}, fmt.Errorf("stream %s: %w", s.name, err)
	}
	if info.Config.Retention != jetstream.LimitsPolicy {
		return SourceState{}, stop("stream %s has %v retention, where messages leave it when others have read them: "+
			"copy a stream with limits", s.name, info.Config.Retention)
	}
	have := info.State
	state := SourceState{
		Created: info.Created, First: have.FirstSeq, Last: have.LastSeq, LastTime: have.LastTime, End: have.LastSeq,
	}
	if c := info.Cluster; c != nil && c.LeaderSince != nil {
		state.Leader = c.Leader + " since " + c.LeaderSince.String()
	}
	if len(s.filters) > 0 || have.NumDeleted > 0 {
		state.End, err = s.end(ctx)
	}
	return state, err
}

// end returns the sequence of the last message to be read; 0 if there is none.
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

// TimeOf implements [Source].
func (s *onSource) TimeOf(ctx context.Context, seq uint64) (time.Time, error) {
	m, err := messageOf(ctx, s.js, s.name, fmt.Sprintf(`{"seq":%d}`, seq))
	if errors.Is(err, errNoMessage) {
		err = nil
	}
	return m.Time, err
}

// Before implements [Source]. A new consumer that begins at time t counts all earlier messages as delivered.
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
	name := rand.Text()
	r := &onReader{conn: s.js.Conn(), reconnects: s.js.Conn().Stats().Reconnects,
		end: apiSubject(s.js, "CONSUMER.DELETE", s.name+"."+name)}
	consumer, err := s.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{
		Name: name, FilterSubjects: s.filters, AckPolicy: jetstream.AckNonePolicy,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	})
	if err == nil {
		err = s.heard(ctx, consumer.CachedInfo().Name)
	}
	if err == nil {
		atOnce := max(2*batchBytes, 2*int(r.conn.MaxPayload()))
		most := cmp.Or(min(consumer.CachedInfo().Config.MaxRequestBatch, 2*batchMessages), 2*batchMessages)
		r.messages, err = consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(most, atOnce))
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s cannot be read: %w", s.name, err)
	}
	return r, nil
}

// heard returns once the server of this connection knows where the consumer is. In a cluster the server learns of a
// consumer on another server a moment after the consumer is created. A request for messages before that moment is
// lost, and the library does not repeat it. The request here is one that the consumer refuses.
func (s *onSource) heard(ctx context.Context, consumer string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	next := apiSubject(s.js, "CONSUMER.MSG.NEXT", s.name+"."+consumer)
	for {
		_, err := request(ctx, s.js, next,
			[]byte(`{"batch":1,"expires":1,"idle_heartbeat":1000000000}`))
		if !errors.Is(err, nats.ErrNoResponders) {
			return nil // the consumer refused, or is silent, which the stage notices
		}
		if sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return err
		}
	}
}

// An onReader reads the messages that one consumer delivers, and fails if a message was lost on its way. The consumer
// is deleted together with its stream, so no message comes from a later stream of the same name.
type onReader struct {
	conn       *nats.Conn
	reconnects uint64 // of conn, when the reader was opened
	messages   jetstream.MessagesContext
	delivered  uint64 // number of messages
	end        string // the subject that deletes the consumer
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
	r.delivered++
	if meta.Sequence.Consumer != r.delivered {
		return Message{}, fmt.Errorf("a message of stream %s was lost on its way", meta.Stream)
	}
	// A server that lost the consumer creates it again, and counts from one: the check above would not notice messages
	// that were lost with the connection.
	if r.conn.Stats().Reconnects != r.reconnects {
		return Message{}, errors.New("the connection to NATS was lost while messages were read")
	}
	return Message{meta.Sequence.Stream, meta.Timestamp, meta.NumPending, m.Subject(), m.Headers(), m.Data()}, nil
}

// Close implements [Reader]. If the request to delete the consumer is lost, JetStream deletes it after a minute.
func (r *onReader) Close() {
	r.messages.Stop()
	_ = r.conn.Publish(r.end, nil)
}
