package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/segment"
)

type resumeCmd struct {
	Restored     bool
	Since        since
	By           int64     `placeholder:"N"`
	AtLeast      marksFile `placeholder:"FILE"`
	TableIsWhole bool
	Keep         string    `placeholder:"REGISTRY"`
	Marks        marksFile `placeholder:"FILE"`
	TagsComplete bool
	Yes          bool `short:"y"`
	DryRun       bool
}

func (*resumeCmd) help() help {
	return help{
		summary: "Resume a registry that its workers have stopped.",
		detail: `Workers stop all segments when the state behind them is not the one that they have
loaded from: a backup was restored, a disk lost its last seconds, the bucket was
made again, or another registry serves the same subjects. What was loaded since the
state that is found is unknown, so each tag is raised by more than that: by ten times
its highest pace on record, for the time since that state, and ten of its largest
loads. No ID repeats if no tag moved further, loads, raises and earlier resumes since
the backup all counted. Raised too far, a tag has a hole, which costs nothing.

The command shows what was found, who answers, and from where to where each tag goes.
Then it asks, waits until no worker uses what it loaded before, raises, and ends the
stop. Interrupted, or refused since a worker changed the incident, run it again.
At the end it asks whether each tag in use is there: until you confirm that, no tag is
created on first use.

Examples:
  natsid resume
  natsid resume --by 10000000                # raise each tag by that at least
  natsid resume --restored --since 24h       # a backup was restored, and no worker remembers
  natsid resume --table-is-whole --mysql DSN # only the marks went back, MySQL did not
  natsid resume --keep 5N7LAQLGLLR4UQACIRT2BJPGKX
  natsid resume --yes --tags-complete        # in a script`,
		values: map[string]string{
			"restored":       "Say that a backup was restored, though no worker has noticed.",
			"since":          "When the restored state was taken, if no worker knows: as 2026-01-31T12:00:00Z, or 24h.",
			"by":             "Raise each tag by this at least.",
			"at-least":       "Raise tags at least to the marks in this file, of natsid tag list --json.",
			"table-is-whole": "Raise the marks to the rows of MySQL alone, which did not go back.",
			"keep":           "Of two registries, the one that serves: the one of the NATS that this command reaches.",
			"marks":          "The marks of the other registry, where that one is cut off: its natsid tag list --json.",
			"tags-complete":  "Say that each tag in use is in the bucket.",
			"yes":            "Do not ask.",
			"dry-run":        "Show what would be done.",
		},
	}
}

// Run implements the command.
func (c *resumeCmd) Run(s *session) error {
	switch {
	case c.By < 0 || c.By > math.MaxInt64/4:
		return usage(fmt.Errorf("--by %d: want 1 to %d", c.By, int64(math.MaxInt64/4)))
	case c.Marks.given && c.Keep == "":
		return usage(errors.New("--marks is of the registry that does not serve: say which one does with --keep"))
	}
	return s.withJetStream(func(_ context.Context, js jetstream.JetStream) error { return c.on(s, js) })
}

func (c *resumeCmd) on(s *session, js jetstream.JetStream) error {
	streams, bucket := buckets.OnJetStream(js), s.namespace().SegmentBucket()
	report, err := inspect(s.ctx, streams, s.namespace())
	if err != nil {
		return err
	}
	kind := kindOf(report)
	if c.TableIsWhole {
		if report.Trouble == nil && kind != kvstore.Guarded {
			return errNoTable
		}
		kind = kvstore.Guarded
	}
	made := new(markWrites)
	store := kvstore.New(streams, kvstore.Config{Bucket: bucket, Kind: kind, Wrote: made.add})
	host, _ := os.Hostname() // a name for people
	bus := natsbus.New(js.Conn(), s.namespace())
	r := &resumption{
		resumeCmd: c, s: s, kind: kind, nc: js.Conn(), ask: bus.Ask, streams: streams,
		o: lineage.Operator{
			Bucket: store.Own(), Tags: store, Kind: string(kind), Name: "natsid resume on " + host, Now: time.Now,
			Announce: bus.Announce, Step: app.DefaultStep,
		},
	}
	err = r.run(s.ctx)
	writeDown(context.WithoutCancel(s.ctx), s, streams, r.c.Identity, made.all)
	return err
}

