package grants

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNone is returned when there is no stream of grants.
var ErrNone = errors.New("there is no stream of grants: no worker has written one, or it was deleted")

// ErrNoLeader is returned when the replicas of the stream of grants have no leader: a server that answers for the
// stream then may lack most acknowledged entries.
var ErrNoLeader = errors.New("the replicas of the stream of grants have no leader, so its content is unknown: " +
	"see `nats stream info`, and try again")

// A stream has no leader for a moment after a server is lost. Open waits for one.
const (
	leaderWithin = 10 * time.Second
	leaderEvery  = 250 * time.Millisecond
)

// A request to JetStream whose leader was lost with it is never answered. So each request is given up after
// answerWithin, and repeated for answersWithin.
const (
	answerWithin  = 3 * time.Second
	answersWithin = 20 * time.Second
)

// A Reader reads the stream of grants of one namespace.
type Reader struct {
	stream  jetstream.Stream
	subject string
	names   map[string]string
	within  time.Duration // see readWithin
	only    []byte        // end of each line of the tag of Only; nil reads all
	say     func(string)  // see Open
	// First and Last are the sequence numbers of the first and the last entry; Last is below First if there is none.
	First, Last uint64
	// Made is when the stream was created, and Cut means that it has dropped entries since.
	Made time.Time
	Cut  bool
}

