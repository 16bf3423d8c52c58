package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

type storeMoveCmd struct{ consent }

func (*storeMoveCmd) help() help {
	return help{
		summary: "Move all tags from MySQL to JetStream.",
		detail: `Stop all Leaf nodes before. The command raises each tag's mark in JetStream to its
row in MySQL. After that only the marks count: within --tag-poll, workers with
--mysql refuse requests for segments, and workers without it serve them.
docs/operations.md has the whole sequence, and the way back.

The command can be repeated.

Example:
  natsid store move --mysql 'user:password@tcp(db:3306)/leaf'`,
	}
}

func (c *storeMoveCmd) Run(s *session) error {
	table, err := s.openTable(s.ctx)
	if err != nil {
		return err
	}
	defer table.Close()
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		r, err := s.inspect(ctx, js)
		if err != nil {
			return err
		}
		if err := errors.Join(r.Unfit, r.Trouble); err != nil {
			return fmt.Errorf("%w; run `natsid status`", err)
		}
		return c.move(s.ctx, s, onJetStream(js), r, table)
	})
}

// move raises each tag's mark, its next ID in JetStream, to its row in the table, and then changes the kind of their
// bucket: the marks no longer guard the table, but are the store. Loads raised them before, so none overtakes a copy.
//
// Law: until each worker of the old kind has noticed the change, workers of both kinds load. All loads raise the same
// mark by a compare-and-set, so their ranges are disjoint. Leaf nodes use the table alone: they must be stopped before.
func (c *storeMoveCmd) move(
	ctx context.Context, s *session, streams buckets.Streams, r kvstore.Report, table segment.Table,
) error {
	bucket, log := wire.SegmentBucket(s.namespace()), logOf(s, streams)
	store := kvstore.New(streams, kvstore.Config{
		Bucket: bucket, Existing: true, Raised: log.Raise,
	})
	plan := movedJSON{Changed: !c.DryRun, Bucket: bucket}
	rows, err := plan.read(ctx, table, r)
	if err != nil {
		return err
	}
	return s.change(c.consent, "Move all tags to JetStream?", plan, plan.print, func() error {
		defer func() {
			err := log.Flush(ctx)
			if none := errors.Is(err, buckets.ErrNoAnswer) || errors.Is(err, buckets.ErrNoBucket); err != nil && !none {
				fmt.Fprintf(s.stderr, "natsid: an audit will not know who wrote these marks: %v\n", err)
			}
		}()
		if !c.Yes { // the rows may have changed while a person decided
			if rows, err = plan.read(ctx, table, r); err != nil {
				return err
			}
		}
		for _, row := range rows {
			if err := store.Raise(ctx, row); err != nil {
				return fmt.Errorf("tag %s: %w; run the command again, it leaves out completed tags", row.Name, err)
			}
		}
		if r.Identity.Kind != era.Alone {
			if err := kvstore.MakeAlone(ctx, streams, bucket, r); err != nil {
				return fmt.Errorf("change the kind of bucket %s: %w", bucket, err)
			}
		}
		return s.print(plan, func(out *sheet) {
			written := numberOf(len(plan.Tags), "tag")
			out.line("%s: of kind kv; %s written, %d in order before", bucket, written, plan.Kept)
		})
	})
}

// read plans which marks to raise, and returns the table's rows of these tags. The marks in r are older than the
// rows, which is safe: a mark only rises, so none in r is too high.
func (j *movedJSON) read(ctx context.Context, table segment.Table, r kvstore.Report) ([]segment.Row, error) {
	rows, err := table.AllRows(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	if err := movable(rows); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b segment.Row) int { return cmp.Compare(a.Name, b.Name) })
	j.Kept, j.Tags = 0, []movedTag{}
	return slices.DeleteFunc(rows, func(row segment.Row) bool {
		mark := r.Marks[row.Name]
		if mark.Mark >= row.MaxID && mark.Step == row.Step {
			j.Kept++
			return true
		}
		j.Tags = append(j.Tags, movedTag{row.Name, mark.Mark, max(mark.Mark, row.MaxID)})
		return false
	}), nil
}

// movable returns an error that names each row from which no tag can be made; nil if there is none.
func movable(rows []segment.Row) error {
	var faults []error
	for _, row := range rows {
		if e, ok := errors.AsType[*subjects.Error](subjects.CheckTag(row.Name)); ok {
			faults = append(faults, fmt.Errorf("column biz_tag, row %q: %s", row.Name, e.Text))
		}
		if row.MaxID < 1 || row.Step < 1 {
			faults = append(faults, fmt.Errorf("columns max_id and step, row %q: %d and %d, want at least 1",
				row.Name, row.MaxID, row.Step))
		}
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("nothing was moved: correct or delete these rows of leaf_alloc, of which no tag can be made:\n%w",
		errors.Join(faults...))
}

// logOf returns a log that records, for audits, the marks which this command raises, as a worker's log does. Without
// a stream of grants, nothing is recorded.
func logOf(s *session, streams buckets.Streams) *grants.Log {
	who := grants.Who{Instance: "natsid " + s.call.Command(), Process: rand.Text()}
	return &grants.Log{Who: func() grants.Who { return who }, Write: func(ctx context.Context, body []byte) error {
		_, err := streams.Publish(ctx, wire.GrantsBucket(s.namespace()), grants.Key, buckets.Write{Value: body})
		return err
	}}
}

// movedJSON says which tags were moved or, with --dry-run, would be moved.
type movedJSON struct {
	Changed bool       `json:"changed"` // false with --dry-run
	Bucket  string     `json:"bucket"`
	Kept    int        `json:"kept"` // number of tags that needed no change
	Tags    []movedTag `json:"tags"`
}

// movedTag is a tag whose mark, its next ID in the bucket, is raised.
type movedTag struct {
	Name string `json:"tag"`
	From int64  `json:"from,string"` // the mark; 0 if there was none
	To   int64  `json:"to,string"`
}

func (j movedJSON) print(out *sheet) {
	out.head("TAG\tFROM\tTO")
	for _, t := range j.Tags {
		out.row(t.Name, t.From, t.To)
	}
	out.line("%s to write, %d in order", numberOf(len(j.Tags), "tag"), j.Kept)
}
