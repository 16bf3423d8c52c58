// Package subjects is the wire contract of natsid: the grammar of subjects,
// tags and counts, the runs of IDs in a reply, the error codes, and the alarms.
//
// It knows neither NATS nor the cores, so workers, clients and tests in any
// room can speak the same language through it.
package subjects

import (
	"fmt"
	"strconv"
)

// QueueGroup is the one queue group all workers share, so that each request
// is answered by exactly one of them.
const QueueGroup = "natsid"

// DefaultNamespace is the first token of every subject unless set otherwise.
const DefaultNamespace = Namespace("id")

// MaxNamespace is the length limit of a namespace, in bytes.
const MaxNamespace = 32

// A Namespace prefixes subjects, services and buckets, so that several
// deployments can share one NATS account. Its form is [A-Za-z0-9_-]{1,32}.
// The zero value is not valid.
type Namespace string

// Check returns an error that says what is wrong with the namespace, or nil.
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

// Segment returns the subject that asks for IDs of a tag.
func (n Namespace) Segment(tag string) string { return string(n) + ".segment." + tag }

// Segments returns the subject pattern of every tag, well formed or not.
func (n Namespace) Segments() string { return string(n) + ".segment.>" }

// Tag returns the tag named by a subject that matched [Namespace.Segments].
func (n Namespace) Tag(subject string) string { return subject[len(n)+len(".segment."):] }

// Snowflake returns the subject that asks for snowflakes of business 0.
func (n Namespace) Snowflake() string { return string(n) + ".snowflake" }

// SnowflakeOf returns the subject that asks for snowflakes of a business.
func (n Namespace) SnowflakeOf(business string) string { return n.Snowflake() + "." + business }

// Snowflakes returns the subject pattern of every business, well formed or not.
func (n Namespace) Snowflakes() string { return n.Snowflake() + ".>" }

// Business returns what follows the snowflake subject in a subject that
// matched [Namespace.Snowflake] or [Namespace.Snowflakes]; "" for the former.
func (n Namespace) Business(subject string) string {
	if bare := len(n.Snowflake()); len(subject) > bare {
		return subject[bare+1:]
	}
	return ""
}

// TagCreate returns the subject that makes a tag.
func (n Namespace) TagCreate() string { return string(n) + ".tag.create" }

// TagUpdate returns the subject that changes a tag.
func (n Namespace) TagUpdate() string { return string(n) + ".tag.update" }

// TagDelete returns the subject that deletes a tag.
func (n Namespace) TagDelete() string { return string(n) + ".tag.delete" }

// TagChanged returns the subject on which the name of each tag that was made,
// changed or deleted through natsid is published.
func (n Namespace) TagChanged() string { return string(n) + ".tag.changed" }

// TagList returns the subject that lists the tags.
func (n Namespace) TagList() string { return string(n) + ".tag.list" }

// Worker returns the subject on which worker w itself says who it is.
func (n Namespace) Worker(w int) string { return string(n) + ".worker." + strconv.Itoa(w) }

// Alarm returns the subject on which alarms of a kind are published.
func (n Namespace) Alarm(kind Alarm) string { return string(n) + ".alarm." + string(kind) }

// Requests returns the patterns of all subjects that workers answer.
func (n Namespace) Requests() []string {
	return []string{
		n.Segments(), n.Snowflake(), n.Snowflakes(),
		n.TagCreate(), n.TagUpdate(), n.TagDelete(), n.TagList(), string(n) + ".worker.*",
	}
}

// SegmentService returns the name of the micro service that serves segments.
func (n Namespace) SegmentService() string { return string(n) + "-segment" }

// SegmentStats returns the subject on which every worker tells of its tags:
// see [WorkerStats].
func (n Namespace) SegmentStats() string { return "$SRV.STATS." + n.SegmentService() }

// SegmentEndpoint is the endpoint of that service whose data [WorkerStats] is.
const SegmentEndpoint = "segment"

// SnowflakeService returns the name of the micro service that serves snowflakes.
func (n Namespace) SnowflakeService() string { return string(n) + "-snowflake" }

// SegmentBucket returns the name of the bucket that keeps the high-water marks.
func (n Namespace) SegmentBucket() string { return string(n) + "_segments" }

// HistoryBucket returns the name of the bucket that keeps, for ever, until
// when each worker number was ever promised to anyone.
func (n Namespace) HistoryBucket() string { return string(n) + "_history" }

// WorkerBucket returns the name of the bucket of the workers' heartbeats.
func (n Namespace) WorkerBucket() string { return string(n) + "_workers" }

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
