package buckets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/jitter"
)

// onJetStream implements [Streams] on a real JetStream. It writes and reads the same as `nats kv` and the KV interface
// of NATS clients (ADR-8), but does not use that interface: on a stream with AllowDirect, as `nats kv add` makes it,
// the interface reads from any replica.
type onJetStream struct {
	js   jetstream.JetStream
	api  API
	lost *lost
}

var _ Streams = onJetStream{}

// Connect returns the JetStream that a connection reaches: directly, or through a domain or a prefix.
func Connect(nc *nats.Conn, domain, prefix string) (jetstream.JetStream, error) {
	switch {
	case domain != "":
		return jetstream.NewWithDomain(nc, domain)
	case prefix != "":
		return jetstream.NewWithAPIPrefix(nc, prefix)
	}
	return jetstream.New(nc)
}

// OnJetStream returns the streams of a JetStream. It sets a handler of disconnections on the connection, which also
// calls the handler that was set before; do not replace it later.
func OnJetStream(js jetstream.JetStream) Streams {
	opts := js.Options()
	return onJetStream{js, APIOf(opts.Domain, opts.APIPrefix), lostOn(js.Conn())}
}

// An answer is JetStream's reply to an API request of this package.
type answer struct {
	Error  *jetstream.APIError `json:"error"`
	Config struct {
		jetstream.StreamConfig
		MaxBatch int `json:"max_batch"` // in the configuration of a consumer; 0 is no limit
	} `json:"config"`
	Created time.Time `json:"created"`
	Now     time.Time `json:"ts"`
	State   struct {
		Last uint64 `json:"last_seq"`
	} `json:"state"`
	Cluster *jetstream.ClusterInfo `json:"cluster"`
	Message struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
}

// decode decodes an answer. If JetStream refused the request, the error is a [*jetstream.APIError].
func decode(data []byte) (a answer, err error) {
	if err = json.Unmarshal(data, &a); err == nil && a.Error != nil {
		err = a.Error
	}
	return a, err
}

// request sends a request to JetStream's API, and awaits the answer.
func (o onJetStream) request(ctx context.Context, subject string, in any) (answer, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return answer{}, err
		}
	}
	return await(ctx, o.lost, func(ctx context.Context) (answer, error) {
		m, err := o.js.Conn().RequestWithContext(ctx, subject, body)
		if err != nil {
			return answer{}, err
		}
		a, err := decode(m.Data)
		if _, refused := errors.AsType[*jetstream.APIError](err); err != nil && !refused {
			err = fmt.Errorf("buckets: unreadable answer to %s: %w", subject, err)
		}
		return a, err
	})
}

// Info implements [Streams]. It asks until the leader of the stream's group answers, for five seconds at most.
//
// Law: the description includes each write acknowledged before, since the leader gives it. In the Raft group of a new
// stream the preferred leader answers, too, until it learns that another member leads. It may lack acknowledged
// writes (jsStreamInfoRequest of nats-server 2.15.2), so isByLeader rejects its answer. Two wrong answers are not
// noticed: that of a deposed leader that does not know yet that it is, and, for some milliseconds, that of a leader
// elected in the first seconds of the stream.
func (o onJetStream) Info(ctx context.Context, bucket string) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		a, err := o.request(ctx, o.api.Info(bucket), nil)
		if err == nil && isByLeader(a.Cluster) {
			clustered := a.Cluster != nil && a.Cluster.RaftGroup != ""
			return Info{a.Config.StreamConfig, a.Created, a.Now, a.State.Last, clustered}, nil
		}
		if err == nil {
			err = jitter.Sleep(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return Info{}, err
		}
	}
}

// isByLeader reports whether a description comes from the leader, which lists only the other members of its group as
// replicas.
func isByLeader(group *jetstream.ClusterInfo) bool {
	return group == nil || group.Leader != "" && !slices.ContainsFunc(group.Replicas, func(p *jetstream.PeerInfo) bool {
		return p.Name == group.Leader
	})
}

