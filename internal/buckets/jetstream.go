package buckets

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// onJetStream is the [Streams] of a JetStream. What it writes and reads is what the KV interface of any NATS client
// and `nats kv` write and read (ADR-8).
type onJetStream struct {
	js     jetstream.JetStream
	api    API
	rights *rights
	// flowless says that listings go without flow control: this user may not answer it.
	flowless *atomic.Bool
}

// OnJetStream returns the streams of a JetStream. Its connection should keep its error handler from then on: that one
// is called after one of this package.
func OnJetStream(js jetstream.JetStream) Streams {
	opts := js.Options()
	return onJetStream{js, APIOf(opts.Domain, opts.APIPrefix), rightsOn(js.Conn()), new(atomic.Bool)}
}

// Info implements [Streams].
func (o onJetStream) Info(ctx context.Context, bucket string) (Info, error) {
	ctx, ended := o.rights.await(ctx, o.api.Info(bucket))
	i, err := fromLeader(ctx, func() (*jetstream.StreamInfo, *jetstream.ClusterInfo, error) {
		s, err := o.js.Stream(ctx, streamName(bucket))
		if err != nil {
			return nil, nil, err
		}
		return s.CachedInfo(), s.CachedInfo().Cluster, nil
	})
	if err = ended(err); err != nil {
		return Info{}, translate(err)
	}
	return Info{
		Settings: settings(bucket, i.Config),
		Created:  i.Created, Now: i.TimeStamp, LastSeq: i.State.LastSeq, Entries: int(i.State.Msgs),
		Clustered: i.Cluster != nil && i.Cluster.RaftGroup != "",
	}, nil
}

// Now implements [Streams]. Of a description of the stream it reads little else, which is most of the work.
func (o onJetStream) Now(ctx context.Context, bucket string) (time.Time, error) {
	now, err := fromLeader(ctx, func() (time.Time, *jetstream.ClusterInfo, error) {
		var answer struct {
			Now     time.Time              `json:"ts"`
			Cluster *jetstream.ClusterInfo `json:"cluster"`
		}
		err := o.request(ctx, o.api.Info(bucket), nil, &answer)
		return answer.Now, answer.Cluster, err
	})
	if err == nil && now.IsZero() {
		err = errors.New("buckets: nats-server does not tell its time; run 2.10 or later")
	}
	return now, err
}

// extent is how many entries a bucket has, markers included, its highest revision, and the subjects asked for.
type extent struct {
	Entries  int               `json:"messages"`
	Last     uint64            `json:"last_seq"`
	Subjects map[string]uint64 `json:"subjects"`
}

// extent reads little else of a description of the stream.
func (o onJetStream) extent(ctx context.Context, bucket string, filter map[string]string) (extent, error) {
	return fromLeader(ctx, func() (extent, *jetstream.ClusterInfo, error) {
		var answer struct {
			State   extent                 `json:"state"`
			Cluster *jetstream.ClusterInfo `json:"cluster"`
		}
		err := o.request(ctx, o.api.Info(bucket), filter, &answer)
		return answer.State, answer.Cluster, err
	})
}

const (
	// ledSoon is how long a member of a stream's group that is not its leader has until the group is asked again.
	ledSoon = 20 * time.Millisecond
	// ledLate is how long a group may take to have a leader.
	ledLate = 5 * time.Second
)

// fromLeader describes a stream until the leader of its group does, for ledLate at most.
//
// Law: what the leader describes contains each write that was acknowledged before. In the group of a new stream the
// member that is to lead describes it too, until it has taken in that another one does: it may lack all that that one
// has taken (jsStreamInfoRequest of nats-server 2.15.2). A leader that was deposed and has not heard of it still counts
// here, and for some milliseconds one that was elected in the first seconds of the stream.
func fromLeader[T any](ctx context.Context, describe func() (T, *jetstream.ClusterInfo, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, ledLate)
	defer cancel()
	for {
		v, group, err := describe()
		if err != nil || isByLeader(group) {
			return v, err
		}
		select {
		case <-time.After(ledSoon):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// isByLeader reports whether a description comes from the leader: it names the other members of its group as replicas.
func isByLeader(group *jetstream.ClusterInfo) bool {
	return group == nil || group.Leader != "" && !slices.ContainsFunc(group.Replicas, func(p *jetstream.PeerInfo) bool {
		return p.Name == group.Leader
	})
}

// Keys implements [Streams].
func (o onJetStream) Keys(ctx context.Context, bucket, prefix string) (keys []string, last uint64, err error) {
	filter := map[string]string{"subjects_filter": subjectPrefix(bucket) + prefix + ">"}
	now, err := o.extent(ctx, bucket, filter)
	keys = make([]string, 0, len(now.Subjects))
	for subject := range now.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, subjectPrefix(bucket)))
	}
	return keys, now.Last, err
}

