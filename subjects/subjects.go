// Package subjects is the wire contract of natsid: subjects, the bodies of
// requests and replies, error codes and alarms.
//
// It knows neither NATS nor how IDs are made, so any program can use it to
// speak with natsid. [Namespace.Subjects] lists all subjects, [Codes] all error
// codes, and [Alarms] all kinds of alarm.
//
// # Requests and replies
//
//   - A request for IDs is a count, [ParseCount]. Its reply holds exactly that
//     many IDs, as lines of runs, [ParseRuns]: as text, because JavaScript rounds
//     integers beyond 2^53.
//   - An error is a reply with an empty body and two headers or more, [ParseError].
//     It never holds an ID.
//   - A request whose IDs are held for later says so in [HeaderPrefetch].
//   - A request without a reply subject is dropped before it costs an ID.
//   - A worker answers within its deadline, 1.5 s by default, of taking the
//     request up; a caller should wait at least 2 s. To repeat a request for IDs is
//     safe: at worst some are never used.
package subjects

import (
	"fmt"
	"strconv"
)

// QueueGroup is the queue group of all workers: exactly one of them answers
// each request.
const QueueGroup = "natsid"

// DefaultNamespace is the namespace of workers that are not given another.
const DefaultNamespace = Namespace("id")

// MaxNamespace is the length limit of a namespace, in bytes.
const MaxNamespace = 32

// A Namespace is the prefix of all subjects, services and buckets of one natsid
// deployment, so that several can share a NATS account. It is 1 to 32 bytes of
// A-Z a-z 0-9 - _; the zero value is not valid.
type Namespace string

// Check returns nil, or an error that names the fault of the namespace.
func (n Namespace) Check() error {
	if n == "" || len(n) > MaxNamespace {
		return fmt.Errorf("namespace %q: want 1 to %d bytes, have %d", string(n), MaxNamespace, len(n))
	}
	for i := range len(n) {
		if c := n[i]; !isAlnum(c) && c != '-' && c != '_' {
			return fmt.Errorf("namespace %q: byte %d is %q, want A-Z a-z 0-9 - _", string(n), i, c)
		}
	}
	return nil
}

// A SubjectInfo explains one subject. Names in <> are placeholders.
type SubjectInfo struct {
	Subject string
	Body    string // of the request, or of a published message
	Reply   string // of the request; "" for a published message
}

// Subjects returns all subjects of the namespace. The slice is the caller's.
func (n Namespace) Subjects() []SubjectInfo {
	const (
		count = "empty for one ID, or a count as decimal text"
		ids   = "IDs as runs, one a line: `1001` or `1001-1100`"
		tag   = "the tag, as the JSON of a TagInfo"
		raise = "; `\"raise_by\":\"1000\"` instead of max_id; `\"force\":true` to skip more than 2^40 IDs; " +
			"the limits: `\"max_batch\":100,\"rate\":1000`"
	)
	return []SubjectInfo{
		{n.Segment("<tag>"), count, ids},
		{n.Snowflake(), count, ids},
		{n.SnowflakeOf("<business>"), count, ids},
		{n.TagCreate(), "`" + exampleCreate + "`, each optional but tag", tag},
		{n.TagUpdate(), "`" + exampleUpdate + "`, each optional but tag" + raise, tag},
		{n.TagDelete(), "`" + exampleDelete + "`", tag},
		{n.Throttle(), "`" + exampleThrottle + "`; 0 ends the throttle", "the same"},
		{n.TagList(), "empty, or `" + exampleList + "`, each optional; or `\"tag\":\"order\"` for one tag",
			"a page of tags in order: an array of TagInfo"},
		{n.ServiceStats(), "empty", "from every worker: statistics of its tags, as the JSON of a WorkerStats"},
		{n.ServicePing(), "empty", "from every worker: its name, number and readiness, as metadata"},
		{n.worker("<number>"), "empty", "which worker holds the worker number, as JSON"},
		{n.View(), "sent to all workers, for the page and `natsid status`: how is each?", ""},
		{n.Stage(), "published by each `natsid stamp` every 5 s, for the page: the JSON of a StageView", ""},
		{n.RegistryAnnounce(), "published by workers every few seconds, and at a stop: their registry, as JSON", ""},
		{n.RegistryAsk(), "of workers and `natsid resume`",
			"from one worker of each registry, as JSON"},
		{n.RegistryOf("<registry>"), "of workers and `natsid resume`", "from one worker of the registry, as JSON"},
		{n.Relay(string(n) + ".<subject>"), "a request for IDs of a tag, or about tags, of a worker that cannot load",
			"that of a worker that can"},
		{n.Loaders(), "published by workers, for workers: a worker that loads strict tags for others", ""},
		{n.Loader("<worker>"), "how many IDs of a strict tag a worker loads for another", ""},
		{n.TagChanged(), "published when a tag was created, changed or deleted: its name", ""},
		{n.Alarm("<kind>"), "published when an operator must look: the JSON of an AlarmEvent", ""},
	}
}

// Segment returns the subject of requests for IDs of a tag.
func (n Namespace) Segment(tag string) string { return string(n) + ".segment." + tag }

// Segments returns the pattern that matches the subjects of all tags, well
// formed or not.
func (n Namespace) Segments() string { return string(n) + ".segment.>" }

// Tag returns the tag in a subject that matches [Namespace.Segments].
func (n Namespace) Tag(subject string) string { return subject[len(n)+len(".segment."):] }

