package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

type storeMoveCmd struct{ Yes bool }

func (*storeMoveCmd) help() help {
	return help{
		summary: "Move all tags from MySQL to JetStream.",
		detail: `Raises each mark to its row, then changes the kind of the marks. Stop all Leaf
nodes before. Workers with --mysql refuse segments within --tag-poll, and those
without it start. docs/operations.md has the whole sequence, and the way back.

Without --yes the command shows what it would do. It can be repeated.

Example:
  natsid store move --mysql 'user:password@tcp(db:3306)/leaf' --yes`,
		values: map[string]string{"yes": "Do it."},
	}
}

// Run implements the command.
func (c *storeMoveCmd) Run(s *session) error {
	table, err := s.openTable(s.ctx)
	if err != nil {
		return err
	}
	defer table.Close()
	return s.withStore(func(ctx context.Context, streams buckets.Streams, r kvstore.Report) error {
		if err := errors.Join(r.Unfit, r.Trouble); err != nil {
			return fmt.Errorf("%w; run `natsid status`", err)
		}
		return c.move(ctx, s, streams, r, table)
	})
}

// move raises the marks that are below their rows, and then changes the kind in the identity of their bucket. Marks are
// in JetStream where they guard a table, too, so no ID is copied that could be copied late.
//
// Law: until each worker of the old kind has noticed, both kinds load. Each load raises the same mark by the same
// compare-and-set, so their ranges are disjoint. Loaders that know the table alone, as Leaf's, are not bound by marks:
// they must be stopped before.
func (c *storeMoveCmd) move(
	ctx context.Context, s *session, streams buckets.Streams, r kvstore.Report, table segment.Table,
) error {
	bucket, log := wire.SegmentBucket(s.namespace()), logOf(s, streams)
	store := kvstore.New(streams, kvstore.Config{
		Bucket: bucket, Kind: kvstore.Kind(r.Identity.Kind),
		Raised: func(tag string, from, to int64) { log.Load(tag, grants.Raise(from, to)) },
	})
	rows, err := table.AllRows(ctx)
	if err != nil {
		return fmt.Errorf("read the table: %w", err)
	}
	slices.SortFunc(rows, func(a, b segment.Row) int { return cmp.Compare(a.Name, b.Name) })
	if err := movable(rows); err != nil {
		return err
	}
	defer func() {
		err := log.Flush(ctx)
		if none := errors.Is(err, buckets.ErrNoAnswer) || errors.Is(err, buckets.ErrNoBucket); err != nil && !none {
			fmt.Fprintf(s.stderr, "natsid: an audit will not know who wrote these marks: %v\n", err)
		}
	}()
	outcome := movedJSON{Changed: c.Yes, Bucket: bucket, Tags: []movedTag{}}
	for _, row := range rows {
		mark := r.Marks[row.Name]
		if mark.Mark >= row.MaxID && mark.Step == row.Step {
			outcome.Kept++
			continue
		}
		outcome.Tags = append(outcome.Tags, movedTag{row.Name, mark.Mark, max(mark.Mark, row.MaxID)})
		if !c.Yes {
			continue
		}
		if err := store.Raise(ctx, row); err != nil {
			return fmt.Errorf("tag %s: %w; run the command again, it leaves out completed tags", row.Name, err)
		}
	}
	if c.Yes && kvstore.Kind(r.Identity.Kind) != kvstore.Alone {
		if err := kvstore.MakeAlone(ctx, streams, bucket, r); err != nil {
			return fmt.Errorf("change the kind of bucket %s: %w", bucket, err)
		}
	}
	return s.print(outcome, outcome.print)
}

// movable returns an error that names each row which no tag can be made of, before anything is written.
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

// logOf returns a log of the marks that a command raises, for audits: to a reader the command is a process. Without a
// stream of grants no worker records writes either.
func logOf(s *session, streams buckets.Streams) *grants.Log {
	who := grants.Who{Instance: "natsid " + s.call.Command(), Process: rand.Text()}
	return grants.New(func(ctx context.Context, e *grants.Entry) error {
		e.Who = who
		body, err := json.Marshal(e)
		if err == nil {
			_, err = streams.Publish(ctx, wire.GrantsBucket(s.namespace()), grants.Key, buckets.Write{Value: body})
		}
		return err
	}, func() int { return 64 << 10 })
}

// movedJSON is the tags that were moved, or would be with --yes.
type movedJSON struct {
	Changed bool       `json:"changed"` // false without --yes
	Bucket  string     `json:"bucket"`
	Kept    int        `json:"kept"` // tags that needed no change
	Tags    []movedTag `json:"tags"`
}

// movedTag is a tag whose mark is raised.
type movedTag struct {
	Name string `json:"tag"`
	From int64  `json:"from,string"` // the mark; 0 if there was none
	To   int64  `json:"to,string"`
}

func (j movedJSON) print(out io.Writer) {
	if j.Changed {
		fmt.Fprintf(out, "%s: of kind kv; %s written, %d in order before\n",
			j.Bucket, numberOf(len(j.Tags), "tag"), j.Kept)
		return
	}
	for i, t := range j.Tags {
		if i == 20 {
			fmt.Fprintf(out, "... and %d more\n", len(j.Tags)-i)
			break
		}
		from := fmt.Sprintf("%d ->", t.From)
		if t.From == 0 {
			from = "new, from"
		}
		fmt.Fprintf(out, "%s: %s %d\n", t.Name, from, t.To)
	}
	fmt.Fprintf(out, "To write: %s; in order: %d.\nNothing was changed. Run it again with --yes.\n",
		numberOf(len(j.Tags), "tag"), j.Kept)
}