// Next implements [Streams]. As for Last, the request goes to the leader.
func (o onJetStream) Next(ctx context.Context, bucket, prefix string, from uint64) (Entry, error) {
	var answer lastAnswer
	next := struct {
		From    uint64 `json:"seq"`
		Subject string `json:"next_by_subj"`
	}{from, subjectPrefix(bucket) + prefix + ">"}
	if err := o.request(ctx, o.api.Get(bucket), next, &answer); err != nil {
		return Entry{}, err
	}
	return answer.entry(bucket, strings.TrimPrefix(answer.Message.Subject, subjectPrefix(bucket)))
}

// makerKey is where [Settings].Maker stands in the metadata of a stream.
const makerKey = "natsid-maker"

// ownerKey is where [Settings].Owner stands there.
const ownerKey = "natsid-registry"

func settings(bucket string, c jetstream.StreamConfig) Settings {
	s := Settings{
		Description: c.Description, FirstSeq: c.FirstSeq, MaxAge: c.MaxAge, Replicas: c.Replicas,
		History: c.MaxMsgsPerSubject, DenyPurge: c.DenyPurge, AllowRollup: c.AllowRollup,
		MaxMsgs: c.MaxMsgs, MaxBytes: c.MaxBytes, DiscardNew: c.Discard == jetstream.DiscardNew, Sealed: c.Sealed,
		WorkQueue: c.Retention != jetstream.LimitsPolicy, Maker: c.Metadata[makerKey], Owner: c.Metadata[ownerKey],
	}
	if len(c.Subjects) != 1 || c.Subjects[0] != subjectPrefix(bucket)+">" {
		s.Subjects = append([]string{}, c.Subjects...)
	}
	if c.SubjectTransform != nil {
		s.Subjects = []string{c.SubjectTransform.Destination}
	}
	if c.Mirror != nil {
		s.Mirror = c.Mirror.Name
	}
	for _, source := range c.Sources {
		s.Sources = append(s.Sources, source.Name)
	}
	return s
}

// Make implements [Streams]. It makes the stream that [jetstream.KeyValueConfig] describes (ADR-8), with FirstSeq and
// without AllowDirect: see the package comment.
func (o onJetStream) Make(ctx context.Context, bucket string, s Settings) error {
	duplicates := 2 * time.Minute
	if s.MaxAge > 0 {
		duplicates = min(duplicates, s.MaxAge)
	}
	discard := jetstream.DiscardOld
	if s.DiscardNew {
		discard = jetstream.DiscardNew
	}
	metadata := make(map[string]string)
	for key, value := range map[string]string{makerKey: s.Maker, ownerKey: s.Owner} {
		if value != "" {
			metadata[key] = value
		}
	}
	cfg := jetstream.StreamConfig{
		Name:              streamName(bucket),
		Description:       s.Description,
		Subjects:          []string{subjectPrefix(bucket) + ">"},
		FirstSeq:          s.FirstSeq,
		MaxMsgsPerSubject: s.History,
		MaxAge:            s.MaxAge,
		MaxBytes:          cmp.Or(s.MaxBytes, -1),
		Compression:       jetstream.NoCompression, // nats-server 2.15 breaks compressed ones when it is killed
		MaxMsgSize:        -1,
		MaxMsgs:           cmp.Or(s.MaxMsgs, -1),
		MaxConsumers:      -1,
		Replicas:          s.Replicas,
		Discard:           discard,
		Duplicates:        duplicates,
		AllowRollup:       s.AllowRollup,
		DenyDelete:        true,
		DenyPurge:         s.DenyPurge,
		Metadata:          metadata,
	}
	if s.Async {
		cfg.PersistMode = jetstream.AsyncPersistMode
		if err := o.create(ctx, bucket, cfg); err == nil || errors.Is(err, ErrBucketExists) {
			return err
		}
		cfg.PersistMode = jetstream.DefaultPersistMode // a server before 2.12 may refuse what it does not know
	}
	return o.create(ctx, bucket, cfg)
}

