package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/subjects"
)

type storeShowCmd struct {
	Marks bool
}

func (*storeShowCmd) help() help {
	return help{
		summary: "Show where the marks of the tags are, and whether workers may rely on them.",
		detail: `The identity of the bucket names its registry and its kind: kv, the marks are
the store; mysql, they guard a table. A bucket without identity was purged, or
deleted and made again, and all workers have stopped.

Examples:
  natsid store show
  natsid store show --marks >marks.txt   # for natsid resume --marks, --at-least`,
		values: map[string]string{"marks": "Print the mark of each tag instead, in lines of TAG MARK."},
	}
}

// Run implements the command.
func (c *storeShowCmd) Run(s *session) error {
	return s.withStore(func(ctx context.Context, streams buckets.Streams, r kvstore.Report) error {
		if c.Marks {
			return printMarks(s, r.Marks)
		}
		id := r.Identity
		store := storeJSON{
			Bucket: s.namespace().SegmentBucket(), Kind: id.Kind, Registry: id.Registry, Made: id.Made,
			Era: id.Era(), Tags: r.Tags, DenyPurge: r.Info.DenyPurge, State: storeState(r),
		}
		return s.print(store, store.print)
	})
}

// printMarks prints marks as `natsid resume` reads them.
func printMarks(s *session, marks map[string]kvstore.Present) error {
	all := make(map[string]subjects.Decimal, len(marks))
	for tag, p := range marks {
		all[tag] = subjects.Decimal(p.Mark)
	}
	return s.print(all, func(out io.Writer) {
		for _, tag := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintln(out, tag, all[tag])
		}
	})
}

// storeJSON is the store of the tags. Fields that the bucket does not report are absent.
type storeJSON struct {
	Bucket    string    `json:"bucket"`
	Kind      string    `json:"kind,omitempty"`
	Registry  string    `json:"registry,omitempty"`
	Made      time.Time `json:"made,omitzero"`
	Era       string    `json:"era,omitempty"`
	Tags      int       `json:"tags"`
	DenyPurge bool      `json:"deny_purge"`
	State     string    `json:"state"` // "in order", or the remaining task
}

func (j storeJSON) print(table io.Writer) {
	row := func(name string, value any) { fmt.Fprintf(table, "%s\t%v\n", name, value) }
	row("BUCKET", j.Bucket)
	row("KIND", cmp.Or(j.Kind, "-"))
	row("REGISTRY", cmp.Or(j.Registry, "-"))
	row("MADE", instant(j.Made))
	row("ERA", cmp.Or(j.Era, "-"))
	row("TAGS", j.Tags)
	row("PURGES", map[bool]string{true: "refused", false: "possible"}[j.DenyPurge])
	row("STATE", j.State)
}

// storeState returns in one line an operator's task.
func storeState(r kvstore.Report) string {
	switch {
	case r.Unfit != nil:
		return r.Unfit.Error()
	case r.Trouble != nil:
		return r.Trouble.Error() + ": run `natsid resume`"
	case r.Identity.Out != "":
		return "out: registry " + r.Identity.Out + " serves instead"
	case r.Identity.Incident != nil:
		return fmt.Sprintf("stopped: %s: %s; run `natsid resume`", r.Identity.Incident.Cause, r.Identity.Incident.Why())
	case r.Identity.Unconfirmed:
		return "tags may be missing since the last resume: no tag is created on first use; run `natsid resume`"
	case len(r.Damaged) > 0:
		return fmt.Sprintf("%d damaged entries, such as that of tag %s: replace them with `nats kv put`",
			len(r.Damaged), r.Damaged[0])
	}
	return "in order"
}

// storeTimeout bounds reading a bucket of many tags.
const storeTimeout = 30 * time.Second

// withJetStream calls f with JetStream, and with a context that bounds reading a bucket.
func (s *session) withJetStream(f func(context.Context, jetstream.JetStream) error) error {
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := s.jetStream(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
	defer cancel()
	return f(ctx, js)
}

// inspect returns the content of the bucket of the marks, which must exist.
func inspect(ctx context.Context, streams buckets.Streams, ns subjects.Namespace) (kvstore.Report, error) {
	bucket := ns.SegmentBucket()
	r, err := kvstore.Inspect(ctx, streams, bucket)
	switch {
	case errors.Is(err, buckets.ErrNoBucket):
		err = nobodyError{fmt.Errorf("there is no bucket %s: no worker has kept marks in namespace %s; "+
			"check --nats and --namespace", bucket, ns)}
	case err != nil:
		err = fmt.Errorf("read bucket %s: %w", bucket, err)
	}
	return r, err
}

// withStore calls f with the content of the bucket of the marks, which must exist.
func (s *session) withStore(f func(context.Context, buckets.Streams, kvstore.Report) error) error {
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		streams := buckets.OnJetStream(js)
		r, err := inspect(ctx, streams, s.namespace())
		if err != nil {
			return err
		}
		return f(s.ctx, streams, r)
	})
}
