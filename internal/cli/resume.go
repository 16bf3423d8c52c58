package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/stores/kvstore"
)

type resumeCmd struct {
	Restored bool
	Bump     *int64 `placeholder:"N"`
	Keep     string `placeholder:"REGISTRY"`
	consent
}

func (*resumeCmd) help() help {
	return help{
		summary: "Resume a registry that its workers have stopped.",
		detail: `Workers stop all segments when the state behind them is not the one that they have
loaded from: a backup was restored, a disk lost its last seconds, the bucket was
made again, or another registry serves the same subjects. A resume begins an era, in
which each tag goes on higher: by as much as workers know its mark to be too low, and
by the bump. No ID repeats if no tag moved further. The hole costs nothing.

The command shows what was found and what becomes of the tags, asks, and resumes by
one write. A tag with a last number is refused until you say where it goes on.

Examples:
  natsid resume
  natsid resume --restored               # a backup was restored, and no worker remembers
  natsid resume --bump 0 --mysql DSN     # only the marks went back, MySQL did not
  natsid resume --keep 5N7LAQLGLLR4UQACIRT2BJPGKX`,
		values: map[string]string{
			"restored": "Say that a backup was restored, though no worker has noticed.",
			"bump":     "No tag was loaded, raised or created N further since the state found. 1000000000 if absent.",
			"keep":     "Of two registries, the one that serves: the one of the NATS that this command reaches.",
		},
	}
}

// Run implements the command.
func (c *resumeCmd) Run(s *session) error {
	r := &resumption{resumeCmd: c, s: s, bump: 1_000_000_000, limit: math.MaxInt64}
	if c.Bump != nil {
		r.bump = *c.Bump
	}
	if r.bump < 0 || r.bump > era.MostOffset {
		return usage(fmt.Errorf("--bump %d: want 0 to %d", r.bump, int64(era.MostOffset)))
	}
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		report, err := inspect(ctx, onJetStream(js), s.namespace())
		if err != nil {
			return err
		}
		cfg := kvstore.Config{
			Bucket: s.namespace().SegmentBucket(), Kind: kindOf(report),
			Eras: func() era.Identity { return r.seen.Identity.Knowing(nil) },
		}
		if cfg.Kind == kvstore.Guarded {
			table, err := s.openTable(ctx)
			if err == nil {
				defer table.Close()
				cfg.Table, r.limit = table, table.Limit()
			} else if !errors.Is(err, errNoMySQL) {
				return err
			}
		}
		bus := natsbus.New(js.Conn(), s.namespace())
		r.store, r.ask = kvstore.New(onJetStream(js), cfg), bus.Ask
		r.o = lineage.Operator{
			Bucket: r.store.Own(), Kind: string(cfg.Kind), Name: "natsid resume", Now: time.Now, Announce: bus.Announce,
		}
		return r.run()
	})
}

// A resumption is one run of the command.
type resumption struct {
	*resumeCmd
	s      *session
	store  *kvstore.Store
	limit  int64 // the highest mark that the store can hold
	ask    lineage.AskFunc
	o      lineage.Operator
	bump   int64
	seen   *lineage.Case // last; nil before
	first  era.Identity  // as it was seen first
	agreed string        // the incident that a person agreed to end
}

// run takes steps until the registry is resumed, or need not be.
func (r *resumption) run() (err error) {
	for range 14 {
		ctx, cancel := r.s.soon()
		err = r.step(ctx)
		cancel()
		if !errors.Is(err, lineage.ErrChanged) {
			break
		}
	}
	if err == nil || isA[usageError](err) || errors.Is(err, lineage.ErrUnknown) {
		return err
	}
	return fmt.Errorf("the registry is not resumed: %w", err)
}