// create makes a stream. A server that is still removing the files of one that was deleted a moment ago may refuse to
// make another of its name, so create tries again for up to half a second.
func (o onJetStream) create(ctx context.Context, bucket string, c jetstream.StreamConfig) error {
	ctx, ended := o.rights.await(ctx, o.api.Create(bucket))
	for tries := 0; ; tries++ {
		_, err := o.js.CreateStream(ctx, c)
		api, ok := errors.AsType[jetstream.JetStreamError](err)
		if !ok || api.APIError() == nil || api.APIError().ErrorCode != codeNoStore || tries == 5 {
			return translate(ended(err))
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return translate(ended(ctx.Err()))
		}
	}
}

// Defend implements [Streams]. It changes the settings in the JSON that the server returned, so that settings which
// this client does not know stay as they are.
func (o onJetStream) Defend(ctx context.Context, bucket, maker string) error {
	var info struct {
		Config map[string]any `json:"config"`
	}
	if err := o.request(ctx, o.api.Info(bucket), nil, &info); err != nil {
		return err
	}
	info.Config["deny_purge"] = true
	delete(info.Config, "allow_rollup_hdrs")
	metadata, _ := info.Config["metadata"].(map[string]any)
	if metadata == nil {
		metadata = make(map[string]any)
	}
	metadata[makerKey] = maker
	info.Config["metadata"] = metadata
	return o.request(ctx, o.api.Update(bucket), info.Config, nil)
}

// request sends a request to JetStream's interface and decodes its answer into out, unless out is nil.
func (o onJetStream) request(ctx context.Context, subject string, in, out any) error {
	body, err := json.Marshal(in)
	if in == nil || err != nil {
		body = nil
	}
	ctx, ended := o.rights.await(ctx, subject)
	msg, err := o.js.Conn().RequestWithContext(ctx, subject, body)
	err = ended(err)
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: %w", jetstream.ErrJetStreamNotEnabled, err)
	}
	if err != nil {
		return translate(err)
	}
	if err := decode(msg.Data, out); err != nil {
		if refusal, ok := errors.AsType[*jetstream.APIError](err); ok {
			return translate(refusal)
		}
		return fmt.Errorf("buckets: unreadable answer to %s: %w", subject, err)
	}
	return nil
}

// decode decodes an answer of JetStream's interface into out, unless out is nil. An answer that refuses is a
// [*jetstream.APIError].
func decode(data []byte, out any) error {
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if out == nil || bytes.Contains(data, []byte(`"error"`)) {
		if err := json.Unmarshal(data, &answer); err != nil {
			return err
		}
	}
	if answer.Error != nil {
		return answer.Error
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// Last implements [Streams]. The request goes to the leader whatever the stream allows.
func (o onJetStream) Last(ctx context.Context, bucket, key string) (Entry, error) {
	var answer lastAnswer
	last := map[string]string{"last_by_subj": subjectPrefix(bucket) + key}
	if err := o.request(ctx, o.api.Get(bucket), last, &answer); err != nil {
		return Entry{}, err
	}
	return answer.entry(bucket, key)
}

// A lastAnswer is JetStream's answer to a request for a message of a stream.
type lastAnswer struct {
	Message struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
}

func (a lastAnswer) entry(bucket, key string) (Entry, error) {
	m := a.Message
	if m.Sequence == 0 {
		return Entry{}, fmt.Errorf("buckets: the answer of bucket %s for key %s holds no message", bucket, key)
	}
	var header nats.Header
	if len(m.Header) > 0 {
		var err error
		if header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return Entry{}, err
		}
	}
	return Entry{Key: key, Value: m.Data, Revision: m.Sequence, Created: m.Time, Removed: isMarker(header)}, nil
}

// The headers of markers (ADR-8, ADR-43).
const (
	operationHeader = "KV-Operation"
	reasonHeader    = "Nats-Marker-Reason"
)

// isMarker reports whether a message says that its key has no value any more.
func isMarker(h nats.Header) bool {
	if op := h.Get(operationHeader); op != "" {
		return op == "DEL" || op == "PURGE"
	}
	return h.Get(reasonHeader) != ""
}

// Publish implements [Streams].
func (o onJetStream) Publish(ctx context.Context, bucket, key string, w Write) (revision uint64, err error) {
	m := nats.NewMsg(o.api.Write(bucket, key))
	m.Data = w.Value
	switch w.Operation {
	case Delete:
		m.Header.Set(operationHeader, "DEL")
	case Purge:
		m.Header.Set(operationHeader, "PURGE")
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	}
	var opts []jetstream.PublishOpt
	if w.Last != nil {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(*w.Last))
	}
	if w.LastOfAll != nil {
		opts = append(opts, jetstream.WithExpectLastSequence(*w.LastOfAll))
	}
	ctx, ended := o.rights.await(ctx, m.Subject)
	ack, err := o.js.PublishMsg(ctx, m, opts...)
	if err = ended(err); err != nil {
		return 0, translate(err)
	}
	return ack.Sequence, nil
}