// markWrites is the writes of marks that a command made. It is safe for concurrent use.
type markWrites struct {
	mu  sync.Mutex
	all []grants.Write
}

func (w *markWrites) add(tag string, of segment.Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, app.WriteOf(tag, of))
}

// kindOf returns the kind in the identity, or the kind that the marks suggest.
func kindOf(r kvstore.Report) kvstore.Kind {
	switch {
	case r.Trouble == nil:
		return kvstore.Kind(r.Identity.Kind)
	case r.Guards > 0:
		return kvstore.Guarded
	}
	return kvstore.Alone
}

// A resumption is one run of the command.
type resumption struct {
	*resumeCmd
	s       *session
	kind    kvstore.Kind
	nc      *nats.Conn
	ask     lineage.AskFunc
	streams buckets.Streams
	table   *mysqlstore.Table // the table that the marks guard; nil if none is named
	o       lineage.Operator
	c       lineage.Case
	report  resumeJSON
	agreed  bool
}

// mostTries bounds how often a resume starts over because a worker or another operator changes the incident.
const mostTries = 10

func (r *resumption) run(ctx context.Context) (err error) {
	if r.table, err = r.openTable(ctx); err != nil {
		return err
	}
	switch {
	case r.table != nil:
		defer r.table.Close()
		r.o.Limit = r.table.Limit()
	case r.kind == kvstore.Guarded:
		fmt.Fprintln(r.s.stderr,
			"The marks guard a table: with --mysql DSN no tag is raised beyond the limit of its column.")
	}
	if r.c, err = r.o.Look(ctx, nil); err != nil {
		return err
	}
	if out := r.c.Identity.Out; out != "" && r.Keep == "" {
		return usage(fmt.Errorf("registry %s is out: registry %s serves instead; `natsid resume --keep %s` lets this "+
			"one serve again, and takes that one out", r.c.Identity.Registry, out, r.c.Identity.Registry))
	}
	declared, err := r.declare(ctx)
	if err != nil {
		return err
	}
	if !declared && r.c.Identity.Incident == nil {
		if r.By > 0 || r.AtLeast.given || r.TableIsWhole || !r.Since.IsZero() {
			return usage(errors.New("the registry is not stopped, so nothing is raised: no worker has noticed " +
				"another state; if a backup was restored, say so with --restored"))
		}
		return r.confirm(ctx)
	}
	out := r.c.Identity.Out
	for range mostTries {
		if now := r.c.Identity.Out; now != out && now != "" {
			return fmt.Errorf("another operator has taken this registry out, and keeps registry %s: agree "+
				"which one serves, then run the command again", now)
		}
		if err = r.try(ctx); !errors.Is(err, lineage.ErrChanged) {
			return err
		}
		if r.c, err = r.o.Look(ctx, &r.c); err != nil {
			return err
		}
		if r.c.Identity.Incident == nil && r.c.Missing == nil { // another operator has ended it
			return r.confirm(ctx)
		}
		fmt.Fprintln(r.s.stderr, "A worker or another operator has changed the incident; starting over.")
	}
	return err
}

// declare opens an incident that no worker has opened: if the operator demands it, or if the identity is missing.
func (r *resumption) declare(ctx context.Context) (declared bool, err error) {
	why := ""
	switch {
	case r.Restored:
		why = "an operator said that a backup was restored"
	case r.c.Missing != nil:
		why = "the identity of the bucket of marks is gone or damaged"
	case r.Keep != "" && r.c.Identity.Incident == nil:
		why = "an operator decided between two registries"
	default:
		return false, nil
	}
	own := r.c.Identity.Registry
	switch { // a fault in the flags must not stop any worker
	case r.Keep != "" && r.Keep != own:
		return false, otherKept(r.Keep, own)
	case r.Keep == "" && !r.TableIsWhole && r.Since.IsZero():
		return false, errSince
	case r.DryRun:
		return true, nil
	case !r.Yes && !isTerminal(os.Stdin):
		return false, errNoTerminal
	}
	return true, r.o.Declare(ctx, &r.c, why)
}

