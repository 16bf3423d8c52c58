// Package wire is the protocol between natsid's own programs: subjects between workers, bodies of requests about tags,
// statistics and alarms. It may change; package subjects has what users may rely on. [Subjects] and [Inner] list all
// subjects, [Alarms] all kinds of alarm.
package wire

import (
	"strconv"

	"github.com/natsid/natsid/subjects"
)

// OK is the code of a served request in metrics. It is never sent.
const OK subjects.Code = 200

// QueueGroup is the queue group of all workers: NATS delivers each request to one of them.
const QueueGroup = "natsid"

// A SubjectInfo explains one subject, in which names in <> are placeholders.
type SubjectInfo struct {
	Subject string
	Body    string // of the request, or of a published message
	Reply   string // of the request; "" for a published message
}

// Subjects returns the public subjects, on which requests are served. The slice is the caller's.
func Subjects(n subjects.Namespace) []SubjectInfo {
	const (
		count = "empty for one ID, or a count"
		ids   = "IDs as runs, one a line: `1001` or `1001-1100`"
		tag   = "the [Tag](#json)"
		raise = "; `\"raise_by\":\"1000\"` instead of next_id; `\"force\":true` to skip more than 2^40 IDs; " +
			"the limits: `\"max_batch\":100,\"rate\":1000`"
	)
	return []SubjectInfo{
		{n.Segment("<tag>"), count, ids},
		{n.Snowflake() + "[.<business>]", count, ids},
		{n.TagCreate(), "`" + exampleCreate + "`, each optional but tag", tag},
		{n.TagUpdate(), "`" + exampleUpdate + "`, each optional but tag" + raise, tag},
		{n.TagDelete(), "`" + exampleDelete + "`", tag},
		{n.TagList(), "empty, or `" + exampleList + "`, each optional; or `\"tag\":\"order\"` for one tag",
			"an array of Tags, in order"},
	}
}

// Inner returns the subjects that are not public: natsid's own programs use them. The slice is the caller's.
func Inner(n subjects.Namespace) []SubjectInfo {
	return []SubjectInfo{
		{AlarmSubject(n, "<kind>"), "published: an operator must look", ""},
		{ThrottleSubject(n), "`" + exampleThrottle + "`; 0 ends the throttle", "the same"},
		{ServiceStats(n), "empty", "from every worker: statistics of its tags, as `data` of endpoint segment"},
		{ServicePing(n), "empty", "from every worker: its name, number and readiness, as metadata"},
		{worker(n, "<number>"), "empty", "which worker holds the number"},
		{View(n), "to all workers, for the page and `natsid status`", "each one's state"},
		{Stage(n), "published by each `natsid stamp` every 5 s, for the page", ""},
		{RegistryAnnounce(n), "published by workers every few seconds, and at a stop: their registry", ""},
		{RegistryAsk(n), "of workers and `natsid resume`", "from one worker of each registry"},
		{RegistryOf(n, "<registry>"), "of workers and `natsid resume`", "from one worker of the registry"},
		{Relay(n, string(n)+".<subject>"), "a request for IDs of a tag, or about tags, of a worker that cannot load",
			"that of a worker that can"},
		{Loader(n, "<tag>"), "of a worker to the one that loads a strict tag for others: how many IDs", "a range"},
		{TagChanged(n), "published: the name of a tag that was created, changed or deleted", ""},
	}
}

// Segments returns the pattern that matches the subjects of all tags, malformed ones included.
func Segments(n subjects.Namespace) string { return string(n) + ".segment.>" }

// Snowflakes returns the pattern that matches the subjects of all businesses, malformed ones included, but not
// [subjects.Namespace.Snowflake].
func Snowflakes(n subjects.Namespace) string { return n.Snowflake() + ".>" }

// TagChanged returns the subject on which workers publish the name of each tag that they created, changed or deleted.
func TagChanged(n subjects.Namespace) string { return string(n) + ".tag.changed" }

// ThrottleSubject returns the subject of a [Throttle]. Only operators should be allowed to publish on it.
func ThrottleSubject(n subjects.Namespace) string { return string(n) + ".control.throttle" }

// Loader returns the subject on which one worker, the loader of a strict tag, receives requests of other workers to
// load for them. Only workers should be allowed to subscribe to it.
func Loader(n subjects.Namespace, tag string) string { return string(n) + ".loader." + tag }

