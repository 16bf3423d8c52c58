package buckets

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Streams is what a [Bucket] uses of JetStream. A bucket is the stream KV_<bucket>; its key k is the subject
// $KV.<bucket>.<k>, and a revision is a sequence number of the stream. [OnJetStream] is the real one. All methods are
// safe for concurrent use and return by the time ctx ends.
type Streams interface {
	// Info describes a bucket as its leader does. It returns [ErrNoBucket] if JetStream itself says that there is no
	// bucket of this name.
	Info(ctx context.Context, bucket string) (Info, error)
	// Make makes the stream of a bucket. It returns [ErrBucketExists] if there is one of this name, and
	// [ErrOneServer] or [ErrFewServers] if JetStream has too few servers for the replicas.
	Make(ctx context.Context, c jetstream.StreamConfig) error
	// Last returns the last entry of a key as the leader has it, a value or the marker of its removal; or [ErrNoKey].
	Last(ctx context.Context, bucket, key string) (Entry, error)
	// Publish writes an entry and returns its revision. It returns [ErrRevision], and has written nothing, if the
	// last revision of the key, or of the bucket, is not the expected one. It returns [ErrNoAnswer] if no stream
	// takes the write: the bucket does not exist, or has no leader. After any other error the outcome is unknown.
	Publish(ctx context.Context, bucket, key string, w Write) (revision uint64, err error)
	// List returns the entries, markers of removed values included, of all keys that begin with prefix (which is ""
	// or ends with a dot), by revision. The list may be old, but has each key that existed throughout the call. If it
	// has an entry, it has all entries with lower revisions that were not replaced.
	List(ctx context.Context, bucket, prefix string) ([]Entry, error)
	// Next returns the first entry, as the leader has it, whose revision is at least from and whose key begins with
	// prefix. The entry may be the marker of a removed value. If there is none, Next returns [ErrNoKey].
	Next(ctx context.Context, bucket, prefix string, from uint64) (Entry, error)
}

// Info is the state of a bucket's stream.
type Info struct {
	jetstream.StreamConfig
	Created time.Time // when the stream was made
	Now     time.Time // the clock of the server that leads the stream
	LastSeq uint64    // the highest revision
	// Clustered says that the stream is in a JetStream of several servers.
	Clustered bool
}

// An Entry is what is stored under a key: a value, or a marker, which says that the value was removed.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Created  time.Time
	Removed  bool // a marker: the value was deleted, purged, or has expired
}

// A Write is an entry to be published.
type Write struct {
	Value     []byte
	Purge     bool    // leave a marker, and drop all older entries of the key; the stream must allow rollups
	Last      *uint64 // the revision that the key must have, 0 if it never had a value; nil for any
	LastOfAll *uint64 // the highest revision that the bucket must have; nil for any
}

var (
	// ErrNoBucket is returned when JetStream knows no bucket of the name.
	ErrNoBucket = errors.New("buckets: no bucket of this name")
	// ErrBucketExists is returned by Make when there is a bucket of the name.
	ErrBucketExists = errors.New("buckets: the bucket exists already")
	// ErrOneServer is returned by Make if more than one replica is asked of a JetStream that is a single server.
	ErrOneServer = errors.New("buckets: JetStream is a single server here: leave out --replicas")
	// ErrFewServers is returned by Make if a cluster has fewer servers than the stream is to have replicas.
	ErrFewServers = errors.New("buckets: JetStream has too few servers for the replicas")
	// ErrNoKey is returned for a key that has no value.
	ErrNoKey = errors.New("buckets: no such key")
	// ErrKeyExists is returned when a key to be created has a value.
	ErrKeyExists = errors.New("buckets: the key has a value already")
	// ErrKeyRemoved is returned by CreateFirst for a key whose value was removed.
	ErrKeyRemoved = errors.New("buckets: the key had a value, which was removed")
	// ErrUnfit is returned for a bucket whose settings natsid must not rely on: it forgets what it must keep, or takes
	// what others write.
	ErrUnfit = errors.New("the bucket cannot be used")
	// ErrInUse is wrapped by errors of [Config.MayFound] if another bucket of the name is or was in use.
	ErrInUse = errors.New("another bucket of this name is in use")
	// ErrFull is returned if there is no room for a write, or for a new bucket.
	ErrFull = errors.New("buckets: no room")
	// ErrRevision is returned when a key's revision is not the expected one.
	ErrRevision = errors.New("buckets: another write came first")
	// ErrNoAnswer is returned if no stream takes a write: there is no such bucket, or it has no leader.
	ErrNoAnswer = errors.New("buckets: no stream takes the write")
	// ErrSilent is returned by UpdateSoon for a write that had no answer in time. It may land later, or never.
	ErrSilent = errors.New("buckets: a write has no answer yet")
	// ErrInvalidKey is returned for a key that no bucket can have.
	ErrInvalidKey = errors.New("buckets: invalid key")
)