// Make implements [Streams]. A server may refuse to make a stream while it is still removing the files of one of the
// same name that was just deleted, so Make tries again for up to half a second.
func (o onJetStream) Make(ctx context.Context, c jetstream.StreamConfig) error {
	for tries := 0; ; tries++ {
		_, err := await(ctx, o.lost,
			func(ctx context.Context) (jetstream.Stream, error) { return o.js.CreateStream(ctx, c) })
		if codeOf(err) != codeNoStore || tries == 5 || jitter.Sleep(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// Last implements [Streams].
func (o onJetStream) Last(ctx context.Context, bucket, key string) (Entry, error) {
	return o.get(ctx, bucket, map[string]any{"last_by_subj": subjectPrefix(bucket) + key})
}

// Next implements [Streams].
func (o onJetStream) Next(ctx context.Context, bucket, prefix string, from uint64) (Entry, error) {
	return o.get(ctx, bucket, map[string]any{"seq": from, "next_by_subj": subjectPrefix(bucket) + prefix + ">"})
}

// get reads an entry from the leader, even if the stream allows reads from replicas.
func (o onJetStream) get(ctx context.Context, bucket string, which map[string]any) (Entry, error) {
	a, err := o.request(ctx, o.api.Get(bucket), which)
	if err != nil {
		return Entry{}, err
	}
	return a.entry(bucket)
}

// entry returns the entry of a bucket that an answer holds.
func (a answer) entry(bucket string) (Entry, error) {
	m, header := a.Message, nats.Header(nil)
	if m.Sequence == 0 {
		return Entry{}, fmt.Errorf("buckets: an answer of bucket %s holds no message", bucket)
	}
	if len(m.Header) > 0 {
		var err error
		if header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return Entry{}, err
		}
	}
	key := strings.TrimPrefix(m.Subject, subjectPrefix(bucket))
	return Entry{Key: key, Value: m.Data, Revision: m.Sequence, Created: m.Time, Removed: isMarker(header)}, nil
}

// isMarker reports whether a message says that the value of its key was removed (ADR-8, ADR-43).
func isMarker(h nats.Header) bool {
	if op := h.Get("KV-Operation"); op != "" {
		return op == "DEL" || op == "PURGE"
	}
	return h.Get("Nats-Marker-Reason") != ""
}

// Publish implements [Streams].
func (o onJetStream) Publish(ctx context.Context, bucket, key string, w Write) (revision uint64, err error) {
	m := nats.NewMsg(o.api.Write(bucket, key))
	m.Data = w.Value
	if w.Purge {
		m.Header.Set("KV-Operation", "PURGE")
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	}
	var opts []jetstream.PublishOpt
	if w.Last != nil {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(*w.Last))
	}
	if w.LastOfAll != nil {
		opts = append(opts, jetstream.WithExpectLastSequence(*w.LastOfAll))
	}
	ack, err := await(ctx, o.lost, func(ctx context.Context) (*jetstream.PubAck, error) {
		return o.js.PublishMsg(ctx, m, opts...)
	})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// Error codes of JetStream that this package handles by name; meanings has more of them.
const (
	codeFewServers = 10005 // too few servers for the replicas; the text says whether one is away
	codeNoStore    = 10049 // the files of a stream cannot be made
	codeOffline    = 10118
	codeAway       = 10008 // JetStream is temporarily unavailable: it has no leader
)

// meanings maps JetStream's error codes to errors of this package.
var meanings = map[jetstream.ErrorCode]error{
	codeFewServers: ErrFewServers,
	10074:          ErrOneServer,
	10002:          ErrFull, // no room in the account
	10023:          ErrFull, // resources
	10028:          ErrFull, // memory
	10047:          ErrFull, // storage
	10077:          ErrFull, // a message could not be stored
	10037:          ErrNoKey,
	10058:          ErrBucketExists,
	10059:          ErrNoBucket,
	10071:          ErrRevision,
	10164:          ErrRevision, // another write to the key is under way, with replicas
}

// codeOf returns the code with which JetStream refused a request; 0 if JetStream did not refuse it.
func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[jetstream.JetStreamError](err); ok && api.APIError() != nil {
		return api.APIError().ErrorCode
	}
	return 0
}

// translate returns an error of this package that means the same as JetStream's error, and wraps that.
func translate(err error) error {
	code := codeOf(err)
	meaning := meanings[code]
	if code == codeFewServers && strings.Contains(err.Error(), "insufficient storage") {
		meaning = ErrFull
	}
	switch {
	case meaning != nil:
		return fmt.Errorf("%w: %w", meaning, err)
	case code == codeAway:
		return named{"JetStream has no leader", err}
	case code == codeOffline:
		return named{"no NATS server that holds its stream is up; start one again", err}
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: %w", ErrNoAnswer, err)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // the connection is down, and keeps no buffer of messages
		return named{"not connected to NATS", err}
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return named{"JetStream does not answer; enable it in nats-server, or check --js-domain and --js-prefix", err}
	}
	return err
}

// A named error describes an error of the NATS client in an operator's words.
type named struct {
	text string
	error
}

func (n named) Error() string { return n.text }

// Unwrap returns the client's error.
func (n named) Unwrap() error { return n.error }

// lost ends requests whose connection was lost after they were sent. Their answers went to the old connection, so
// each of these requests would wait until its deadline.
//
// Law: a write that was ended in this way may have landed, or may land later, like a write that timed out.
type lost struct {
	nc      *nats.Conn
	mu      sync.Mutex
	waiting map[*request]struct{}
}

// errLost is the outcome of a request whose connection was lost before the answer came.
var errLost = errors.New("the connection to NATS was lost before JetStream answered")

type request struct {
	reconnects uint64 // how often the connection had reconnected at the request
	end        context.CancelCauseFunc
}

// lostOn returns a [lost] for a connection. The handler of disconnections that was set before is still called.
func lostOn(nc *nats.Conn) *lost {
	l := &lost{nc: nc, waiting: make(map[*request]struct{})}
	disconnected := nc.DisconnectErrHandler()
	nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
		connected, now := nc.IsConnected(), nc.Stats().Reconnects // a late call leaves later requests alone
		l.mu.Lock()
		for q := range l.waiting {
			if !connected || q.reconnects < now {
				q.end(errLost)
			}
		}
		l.mu.Unlock()
		if disconnected != nil {
			disconnected(nc, err)
		}
	})
	return l
}

