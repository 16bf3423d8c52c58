package stage

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Stream is a [Target] in JetStream.
type Stream struct {
	js    jetstream.JetStream
	name  string
	hints string // name of the bucket of hints
	// subjects are the stream's subjects when State last read them.
	subjects atomic.Pointer[[]string]
	largest  atomic.Int64 // the stream's max_msg_size in bytes, as State last read it; -1 means no limit
}

// TargetOn returns the stream of that name as a target. Its hints, positions that its messages do not show, are kept in
// the bucket named hints, which the first hint creates.
func TargetOn(js jetstream.JetStream, name, hints string) *Stream {
	return &Stream{js: js, name: name, hints: hints}
}

// State implements [Target].
func (t *Stream) State(ctx context.Context) (TargetState, error) {
	info, err := infoOf(ctx, t.js, t.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return TargetState{}, stop("there is no stream %s to copy to: create it, or let --create do that", t.name)
	}
	if err != nil {
		return TargetState{}, fmt.Errorf("stream %s: %w", t.name, err)
	}
	if err := fit(info.Config); err != nil {
		return TargetState{}, err
	}
	t.subjects.Store(&info.Config.Subjects)
	t.largest.Store(int64(info.Config.MaxMsgSize))
	s := TargetState{Created: info.Created, First: info.State.FirstSeq, Last: info.State.LastSeq}
	if s.Last == 0 {
		return s, nil
	}
	header, held, err := t.Header(ctx, s.Last)
	s.Header, s.Expired = header, !held
	if err == nil && !held { // messages expire in order: while an earlier one remains, the last was removed
		info, err = infoOf(ctx, t.js, t.name)
		s.Removed = err == nil && info.State.FirstSeq <= s.Last
	}
	return s, err
}

// Header implements [Target].
func (t *Stream) Header(ctx context.Context, seq uint64) (nats.Header, bool, error) {
	m, err := messageOf(ctx, t.js, t.name, fmt.Sprintf(`{"seq":%d}`, seq))
	if errors.Is(err, errNoMessage) {
		return nil, false, nil
	}
	return m.Header, err == nil, err
}

// fit returns why a stream cannot be a target, as a [Stop].
func fit(c jetstream.StreamConfig) error {
	why := ""
	switch {
	case c.Retention != jetstream.LimitsPolicy:
		why = fmt.Sprintf("has %v retention: readers would remove the position", c.Retention)
	case c.SubjectTransform != nil:
		why = "transforms subjects, where an expected sequence is not checked"
	case c.Mirror != nil:
		why = "is a mirror"
	case len(c.Sources) > 0:
		why = "has sources, which write to it"
	case c.AllowMsgCounter:
		why = "holds counters"
	case c.Sealed:
		why = "is sealed"
	case c.NoAck:
		why = "acknowledges nothing"
	case c.SubjectDeleteMarkerTTL > 0:
		why = "has delete markers, which the server writes to it"
	case !c.AllowAtomicPublish:
		return stop("stream %s does not take atomic batches: allow them with `nats stream edit %s --allow-batch`, or "+
			"let --create do that, on nats-server 2.12 or later", c.Name, c.Name)
	default:
		return nil
	}
	return stop("stream %s cannot be a target: it %s; copy to a stream of its own, which --create makes", c.Name, why)
}

// Copied returns the subjects of the copies of a stream's messages; the parameter from is its name. They are the
// subjects of that stream, each mapped by the func subject. If the stream's settings do not list the subjects of all
// its messages, Copied returns the parameter all.
func (t *Stream) Copied(ctx context.Context, from string, subject func(string) string, all string) (
	subjects []string, err error) {
	info, err := infoOf(ctx, t.js, from)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, stop("there is no stream %s to copy", from)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", from, err)
	}
	c := info.Config
	for _, s := range c.Subjects {
		subjects = append(subjects, subject(s))
	}
	if len(subjects) == 0 || len(c.Sources) > 0 || c.SubjectTransform != nil || slices.Contains(subjects, "") {
		subjects = []string{all}
	}
	return subjects, nil
}