// step looks at the registry, and does what is next. It returns [lineage.ErrChanged] to be called again.
func (r *resumption) step(ctx context.Context) error {
	c, err := r.o.Look(ctx, r.seen)
	if err != nil {
		return err
	}
	if r.seen == nil {
		r.first = c.Identity
		r.o.Rouse(c)
	}
	r.seen = &c
	isIdle, err := r.check(c)
	if err != nil {
		return err
	}
	if wait := r.o.Wait(c); wait > 0 && !isIdle {
		fmt.Fprintln(r.s.stderr, "Waiting until each worker has checked the registry.")
		tick(ctx, wait)
		return cmp.Or(ctx.Err(), lineage.ErrChanged)
	}
	other := r.other(ctx)
	plan, err := r.plan(ctx, c, isIdle, other)
	switch agreed := cmp.Or(c.Identity.Open(), "none"); {
	case err != nil:
		return err
	case isIdle, r.DryRun:
		return r.s.print(plan, plan.print)
	case r.agreed != agreed:
		_, _ = r.s.stderr.Write(typeset(plan.print).Bytes())
		r.agreed = agreed
		return cmp.Or(r.s.agree(r.Yes, "Resume?"), lineage.ErrChanged)
	case other != "":
		eras, err := r.ask.Stop(ctx, other, r.Keep)
		if err != nil {
			return fmt.Errorf("registry %s is not stopped: %w", other, err)
		}
		fmt.Fprintf(r.s.stderr, "Registry %s is stopped. Waiting until its workers use no earlier loads.\n", other)
		tick(ctx, lineage.Draining)
		if plan, err = r.plan(ctx, c, false, other); err != nil {
			return err
		}
		c.Identity = c.Identity.Merge(other, eras)
	}
	if err := r.o.Resume(ctx, &c, r.bump, plan.Need); err != nil {
		return err
	}
	plan.Offset, plan.Outcome = c.Identity.Offset(), "resumed"
	return r.s.print(plan, plan.print)
}

// check returns an error for flags that do not fit what was found. isIdle says that there is nothing to resume.
func (r *resumption) check(c lineage.Case) (isIdle bool, err error) {
	id, in := c.Identity, c.Identity.Incident
	switch {
	case r.Keep != "" && r.Keep != id.Registry:
		err = fmt.Errorf("--keep %s: this NATS reaches registry %s; reach the other one with --nats, or --js-domain",
			r.Keep, id.Registry)
	case in != nil && in.Other != "" && r.Keep == "":
		err = fmt.Errorf("registries %s and %s serve the same subjects: say which one serves with --keep",
			id.Registry, in.Other)
	case in == nil && id.Era != r.first.Era && id.Offsets.Has(r.first.Offsets): // another operator was faster
		return true, nil
	case in != nil || c.Missing != nil || r.Restored || r.Keep != "":
		return false, nil
	case r.Bump == nil:
		return true, nil
	default:
		err = errors.New("the registry is not stopped, so nothing is raised: no worker has noticed another state; if " +
			"a backup was restored, say so with --restored")
	}
	return false, usage(err)
}

// other returns the registry that is to be stopped for the one that is kept, "" if none answers.
func (r *resumption) other(ctx context.Context) string {
	if r.Keep == "" {
		return ""
	}
	all, _ := r.ask.Notices(ctx, lineage.Notice{Process: rand.Text()}) // an error counts as none
	for _, n := range all {
		if n.Registry != "" && n.Registry != r.Keep {
			return n.Registry
		}
	}
	return ""
}

// resumeJSON is a resume, or with --dry-run its plan.
type resumeJSON struct {
	Registry  string       `json:"registry"`
	Incident  string       `json:"incident,omitempty"`
	Cause     string       `json:"cause,omitempty"`
	Found     []era.Prover `json:"found"`         // by workers
	Stopped   []string     `json:"stopped"`       // workers that have stopped for it
	Bump      int64        `json:"bump,string"`   // how far tags may have moved beyond what workers know
	Need      int64        `json:"need,string"`   // by how much marks are too low, as workers know
	Offset    int64        `json:"offset,string"` // of the era
	Wide      []string     `json:"wide"`          // tags whose next ID outgrows a width
	Undecided []string     `json:"undecided"`     // tags about which an operator must decide
	DryRun    bool         `json:"dry_run"`
	Outcome   string       `json:"outcome,omitempty"` // "in order" or "resumed"; absent with --dry-run
}