// await calls f, which sends a request and awaits the answer, with a context that also ends if the connection is
// lost. It translates JetStream's errors into those of this package.
func await[T any](ctx context.Context, l *lost, f func(context.Context) (T, error)) (T, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	q := &request{l.nc.Stats().Reconnects, end}
	l.mu.Lock()
	l.waiting[q] = struct{}{}
	l.mu.Unlock()
	v, err := f(ctx)
	l.mu.Lock()
	delete(l.waiting, q)
	l.mu.Unlock()
	if err != nil && errors.Is(context.Cause(ctx), errLost) {
		err = errLost
	}
	if isSilence(err) && errors.Is(l.nc.LastError(), nats.ErrMaxSubscriptionsExceeded) {
		err = fmt.Errorf("%w (%w)", errNoSubscription, err)
	}
	return v, translate(err)
}

// errNoSubscription says that no answer can arrive, since NATS refused the subscription on which it would. NATS
// reports such a refusal only once.
var errNoSubscription = named{"NATS refuses subscriptions: raise max_subscriptions of its server or of the account",
	nats.ErrMaxSubscriptionsExceeded}

// An API holds the prefixes of the subjects of requests to JetStream, and of writes to buckets. This package uses
// only the subjects that the methods of an API return, so that package rights can list them.
type API struct{ requests, writes string }

// APIOf returns the API of the JetStream that is reached through a domain or a prefix, or directly if both are "".
// Writes have the domain or prefix, too: otherwise a JetStream of a server on the way would take them.
func APIOf(domain, prefix string) API {
	through := jetstream.DefaultAPIPrefix
	switch {
	case domain != "":
		through = "$JS." + domain + ".API."
	case prefix != "":
		through = strings.TrimSuffix(prefix, ".") + "."
	}
	if through == jetstream.DefaultAPIPrefix {
		return API{requests: through}
	}
	return API{through, through}
}

// Info returns the subject that describes a bucket.
func (a API) Info(bucket string) string { return a.Stream("STREAM.INFO", streamName(bucket)) }

// Create returns the subject that makes a bucket.
func (a API) Create(bucket string) string { return a.Stream("STREAM.CREATE", streamName(bucket)) }

// Get returns the subject that reads a key from the leader.
func (a API) Get(bucket string) string { return a.Stream("STREAM.MSG.GET", streamName(bucket)) }

// Direct returns the subject that reads a key from any replica. Only `natsid stamp` reads so, not this package.
func (a API) Direct(bucket, key string) string {
	return a.Stream("DIRECT.GET", streamName(bucket)) + "." + subjectPrefix(bucket) + key
}

// List returns the subject that creates a consumer, to list the keys that match the pattern keys. consumer may be "*".
func (a API) List(bucket, consumer, keys string) string {
	return a.Stream("CONSUMER.CREATE", streamName(bucket)) + "." + consumer + "." + subjectPrefix(bucket) + keys
}

// Next returns the subject on which a listing asks its consumer for entries.
func (a API) Next(bucket, consumer string) string {
	return a.Stream("CONSUMER.MSG.NEXT", streamName(bucket)) + "." + consumer
}

// Names returns the subject of requests for the names of the streams that store a subject.
func (a API) Names() string { return a.requests + "STREAM.NAMES" }

// Account returns the subject that describes the account's limits and use of JetStream.
func (a API) Account() string { return a.requests + "INFO" }

// Write returns the subject that writes a key.
func (a API) Write(bucket, key string) string { return a.writes + subjectPrefix(bucket) + key }

// Stream returns the subject of a request about a stream.
func (a API) Stream(op, stream string) string { return a.requests + op + "." + stream }

func streamName(bucket string) string { return "KV_" + bucket }

func subjectPrefix(bucket string) string { return "$KV." + bucket + "." }

// isSilence reports whether an error means that no answer came, and that a repeated request may get one.
func isSilence(err error) bool {
	for _, silence := range []error{
		context.DeadlineExceeded, errLost, errQuiet,
		nats.ErrTimeout, nats.ErrReconnectBufExceeded, nats.ErrDisconnected,
	} {
		if errors.Is(err, silence) {
			return true
		}
	}
	return codeOf(err) == codeAway
}