var (
	errSince   = usage(errors.New("no worker knows when the restored state was taken: say it with --since"))
	errNoTable = usage(errors.New("--table-is-whole is for marks that guard a table: name that with --mysql"))
)

func otherKept(keep, own string) error {
	return usage(fmt.Errorf("--keep %s: this NATS reaches registry %s; reach the other one with --nats, or --js-domain",
		keep, own))
}

// try plans, asks, waits, raises marks and ends the stop.
func (r *resumption) try(ctx context.Context) error {
	raises, err := r.plan(ctx)
	if err != nil {
		return err
	}
	if err := r.show(raises); err != nil || r.DryRun {
		return err
	}
	if r.c.Unfit != nil {
		return fmt.Errorf("correct the settings of the bucket first: %w", r.c.Unfit)
	}
	if err := r.s.agree(r.Yes || r.agreed, "Raise the tags and resume?"); err != nil {
		return err
	}
	r.agreed = true
	if err := r.takeOut(ctx); err != nil {
		return err
	}
	if err := r.wait(ctx); err != nil {
		return err
	}
	seen := r.c
	if r.c, err = r.o.Look(ctx, &seen); err != nil { // marks may have changed before all workers had stopped
		return err
	}
	if r.c.Identity.Out != seen.Identity.Out || r.o.Wait(r.c) > 0 { // the latter: a worker has stopped since
		return lineage.ErrChanged
	}
	if raises, err = r.plan(ctx); err != nil {
		return err
	}
	r.report = r.describe(raises)
	if err := r.o.Plan(ctx, &r.c, raises); err != nil {
		return err
	}
	err = r.o.Raise(ctx, raises, func(done int) {
		fmt.Fprintf(r.s.stderr, "%d of %s raised\n", done, numberOf(len(raises), "tag"))
	})
	if err != nil {
		return fmt.Errorf("%w; run the command again: it continues above the raised marks", err)
	}
	if err := r.o.End(ctx, &r.c, r.TagsComplete); err != nil {
		return err
	}
	fmt.Fprintf(r.s.stderr, "Registry %s is resumed; workers serve again within seconds.\n", r.c.Identity.Registry)
	return r.confirm(ctx)
}

// wait waits until no worker uses a load that was made without knowledge of the incident.
func (r *resumption) wait(ctx context.Context) error {
	left := r.o.Wait(r.c)
	if left <= 0 {
		return nil
	}
	fmt.Fprintf(r.s.stderr, "Waiting %s until no worker uses its earlier loads.\n", left.Round(time.Second))
	tick(ctx, left)
	return ctx.Err()
}

// confirm asks whether the bucket has each tag in use, unless that was confirmed since the last stop.
func (r *resumption) confirm(ctx context.Context) (err error) {
	if r.c, err = r.o.Look(ctx, &r.c); err != nil {
		return err
	}
	if !r.c.Identity.Unconfirmed {
		return r.done("in order")
	}
	fmt.Fprintf(r.s.stderr, "Tags, limits or orders that were made after the state found are missing. The bucket has "+
		"%s: %s. Create those that are missing with `natsid tag create TAG --start N`, N above all their IDs.\n",
		numberOf(len(r.c.Marks), "tag"), names(firstOf(slices.Collect(maps.Keys(r.c.Marks)), 50)))
	if r.DryRun || !r.TagsComplete && (!isTerminal(os.Stdin) || !r.s.asks("Is each tag in use among them?")) {
		return r.done("no tag is created on first use until you run `natsid resume --tags-complete`")
	}
	if err := r.o.Confirm(ctx, &r.c); err != nil {
		return err
	}
	return r.done("in order")
}