// Snowflake returns the subject of requests for snowflakes of business 0.
func (n Namespace) Snowflake() string { return string(n) + ".snowflake" }

// SnowflakeOf returns the subject of requests for snowflakes of a business, a
// decimal number.
func (n Namespace) SnowflakeOf(business string) string { return n.Snowflake() + "." + business }

// Snowflakes returns the pattern that matches the subjects of all businesses,
// well formed or not, but not [Namespace.Snowflake].
func (n Namespace) Snowflakes() string { return n.Snowflake() + ".>" }

// Business returns the business in a subject that matches
// [Namespace.Snowflakes], and "" for [Namespace.Snowflake].
func (n Namespace) Business(subject string) string {
	if bare := len(n) + len(".snowflake"); len(subject) > bare {
		return subject[bare+1:]
	}
	return ""
}

// TagCreate returns the subject of requests that create a tag.
func (n Namespace) TagCreate() string { return string(n) + ".tag.create" }

// TagUpdate returns the subject of requests that change a tag.
func (n Namespace) TagUpdate() string { return string(n) + ".tag.update" }

// TagDelete returns the subject of requests that delete a tag.
func (n Namespace) TagDelete() string { return string(n) + ".tag.delete" }

// TagList returns the subject of requests that list tags.
func (n Namespace) TagList() string { return string(n) + ".tag.list" }

// TagChanged returns the subject on which workers publish the name of each tag
// that was created, changed or deleted through natsid.
func (n Namespace) TagChanged() string { return string(n) + ".tag.changed" }

// Throttle returns the subject of requests that throttle each tag. Only operators should be allowed to publish on it.
func (n Namespace) Throttle() string { return string(n) + ".control.throttle" }

// Loaders returns the subject on which workers publish that they can load strict tags for others, and Loader the
// subject on which a worker receives such loads. Only workers should be allowed to publish on them.
func (n Namespace) Loaders() string { return string(n) + ".loader" }

// Loader is described with [Namespace.Loaders].
func (n Namespace) Loader(name string) string { return n.Loaders() + "." + name }

// Worker returns the subject on which the holder of worker number w identifies
// itself.
func (n Namespace) Worker(w int) string { return n.worker(strconv.Itoa(w)) }

func (n Namespace) worker(w string) string { return string(n) + ".worker." + w }

// Workers returns the pattern that matches the subjects of all worker numbers, and those of probes.
func (n Namespace) Workers() string { return n.worker("*") }

// Alarms returns the pattern that matches the subjects of all alarms.
func (n Namespace) Alarms() string { return n.Alarm("*") }

// Alarm returns the subject on which alarms of a kind are published.
func (n Namespace) Alarm(kind Alarm) string { return string(n) + ".alarm." + string(kind) }

// RegistryAnnounce returns the subject on which workers announce their registry. Only workers should be allowed to
// publish on it.
func (n Namespace) RegistryAnnounce() string { return string(n) + ".registry.announce" }

// RegistryAsk returns the subject of the question which registries exist. One worker of each answers.
func (n Namespace) RegistryAsk() string { return string(n) + ".registry.ask" }

// RegistryOf returns the subject of calls to one worker of a registry.
func (n Namespace) RegistryOf(id string) string { return string(n) + ".registry.of." + id }

// Registries returns the pattern that matches all subjects about registries.
func (n Namespace) Registries() string { return string(n) + ".registry.>" }

// Relay returns the subject on which a worker that cannot load sends a request on a subject of the namespace to one
// that can, and Relayed returns the subject of the request. Only workers should be allowed to publish on it.
func (n Namespace) Relay(subject string) string { return string(n) + ".relay" + subject[len(n):] }

// Relayed is described with [Namespace.Relay].
func (n Namespace) Relayed(relay string) string { return string(n) + relay[len(n)+len(".relay"):] }

// Relays returns the pattern that matches the subjects of all relays.
func (n Namespace) Relays() string { return string(n) + ".relay.>" }

// Service returns the name of the NATS service that each worker is.
func (n Namespace) Service() string { return string(n) }

// ServiceStats returns the subject on which every worker answers with the
// statistics of its tags: see [WorkerStats].
func (n Namespace) ServiceStats() string { return "$SRV.STATS." + n.Service() }

// ServicePing returns the subject on which every worker answers with metadata: its name, its worker number ("" if it
// has none), and for each mode the state as on /readyz, under [MetaInstance], [MetaNumber] and the modes.
func (n Namespace) ServicePing() string { return "$SRV.PING." + n.Service() }

// Keys of the metadata, and the value of a mode that can issue.
const (
	MetaInstance = "instance"
	MetaNumber   = "number"
	Ready        = "ready"
)

// SegmentEndpoint is the endpoint of [Namespace.Service] whose data in
// statistics is a [WorkerStats].
const SegmentEndpoint = "segment"

// SegmentBucket returns the name of the KV bucket that holds the marks of tags,
// and their rules.
func (n Namespace) SegmentBucket() string { return string(n) + "_segments" }

// HistoryBucket returns the name of the KV bucket that holds the records of
// worker numbers, permanently.
func (n Namespace) HistoryBucket() string { return string(n) + "_history" }

// StampBucket returns the name of the KV bucket with hints of how far `natsid stamp` has copied streams.
func (n Namespace) StampBucket() string { return string(n) + "_stamp" }

// WorkerBucket returns the name of the KV bucket of the workers' heartbeats.
func (n Namespace) WorkerBucket() string { return string(n) + "_workers" }

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
