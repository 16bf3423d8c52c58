package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/segment"
)

// A Report is what an operator sees of a bucket of marks.
type Report struct {
	Info     buckets.Info
	Identity lineage.Identity
	Trouble  error // of the identity: [lineage.ErrNoIdentity], [lineage.ErrIdentity], or nil
	Unfit    error // of the settings: [buckets.ErrUnfit], or nil
	Tags     int   // disabled ones included
	Guards   int   // of them, those that guard a row in MySQL
	Damaged  []string
	// Marks is by tag, disabled ones included. It is no older than the call of Inspect; one that was written meanwhile
	// may be missing: see [InspectMark].
	Marks   map[string]Present
	Records map[string]segment.Record // likewise
	Rules   map[string]segment.Rules  // likewise, of tags that have some

	revision uint64 // of the identity or its marker; 0 if there never was one
}

// A Present is a mark as it stands in its bucket.
type Present struct {
	Mark     int64
	Step     int64
	Revision uint64
	Written  time.Time
}

// Inspect describes a bucket, and changes nothing. It returns [buckets.ErrNoBucket] if there is none.
func Inspect(ctx context.Context, streams buckets.Streams, bucket string) (r Report, err error) {
	if r.Info, err = streams.Info(ctx, bucket); err != nil {
		return Report{}, err
	}
	r.Unfit = buckets.Config{Name: bucket}.Judge(r.Info)
	if err := r.readIdentity(ctx, streams, bucket); err != nil {
		return Report{}, err
	}
	all, err := buckets.Listed(ctx, streams, bucket)
	r.Marks, r.Records = make(map[string]Present), make(map[string]segment.Record)
	r.Rules = make(map[string]segment.Rules)
	for _, kve := range all {
		if kve.Removed || buckets.IsOwn(kve.Key) {
			continue
		}
		r.Tags++
		e, err := decode(bucket, kve)
		if err != nil {
			r.Damaged = append(r.Damaged, kve.Key)
			continue
		}
		r.Marks[kve.Key], r.Records[kve.Key] = Present{e.Mark, e.Step, kve.Revision, kve.Created}, e.Record
		if e.Rules != (segment.Rules{}) {
			r.Rules[kve.Key] = e.Rules
		}
		if e.Seen > 0 {
			r.Guards++
		}
	}
	return r, err
}

// InspectMark returns the mark of one tag, and changes nothing; ok is false if it has none, or one that is damaged.
func InspectMark(ctx context.Context, streams buckets.Streams, bucket, tag string) (p Present, ok bool, err error) {
	kve, err := streams.Last(ctx, bucket, tag)
	if errors.Is(err, buckets.ErrNoKey) || err == nil && kve.Removed {
		return Present{}, false, nil
	}
	if err != nil {
		return Present{}, false, err
	}
	e, err := decode(bucket, kve)
	return Present{e.Mark, e.Step, kve.Revision, kve.Created}, err == nil, nil
}

func (r *Report) readIdentity(ctx context.Context, streams buckets.Streams, bucket string) error {
	kve, err := streams.Last(ctx, bucket, identityKey)
	r.revision = kve.Revision
	switch {
	case errors.Is(err, buckets.ErrNoKey) || err == nil && kve.Removed:
		r.Trouble = lineage.ErrNoIdentity
		return nil
	case err != nil:
		return err
	}
	r.Identity, r.Trouble = lineage.DecodeIdentity(kve.Value)
	return nil
}

// MakeAlone makes the marks that guard a table the store, in a bucket whose identity r reports. Workers with the table
// refuse the bucket from their next check on. Until then both kinds may load: each load is a compare-and-set on the
// same mark.
func MakeAlone(ctx context.Context, streams buckets.Streams, bucket string, r Report) error {
	if r.Trouble != nil {
		return r.Trouble
	}
	id := r.Identity
	id.Kind = string(Alone)
	_, err := streams.Publish(ctx, bucket, identityKey, buckets.Write{Value: id.Encode(), Last: &r.revision})
	if errors.Is(err, buckets.ErrRevision) {
		return fmt.Errorf("the identity of bucket %s was changed just now; look again: %w", bucket, err)
	}
	return err
}