// Create allows atomic batches on the target. If the target does not exist and ready returns nil, Create creates it for
// these subjects.
func (t *Stream) Create(ctx context.Context, subjects []string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	stream, err := t.js.Stream(ctx, t.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := ready(ctx); err != nil {
			return err
		}
		_, err = t.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: t.name, Subjects: subjects, AllowAtomicPublish: true, Description: "stamped by natsid",
		})
		api, ok := errors.AsType[jetstream.JetStreamError](err)
		switch {
		case !ok || api.APIError() == nil:
			return err
		case api.APIError().ErrorCode == codeOverlap:
			other := ""
			for _, s := range subjects {
				name, _ := t.js.StreamNameBySubject(ctx, s)
				other = cmp.Or(other, name)
			}
			return stop("stream %s cannot be made: stream %s takes some of %s: choose other subjects for the "+
				"copies (--into)", t.name, other, strings.Join(subjects, ", "))
		}
		return stop("stream %s cannot be made: %v", t.name, err)
	}
	if err != nil {
		return err
	}
	c := stream.CachedInfo().Config
	if c.AllowAtomicPublish {
		return nil
	}
	c.AllowAtomicPublish = true
	_, err = t.js.UpdateStream(ctx, c)
	return err
}

// mostHeaders is the most bytes of headers that JetStream takes in a message.
const mostHeaders = math.MaxUint16

// headerBytes returns the size of a message's headers.
func headerBytes(m *nats.Msg) int { return m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data) }

// Fits implements [Config].Fits for the stream. It counts the headers that Write adds. State must have been called.
func (t *Stream) Fits(copied *nats.Msg) error {
	const added = idBytes + len("Nats-Expected-Last-Sequence: 18446744073709551615\r\n") +
		len("Nats-Expected-Stream: \r\n") + len("Nats-Batch-Id: 26 characters in base 32 \r\n") +
		len("Nats-Batch-Sequence: 1000\r\n") + len("Nats-Batch-Commit: 1\r\n")
	headers := headerBytes(copied) + added + len(t.name)
	size := int64(headers + len(copied.Data))
	switch most := t.largest.Load(); {
	case headers > mostHeaders:
		return fmt.Errorf("its headers have %d bytes with its ID, and JetStream takes %d", headers, mostHeaders)
	case most >= 0 && size > most:
		return fmt.Errorf("it has %d bytes with its ID, and max_msg_size of stream %s is %d", size, t.name, most)
	case size > t.js.Conn().MaxPayload():
		return fmt.Errorf("it has %d bytes with its ID, and max_payload of the server is %d", size,
			t.js.Conn().MaxPayload())
	}
	return nil
}

// Prepare implements [Target]: it publishes all messages of a batch but the last, which alone commits the batch.
// JetStream checks the expected sequence at the commit, and drops a batch without a commit after 10 s.
func (t *Stream) Prepare(msgs []*nats.Msg, last uint64) error {
	if err := t.takes(msgs); err != nil {
		return err
	}
	msgs[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(last, 10))
	id := []string{rand.Text()}
	for i, m := range msgs {
		m.Header.Set(jetstream.ExpectedStreamHeader, t.name)
		if len(msgs) > 1 {
			m.Header[batchID] = id
			m.Header[batchSequence] = []string{strconv.Itoa(i + 1)}
		}
		if i == len(msgs)-1 {
			break
		}
		if err := t.js.Conn().PublishMsg(m); err != nil {
			return err
		}
	}
	return nil
}

// The headers of an atomic batch.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

// Write implements [Target].
func (t *Stream) Write(ctx context.Context, msgs []*nats.Msg, last uint64) error {
	final := msgs[len(msgs)-1]
	if len(msgs) > 1 {
		final.Header.Set(batchCommit, "1")
	}
	reply, err := t.js.Conn().RequestMsgWithContext(ctx, final)
	if err != nil {
		return fmt.Errorf("stream %s: %w", t.name, err)
	}
	return acknowledged(reply.Data, t.name, last+uint64(len(msgs)))
}

