package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// A Report describes a bucket of marks, below which no ID is reserved again, to an operator.
type Report struct {
	Info     buckets.Info
	Identity era.Identity
	Trouble  error // what is wrong with the identity: [era.ErrNoIdentity], [era.ErrIdentity], or nil
	Unfit    error // what is wrong with the settings: [buckets.ErrUnfit], or nil
	Tags     int   // disabled ones included
	Guards   int   // tags whose marks guard a row in MySQL
	Damaged  []string
	// Marks are the marks (next IDs) by tag, those of disabled tags included, no older than the call of Inspect. A mark
	// written during the call may be missing.
	Marks map[string]Present

	revision uint64 // of the identity or its delete marker; 0 if there is neither
}

// A Present is the entry of a tag in the present era, the time since the last resume of the registry.
type Present struct {
	Mark      int64 // the mark in the present era; for an undecided tag, the mark as written
	Raw       int64 // the mark as it is written
	Undecided bool  // an operator must say where the tag continues, or the entry's era is unknown
	Disabled  bool
	Unmade    bool // its row was not made, and nothing is loaded
	Step      int64
	Rules     segment.Rules
	Written   time.Time
	Run       segment.Run // the run that ends at Raw; zero if it is not known
}

// present converts an entry to the present era of the registry with the identity id.
func present(kve buckets.Entry, e entry, id era.Identity) Present {
	raw := e.Mark
	err := e.in(id, math.MaxInt64)
	return Present{
		Mark: max(raw, e.Mark), Raw: raw, Undecided: e.undecided || err != nil, Disabled: e.Disabled, Step: e.Step,
		Unmade: e.Claimed && e.Seen == 0, Rules: e.Rules, Written: kve.Created, Run: e.Run,
	}
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
	r.Marks = make(map[string]Present)
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
		r.Marks[kve.Key] = present(kve, e, r.Identity)
		if e.Seen > 0 {
			r.Guards++
		}
	}
	return r, err
}

func (r *Report) readIdentity(ctx context.Context, streams buckets.Streams, bucket string) error {
	kve, err := streams.Last(ctx, bucket, era.Key)
	r.revision = kve.Revision
	switch {
	case errors.Is(err, buckets.ErrNoKey) || err == nil && kve.Removed:
		r.Trouble = era.ErrNoIdentity
		return nil
	case err != nil:
		return err
	}
	r.Identity, r.Trouble = era.Decode(kve.Value)
	return nil
}

// MakeAlone turns marks that guard a table into the store itself: see [era.Alone]. r is the bucket's report from
// [Inspect]. Workers with the table refuse the bucket from their next check on. Until then workers of both kinds may
// load: their ranges are disjoint, by compare-and-sets on the same marks.
func MakeAlone(ctx context.Context, streams buckets.Streams, bucket string, r Report) error {
	if r.Trouble != nil {
		return r.Trouble
	}
	id := r.Identity
	id.Kind = era.Alone
	_, err := streams.Publish(ctx, bucket, era.Key, buckets.Write{Value: id.Encode(), Last: &r.revision})
	if errors.Is(err, buckets.ErrRevision) {
		return fmt.Errorf("the identity of bucket %s was changed just now; look again: %w", bucket, err)
	}
	return err
}
