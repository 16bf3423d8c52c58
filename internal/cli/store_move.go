package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/move"
	"github.com/natsid/natsid/segment"
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

func (c *storeMoveCmd) move(
	ctx context.Context, s *session, streams buckets.Streams, r kvstore.Report, table segment.Table,
) error {
	bucket := s.namespace().SegmentBucket()
	marks := kvstore.New(streams, kvstore.Config{Bucket: bucket, Kind: kvstore.Kind(r.Identity.Kind)})
	tags, kept, err := move.Plan(ctx, marks, table)
	if err != nil {
		return err
	}
	outcome := movedJSON{Bucket: bucket, Kept: kept, Tags: tags}
	if !c.Yes {
		return s.print(outcome, outcome.print)
	}
	var written []grants.Write
	defer func() { writeDown(ctx, s, streams, r.Identity, written) }()
	wrote := func(tag string, w segment.Write) { written = append(written, app.WriteOf(tag, w)) }
	for _, t := range tags {
		if err := t.Write(ctx, marks, wrote); err != nil && !errors.Is(err, segment.ErrInvalid) {
			return fmt.Errorf("tag %s: %w; run the command again, it leaves out completed tags", t.Name, err)
		}
	}
	if kvstore.Kind(r.Identity.Kind) != kvstore.Alone {
		if err := kvstore.SetKind(ctx, streams, bucket, r, kvstore.Alone); err != nil {
			return fmt.Errorf("change the kind of bucket %s: %w", bucket, err)
		}
	}
	outcome.Changed = true
	return s.print(outcome, outcome.print)
}

// writeDown records a command's writes of marks, for audits.
func writeDown(
	ctx context.Context, s *session, streams buckets.Streams, id lineage.Identity, all []grants.Write,
) {
	head := grants.Head{
		Instance: "natsid " + s.call.Command(), Segments: id.Registry, Era: app.EraOf(id),
		Store: "bucket " + s.namespace().SegmentBucket(),
	}
	bucket := s.namespace().GrantsBucket()
	err := grants.Append(func(entry []byte) error {
		_, err := streams.Publish(ctx, bucket, grants.Key, buckets.Write{Value: entry})
		return err
	}, head, all)
	none := errors.Is(err, buckets.ErrNoAnswer) || errors.Is(err, buckets.ErrNoBucket) // no worker records writes
	if err != nil && !none {
		fmt.Fprintf(s.stderr, "natsid: an audit will not know who wrote these marks: %v\n", err)
	}
}

// movedJSON is the tags that were moved, or would be with --yes.
type movedJSON struct {
	Changed bool       `json:"changed"` // false without --yes
	Bucket  string     `json:"bucket"`
	Kept    int        `json:"kept"` // tags that needed no change
	Tags    []move.Tag `json:"tags"` // From is 0 for a tag that there was not
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