// takes returns a [Stop] if the stream does not take the subject of a message: that message would be missing from the
// batch.
func (t *Stream) takes(msgs []*nats.Msg) error {
	last := ""
	for _, m := range msgs {
		taken := func(pattern string) bool { return Overlap(pattern, m.Subject) }
		if m.Subject != last && !slices.ContainsFunc(*t.subjects.Load(), taken) {
			if _, err := t.State(context.Background()); err != nil { // the subjects may have changed
				return doubted(err)
			}
			if all := *t.subjects.Load(); !slices.ContainsFunc(all, taken) {
				return stop("stream %s does not take %s, only %s: give it that subject, or copies another one (--into)",
					t.name, m.Subject, strings.Join(all, ", "))
			}
		}
		last = m.Subject
	}
	return nil
}

// JetStream's error codes that a [Stream] distinguishes.
const (
	codeWrongStream   = 10060
	codeWrongLast     = 10071
	codeBatchDisabled = 10174
	codeBatchHeader   = 10177
	codeTooLarge      = 10054
	codeHeaders       = 10097
	codeSealed        = 10109
	codeNotStored     = 10077
	codeOverlap       = 10065
)

// refusals are the codes of refusals that a retry cannot fix.
var refusals = []jetstream.ErrorCode{codeBatchDisabled, codeBatchHeader, codeTooLarge, codeHeaders, codeSealed}

// acknowledged checks JetStream's answer to a write, whose last message must have the sequence end.
func acknowledged(body []byte, stream string, end uint64) error {
	var ack struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
	}
	if err := json.Unmarshal(body, &ack); err != nil {
		return fmt.Errorf("stream %s: the answer to a write is malformed: %w", stream, err)
	}
	if e := ack.Error; e != nil {
		switch {
		case e.ErrorCode == codeWrongLast:
			return fmt.Errorf("%w: %w", ErrFenced, e)
		case e.ErrorCode == codeWrongStream:
			return stop("another stream than %s takes the copies: give %s their subjects", stream, stream)
		case slices.Contains(refusals, e.ErrorCode):
			return stop("stream %s refuses the copies: %v", stream, e)
		case e.ErrorCode == codeNotStored:
			return fmt.Errorf("stream %s takes nothing: %w: raise that limit, or remove messages", stream, e)
		}
		return fmt.Errorf("stream %s: %w", stream, e)
	}
	if ack.Stream != stream || ack.Seq != end {
		return stop("the write to stream %s was acknowledged by stream %s at sequence %d, and not at %d: "+
			"the target was changed; check it before you start the stage again",
			stream, ack.Stream, ack.Seq, end)
	}
	return nil
}

// Hint implements [Target].
func (t *Stream) Hint(ctx context.Context) (Hint, error) {
	var h Hint
	kv, err := t.js.KeyValue(ctx, t.hints)
	if err == nil {
		var e jetstream.KeyValueEntry
		if e, err = kv.Get(ctx, t.name); err == nil {
			return h, json.Unmarshal(e.Value(), &h)
		}
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return h, nil
	}
	return h, fmt.Errorf("the hint of the position cannot be read: %w", err)
}

// SetHint implements [Target].
func (t *Stream) SetHint(ctx context.Context, h Hint) error {
	kv, err := t.js.KeyValue(ctx, t.hints)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = t.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: t.hints, Description: "natsid: how far streams were stamped",
		})
	}
	if err != nil {
		return err
	}
	value, err := json.Marshal(h)
	if err != nil {
		return err
	}
	for {
		held, err := kv.Get(ctx, t.name)
		switch old := (Hint{}); {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			_, err = kv.Create(ctx, t.name, value)
		case err != nil:
			return err
		case json.Unmarshal(held.Value(), &old) == nil && !h.isNewer(old):
			return nil
		default:
			_, err = kv.Update(ctx, t.name, value, held.Revision())
		}
		if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}
	}
}
