package buckets

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

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