// JetStream's error codes that have a meaning here.
const (
	codeAccountFull     = 10002
	codeFewServers      = 10005 // and its text says whether one of them is away
	codeNoResources     = 10023
	codeMemoryFull      = 10028
	codeNoMessage       = 10037
	codeStorageFull     = 10047
	codeNoStore         = 10049
	codeStreamExists    = 10058
	codeNoStream        = 10059
	codeWrongLast       = 10071
	codeStoreFailed     = 10077
	codeOffline         = 10118
	codeOneServer       = 10074
	codeWrongLastOthers = 10164 // with replicas, while another write to the key is under way
)

// translate returns an error of this package for one of JetStream's, and keeps the original within it.
func translate(err error) error {
	if api, ok := errors.AsType[jetstream.JetStreamError](err); ok && api.APIError() != nil {
		switch api.APIError().ErrorCode {
		case codeFewServers:
			if strings.Contains(err.Error(), "insufficient storage") {
				return fmt.Errorf("%w: %w", ErrFull, err)
			}
			return fmt.Errorf("%w: %w", ErrFewServers, err)
		case codeOneServer:
			return fmt.Errorf("%w: %w", ErrOneServer, err)
		case codeAccountFull, codeNoResources, codeMemoryFull, codeStorageFull, codeStoreFailed:
			return fmt.Errorf("%w: %w", ErrFull, err)
		case codeNoMessage:
			return fmt.Errorf("%w: %w", ErrNoKey, err)
		case codeStreamExists:
			return fmt.Errorf("%w: %w", ErrBucketExists, err)
		case codeNoStream:
			return fmt.Errorf("%w: %w", ErrNoBucket, err)
		case codeWrongLast, codeWrongLastOthers:
			return fmt.Errorf("%w: %w", ErrRevision, err)
		case codeOffline:
			return &named{"no NATS server that holds its stream is up; start one again", err}
		}
	}
	switch {
	case errors.Is(err, nats.ErrStreamNotFound): // of a listing
		return fmt.Errorf("%w: %w", ErrNoBucket, err)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: %w", ErrNoAnswer, err)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // of a connection without a buffer: it is not connected
		return &named{"not connected to NATS", err}
	case errors.Is(err, nats.ErrNoResponders):
		return &named{"JetStream does not answer; enable it in the nats-server, or name its domain with --js-domain",
			err}
	}
	return err
}

// A named error is one of the NATS client in an operator's words.
type named struct {
	text  string
	cause error
}

func (n *named) Error() string { return n.text }

// Unwrap returns the client's error.
func (n *named) Unwrap() error { return n.cause }

// isKey reports whether a bucket can have the key: the rule of the KV interface.
func isKey(key string) bool {
	return key != "" && key[0] != '.' && key[len(key)-1] != '.' &&
		strings.Trim(key, keyChars) == "" && !strings.Contains(key, "..")
}

const keyChars = "-/_=.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
