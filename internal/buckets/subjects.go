package buckets

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// An API is how the subjects of requests to JetStream, and of writes to buckets, begin. This package uses each subject
// that its methods return, and no other.
type API struct{ requests, writes string }

// APIOf returns the API of the JetStream that is reached through a domain or a prefix, or directly if both are "".
// Only through one of them, writes begin as requests do: a server that has a JetStream of its own, too, would take them
// for that one.
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
func (a API) Info(bucket string) string { return a.of("STREAM.INFO", bucket) }

// Create returns the subject that makes a bucket.
func (a API) Create(bucket string) string { return a.of("STREAM.CREATE", bucket) }

// Update returns the subject that changes the settings of a bucket.
func (a API) Update(bucket string) string { return a.of("STREAM.UPDATE", bucket) }

// Get returns the subject that reads a key.
func (a API) Get(bucket string) string { return a.of("STREAM.MSG.GET", bucket) }

// Direct returns the subject that reads a key from any replica.
func (a API) Direct(bucket, key string) string {
	return a.of("DIRECT.GET", bucket) + "." + subjectPrefix(bucket) + key
}

// List returns a pattern for the subjects on which a listing of a bucket begins.
func (a API) List(bucket string) string {
	return a.listing(bucket) + "*." + subjectPrefix(bucket) + ">"
}

// Next returns the subject on which a listing through a prefix asks a consumer for entries.
func (a API) Next(bucket, consumer string) string {
	return a.of("CONSUMER.MSG.NEXT", bucket) + "." + consumer
}

// FlowControl returns a pattern for the subjects on which a listing of many entries is continued.
func (a API) FlowControl(bucket string) string { return "$JS.FC." + streamName(bucket) + ".>" }

// Names returns the subject that lists the streams on a subject.
func (a API) Names() string { return a.requests + "STREAM.NAMES" }

// Account returns the subject that describes what the account has of JetStream.
func (a API) Account() string { return a.requests + "INFO" }

// Write returns the subject that writes a key.
func (a API) Write(bucket, key string) string { return a.writes + subjectPrefix(bucket) + key }

// Stream returns the subject of a request about a stream.
func (a API) Stream(op, stream string) string { return a.requests + op + "." + stream }

func (a API) of(op, bucket string) string { return a.Stream(op, streamName(bucket)) }

// listing returns what the subjects of listings begin with.
func (a API) listing(bucket string) string { return a.of("CONSUMER.CREATE", bucket) + "." }

func streamName(bucket string) string { return "KV_" + bucket }

func subjectPrefix(bucket string) string { return "$KV." + bucket + "." }