// Open returns a reader of the present entries of a bucket. Whenever the reader waits before a repeated read, it
// calls say with the reason, unless say is nil.
func Open(ctx context.Context, js jetstream.JetStream, bucket string, say func(why string)) (*Reader, error) {
	if say == nil {
		say = func(string) {}
	}
	s, err := repeated(ctx, say, func(ctx context.Context) (jetstream.Stream, error) {
		return js.Stream(ctx, "KV_"+bucket)
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("read the stream of grants: %w", err)
	}
	info, err := led(ctx, s, say)
	if err != nil {
		return nil, err
	}
	state := info.State
	r := &Reader{
		stream: s, subject: "$KV." + bucket + ".>", names: make(map[string]string),
		First: state.FirstSeq, Last: state.LastSeq, within: readWithin, say: say,
		Made: info.Created, Cut: state.FirstSeq > max(1, info.Config.FirstSeq),
	}
	if state.Msgs == 0 {
		r.Last = r.First - 1
	}
	return r, nil
}

// Only makes the reader decode only the heads of entries that have no load of a tag.
func (r *Reader) Only(tag string) { r.only = []byte(" " + tag + "\n") }

// decode reads an entry into b.
func (r *Reader) decode(body []byte, b *Batch) error {
	if r.only != nil && !bytes.Contains(body, r.only) {
		head, _, _ := bytes.Cut(body, []byte{'\n'})
		body = head
	}
	return b.decode(body, r.names)
}

// repeated repeats a request that is not answered.
func repeated[T any](
	ctx context.Context, say func(string), request func(context.Context) (T, error),
) (answer T, err error) {
	for late := time.Now().Add(answersWithin); ; {
		once, cancel := context.WithTimeout(ctx, answerWithin)
		answer, err = request(once)
		cancel()
		lost := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
		if !lost || ctx.Err() != nil || time.Now().After(late) {
			return answer, err
		}
		say("JetStream does not answer")
	}
}

// led returns the state of a stream once it has a leader.
func led(ctx context.Context, s jetstream.Stream, say func(string)) (info *jetstream.StreamInfo, err error) {
	late := time.Now().Add(leaderWithin)
	for info = s.CachedInfo(); info.Cluster != nil && info.Cluster.Leader == ""; {
		if time.Now().After(late) {
			return nil, ErrNoLeader
		}
		select {
		case <-time.After(leaderEvery):
		case <-ctx.Done():
			return nil, ErrNoLeader
		}
		say("the stream has no leader")
		info, err = repeated(ctx, say, func(ctx context.Context) (*jetstream.StreamInfo, error) { return s.Info(ctx) })
		if ctx.Err() != nil {
			return nil, ErrNoLeader
		} else if err != nil {
			return nil, fmt.Errorf("read the stream of grants: %w", err)
		}
	}
	return info, nil
}

// An At is the place of an entry in the stream.
type At struct {
	Sequence uint64
	Time     time.Time // when JetStream stored it
}

// A server may deliver no entry for silence though it has one: a request for entries can be lost on its way to a new
// consumer in a cluster. Or the server lags behind the leader, and lacks the entry. Then another consumer is created,
// until no new entry came for readWithin.
const (
	silence    = 2 * time.Second
	readWithin = 20 * time.Second
)

// Scan passes the entries with sequence numbers from first to last to f, until f returns false. It passes all that
// the stream's leader has, or its error means that there are more. f must not keep the batch. bad counts entries that
// cannot be read.
func (r *Reader) Scan(ctx context.Context, first, last uint64, f func(At, *Batch) bool) (bad int, err error) {
	first, last = max(first, r.First), min(last, r.Last)
	for came := time.Now(); first <= last; {
		next, some, why, err := r.scan(ctx, first, last, f)
		if bad += some; err != nil || why == "" {
			return bad, err
		}
		at, _, ok, err := r.Get(ctx, next) // as the leader has it
		if at.Sequence > first {
			first, came = at.Sequence, time.Now()
		}
		switch {
		case err != nil && !errors.Is(err, ErrUnreadable):
			return bad, fmt.Errorf("%w (%s): %w", ErrIncomplete, why, err)
		case !ok || at.Sequence > last:
			return bad, nil
		case time.Since(came) > r.within || ctx.Err() != nil:
			return bad, fmt.Errorf("%w (%s; entries %d to %d are left)", ErrIncomplete, why, at.Sequence, last)
		case first > next: // the entries in between were deleted
			continue
		}
		r.say(why)
		select {
		case <-time.After(leaderEvery):
		case <-ctx.Done():
		}
	}
	return bad, nil
}

// ErrIncomplete is returned when the stream of grants has entries that could not be read.
var ErrIncomplete = errors.New("the stream of grants was not read to its end, so nothing is known of the rest: " +
	"see `nats stream info`, and try again")

// scan is Scan through one consumer. why is the reason to continue at next; "" if the scan is complete.
func (r *Reader) scan(ctx context.Context, first, last uint64, f func(At, *Batch) bool) (
	next uint64, bad int, why string, err error,
) {
	cfg := jetstream.ConsumerConfig{
		FilterSubject: r.subject, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
		InactiveThreshold: 5 * silence, // JetStream keeps 1,000 consumers of a stream by default
	}
	c, err := repeated(ctx, r.say, func(ctx context.Context) (jetstream.Consumer, error) {
		cfg.Name = rand.Text()
		return r.stream.CreateConsumer(ctx, cfg)
	})
	if err != nil {
		return first, 0, "", fmt.Errorf("read the stream of grants: %w", err)
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(4000))
	if err != nil {
		return first, 0, "", fmt.Errorf("read the stream of grants: %w", err)
	}
	defer messages.Stop()
	var b Batch
	for next, delivered := first, uint64(0); ; {
		soon, cancel := context.WithTimeout(ctx, silence)
		m, err := messages.Next(jetstream.NextContext(soon))
		cancel()
		if err != nil {
			return next, bad, "JetStream does not deliver: " + err.Error(), nil
		}
		meta, err := m.Metadata()
		if err != nil {
			return next, bad, "", err
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return next, bad, "some did not arrive", nil
		}
		if meta.Sequence.Stream != next {
			return next, bad, "the server that was asked lacks some", nil
		}
		next++
		if r.decode(m.Data(), &b) != nil {
			bad++
		} else if !f(At{meta.Sequence.Stream, meta.Timestamp}, &b) {
			return next, bad, "", nil
		}
		if next > last {
			return next, bad, "", nil
		}
		if meta.NumPending == 0 {
			return next, bad, "the server that was asked has no more", nil // it may lag behind the leader
		}
	}
}

// Get returns the entry of a sequence number, or the first one after it; ok is false if there is none.
func (r *Reader) Get(ctx context.Context, sequence uint64) (at At, b *Batch, ok bool, err error) {
	m, err := repeated(ctx, r.say, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return r.stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(r.subject))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return At{}, nil, false, nil
	}
	if err != nil {
		return At{}, nil, false, fmt.Errorf("read entry %d of the stream of grants: %w", sequence, err)
	}
	b = new(Batch)
	return At{m.Sequence, m.Time}, b, true, r.decode(m.Data, b)
}

// From returns the sequence number of the first entry that JetStream stored at t or later; it is above Last if there
// is none.
func (r *Reader) From(ctx context.Context, t time.Time) (uint64, error) {
	low, high := r.First, r.Last+1
	for low < high {
		middle := low + (high-low)/2
		at, _, ok, err := r.Get(ctx, middle)
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return 0, err
		}
		if !ok || !at.Time.Before(t) {
			high = middle
		} else {
			low = at.Sequence + 1
		}
	}
	return low, nil
}
