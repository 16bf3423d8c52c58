// Package subjects is the public wire of natsid for programs that speak it without package client: the names of
// subjects, runs of IDs (first to last, as "1001-1100"), and errors.
//
//   - The body of a request for IDs is empty for one ID, or their number in decimal. The reply holds exactly that
//     many IDs, one run a line: see [ParseRuns]. IDs are text, because JavaScript rounds integers beyond 2^53.
//   - An error is a reply with an empty body and two headers or more: see [ParseError]. An error reply never holds an
//     ID.
//   - A request whose IDs are held for later says so in [HeaderPrefetch].
//   - A worker answers within its deadline, 1.5 s by default; a caller waits at least 2 s. To repeat a request for
//     IDs is safe: at worst some IDs are never used.
package subjects

import (
	"fmt"
	"strconv"
)

// DefaultNamespace is the namespace of workers that are not given another.
const DefaultNamespace = Namespace("id")

// MaxNamespace is the length limit of a namespace, in bytes.
const MaxNamespace = 32

// A Namespace is the prefix of all subjects, services and buckets of one natsid deployment, so that several can share
// a NATS account. It is 1 to 32 bytes of A-Z a-z 0-9 - _; the zero value is not valid.
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

// Segment returns the subject of requests for IDs of a tag.
func (n Namespace) Segment(tag string) string { return string(n) + ".segment." + tag }

// Snowflake returns the subject of requests for snowflakes of business 0.
func (n Namespace) Snowflake() string { return string(n) + ".snowflake" }

// SnowflakeOf returns the subject of requests for snowflakes of a business.
func (n Namespace) SnowflakeOf(business int64) string {
	return n.Snowflake() + "." + strconv.FormatInt(business, 10)
}

// TagCreate returns the subject of requests that create a tag.
func (n Namespace) TagCreate() string { return string(n) + ".tag.create" }

// TagUpdate returns the subject of requests that change a tag.
func (n Namespace) TagUpdate() string { return string(n) + ".tag.update" }

// TagDelete returns the subject of requests that delete a tag.
func (n Namespace) TagDelete() string { return string(n) + ".tag.delete" }

// TagList returns the subject of requests that list tags.
func (n Namespace) TagList() string { return string(n) + ".tag.list" }
