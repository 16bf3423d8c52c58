package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment/kvstore"
)

type storeConfirmCmd struct {
	Kind string `enum:",kv,mysql" default:"" placeholder:"KIND"`
	Yes  bool
}

func (*storeConfirmCmd) help() help {
	return help{
		summary: "Say that each tag in use has a mark above all its IDs, so that tags are created on first use again.",
		detail: `Workers refuse to create tags in a bucket of marks that was purged, or deleted
and made again, or was restored and raised with "natsid tag raise --all": any name
could be one whose IDs are in use. First create each tag
that was in use with "natsid tag create TAG --start N", N far above its IDs, or
raise it. Then confirm. If a tag is forgotten and used, its IDs repeat.

Without --yes the command shows what it would do. Workers follow within
--tag-poll.

Example:
  natsid store confirm --yes`,
		values: map[string]string{
			"kind": "What the marks are: kv, the store itself, or mysql, the guard of a table.",
			"yes":  "Do it.",
		},
	}
}

// Run implements the command.
func (c *storeConfirmCmd) Run(s *session) error {
	return s.withStore(func(ctx context.Context, streams buckets.Streams, r kvstore.Report) error {
		if r.Unfit != nil {
			return fmt.Errorf("correct the settings first: %w", r.Unfit)
		}
		kind, bucket := c.kind(r), s.namespace().SegmentBucket()
		outcome := confirmedJSON{Bucket: bucket, Kind: string(kind), Tags: r.Tags}
		if !c.Yes {
			return s.print(outcome, func(out io.Writer) error {
				_, err := fmt.Fprintf(out, "Bucket %s has %s. It would be confirmed as of kind %s.\n"+
					"Is each tag that was ever used among them, above all its IDs? See `natsid tag list`.\n"+
					"Nothing was changed. Run it again with --yes.\n", bucket, numberOf(r.Tags, "tag"), kind)
				return err
			})
		}
		id, err := kvstore.Confirm(ctx, streams, bucket, r, kind)
		if err != nil {
			return fmt.Errorf("confirm bucket %s: %w", bucket, err)
		}
		outcome.Changed, outcome.Registry = true, id.Registry
		return s.print(outcome, func(out io.Writer) error {
			_, err := fmt.Fprintf(out, "%s: confirmed as registry %s of kind %s, with %s\n",
				bucket, id.Registry, id.Kind, numberOf(r.Tags, "tag"))
			return err
		})
	})
}

type confirmedJSON struct {
	Changed  bool   `json:"changed"` // false without --yes
	Bucket   string `json:"bucket"`
	Kind     string `json:"kind"`
	Tags     int    `json:"tags"`
	Registry string `json:"registry,omitempty"`
}

// kind returns the kind that was given, or that of the identity, or what the marks look like.
func (c *storeConfirmCmd) kind(r kvstore.Report) kvstore.Kind {
	switch {
	case c.Kind != "":
		return kvstore.Kind(c.Kind)
	case r.Trouble == nil:
		return r.Identity.Kind
	case r.Guards > 0:
		return kvstore.Guarded
	}
	return kvstore.Alone
}