// Worker returns the subject on which the process with worker number w answers who it is.
func Worker(n subjects.Namespace, w int) string { return worker(n, strconv.Itoa(w)) }

func worker(n subjects.Namespace, w string) string { return string(n) + ".worker." + w }

// Workers returns the pattern that matches the subjects of all worker numbers, [View] and [Stage].
func Workers(n subjects.Namespace) string { return worker(n, "*") }

// AlarmSubjects returns the pattern that matches the subjects of all alarms.
func AlarmSubjects(n subjects.Namespace) string { return AlarmSubject(n, "*") }

// AlarmSubject returns the subject on which alarms of a kind are published.
func AlarmSubject(n subjects.Namespace, kind Alarm) string {
	return string(n) + ".alarm." + string(kind)
}

// RegistryAnnounce returns the subject on which workers announce their registry. Only workers should be allowed to
// publish on it.
func RegistryAnnounce(n subjects.Namespace) string { return string(n) + ".registry.announce" }

// RegistryAsk returns the subject on which a worker asks which registries exist. One worker of each registry answers.
func RegistryAsk(n subjects.Namespace) string { return string(n) + ".registry.ask" }

// RegistryOf returns the subject of questions about the registry with this ID. One of its workers answers.
func RegistryOf(n subjects.Namespace, id string) string { return string(n) + ".registry.of." + id }

// Registries returns the pattern that matches all subjects about registries.
func Registries(n subjects.Namespace) string { return string(n) + ".registry.>" }

// Relay returns the subject on which a worker that cannot load a range passes a request for the given subject on to one
// that can. Only workers should be allowed to publish on relay subjects.
func Relay(n subjects.Namespace, subject string) string {
	return string(n) + ".relay" + subject[len(n):]
}

// Relayed is the inverse of [Relay]: it returns the subject of the original request.
func Relayed(n subjects.Namespace, relay string) string {
	return string(n) + relay[len(n)+len(".relay"):]
}

// Relays returns the pattern that matches the subjects of all relays.
func Relays(n subjects.Namespace) string { return string(n) + ".relay.>" }

// Service returns the name under which each worker is a NATS service.
func Service(n subjects.Namespace) string { return string(n) }

// ServiceStats returns the subject on which every worker answers with its [WorkerStats].
func ServiceStats(n subjects.Namespace) string { return "$SRV.STATS." + Service(n) }

// ServicePing returns the subject on which every worker answers with metadata: under [MetaInstance] its name, under
// [MetaNumber] its worker number ("" if it has none), and under the name of each mode the mode's state as in /readyz.
func ServicePing(n subjects.Namespace) string { return "$SRV.PING." + Service(n) }

// Keys of a worker's metadata: see [ServicePing].
const (
	MetaInstance = "instance"
	MetaNumber   = "number"
)

// Ready is the state of a mode that can issue IDs.
const Ready = "ready"

// SegmentEndpoint is the endpoint of [Service] whose data in statistics is a [WorkerStats].
const SegmentEndpoint = "segment"

// SegmentBucket returns the name of the KV bucket that holds the marks of tags, and their rules.
func SegmentBucket(n subjects.Namespace) string { return string(n) + "_segments" }

// HistoryBucket returns the name of the KV bucket that holds the records of worker numbers, permanently.
func HistoryBucket(n subjects.Namespace) string { return string(n) + "_history" }

// StampBucket returns the name of the KV bucket where `natsid stamp` keeps, as a hint, how far it has copied a stream.
func StampBucket(n subjects.Namespace) string { return string(n) + "_stamp" }

// WorkerBucket returns the name of the KV bucket of the workers' heartbeats.
func WorkerBucket(n subjects.Namespace) string { return string(n) + "_workers" }

// View returns the subject on which every worker answers a [ViewRequest] of the web page or `natsid status` with a
// [WorkerView]. Users that may publish on [Workers] may publish on it.
func View(n subjects.Namespace) string { return worker(n, "view") }

// Stage returns the subject on which each `natsid stamp` publishes a [StageView] every [StageEvery], for the web page.
func Stage(n subjects.Namespace) string { return worker(n, "stage") }

// GrantsBucket returns the name of the bucket whose stream records which worker loaded which ranges, and held which
// windows of worker numbers.
func GrantsBucket(n subjects.Namespace) string { return string(n) + "_grants" }