// plan returns what a resume would do.
//
// Law: need is by how much any tag is below what workers of either registry have loaded of it, at least; the offset of
// the new era is higher than each known one by need and bump: see [era.Identity.Resume].
func (r *resumption) plan(ctx context.Context, c lineage.Case, isIdle bool, other string) (j resumeJSON, err error) {
	id, in := c.Identity, cmp.Or(c.Identity.Incident, &era.Incident{})
	hasRows := id.Kind == string(kvstore.Guarded) // then each tag has a row, and its era is all that is to be known
	j = resumeJSON{
		Registry: id.Registry, Incident: in.ID, Cause: string(in.Cause), Found: in.Provers, Stopped: c.Stopped,
		Need: c.Need, DryRun: r.DryRun,
	}
	tags, err := r.store.List(ctx, "", math.MaxInt)
	there := make(map[string]int64)
	if err == nil && other != "" {
		there, err = r.ask.Marks(ctx, other)
	}
	if err != nil {
		return j, err
	}
	for _, t := range tags {
		j.Need = max(j.Need, there[t.Name]-t.MaxID)
		delete(there, t.Name)
	}
	for _, mark := range there { // here such a tag begins at the offset
		j.Need = max(j.Need, mark-id.Offset()-1)
	}
	switch {
	case isIdle:
		j.Outcome = inOrder
	case r.Bump == nil && r.Keep != "" && other == "":
		err = errors.New("no worker of another registry answers: connect one, or give --bump N, N above all that " +
			"it may have loaded of a tag")
	case r.Bump == nil && j.Need == 0 && (c.Missing != nil || in.Cause == era.Lost && !(hasRows && len(in.Eras) > 0)):
		err = errors.New("the marks are lost, and no worker knows how far tags were: give --bump N, N above every ID " +
			"that was ever used")
	default:
		j.Bump = r.bump
		id, err = id.Resume(j.Bump, j.Need, time.Time{})
	}
	j.Offset = id.Offset()
	by := j.Offset - c.Identity.Offset()
	for _, t := range tags {
		to := t.MaxID + by
		width := slices.IndexFunc(widths, func(bits int) bool { return t.MaxID>>bits == 0 && to>>bits > 0 })
		switch {
		case t.Disabled:
		case t.Undecided || by > 0 && (t.Rules.Bounded() || t.MaxID > r.limit-by):
			j.Undecided = append(j.Undecided, t.Name)
		case width >= 0:
			j.Wide = append(j.Wide, fmt.Sprintf("%s: %d -> %d, beyond 2^%d", t.Name, t.MaxID, to, widths[width]))
		}
	}
	return j, usage(err)
}

// widths are the bits of types in which callers may keep IDs, the widest first.
var widths = []int{53, 32, 31}

// print prints a resume. Nothing in it depends on a clock.
func (j resumeJSON) print(out *sheet) {
	if j.Outcome == "" {
		out.line("cause %s, incident %s", cmp.Or(j.Cause, "-"), cmp.Or(j.Incident, "-"))
		for _, p := range j.Found {
			out.line("  worker %s: %s", p.Name, p.Why)
		}
		fmt.Fprintf(out, `Workers that have stopped: %s.
The new era has offset %d: the highest that is known, and the %d that marks are too low, and the bump.
The bump of %d covers %v of one tag at 10,000 IDs/s.
No ID repeats if since the state found no tag was loaded, raised or created further than the bump. Resumes since then
that nobody remembers who has checked count with their bumps.
A new tag begins at %d, but for "natsid tag create TAG --start 1".
`, clean(cmp.Or(strings.Join(j.Stopped, ", "), "none")), j.Offset, j.Need, j.Bump,
			time.Duration(j.Bump/10_000)*time.Second, j.Offset+1)
		for _, tag := range j.Wide {
			fmt.Fprintf(out, "  %s\n", tag)
		}
	}
	if len(j.Undecided) > 0 {
		fmt.Fprintln(out, "These tags have no room for an offset: they are refused until you say where they go "+
			"on, above every ID of them, those that clients hold included. A daily one goes on by itself the next day.")
	}
	for _, tag := range j.Undecided {
		fmt.Fprintf(out, "  natsid tag update %s --next-id N\n", tag)
	}
	if j.Outcome != "" {
		fmt.Fprintf(out, "registry %s: %s\n", j.Registry, j.Outcome)
	}
}
