package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
)

type resumeCmd struct {
	Restored bool
	Bump     *int64 `placeholder:"N"`
	Keep     string `placeholder:"REGISTRY"`
	consent
}

func (*resumeCmd) help() help {
	return help{
		summary: "Resume segments after workers have stopped them.",
		detail: `Workers stop all segments when the state behind them is not the one that they have
loaded from: a backup was restored, a disk lost its last seconds, the bucket was
made again, or another registry serves the same subjects. A resume begins a new era.
In it each tag continues higher: by as much as workers know its mark to be too low,
plus the bump. No ID repeats, unless a tag had moved further than that. The skipped
IDs cost nothing.

The command shows what was found and what becomes of the tags, asks, and resumes by
one write. A tag with a last number is refused until you say where it continues.

Examples:
  natsid resume
  natsid resume --restored               # a backup was restored, and no worker remembers
  natsid resume --bump 0 --mysql DSN     # only the marks went back, MySQL did not
  natsid resume --keep 5N7LAQLGLLR4UQACIRT2BJPGKX`,
		values: map[string]string{
			"restored": "Say that a backup was restored, though no worker has noticed.",
			"bump": "How far each tag is raised: further than any tag moved since the state found. The default is " +
				"1000000000.",
			"keep": "Of two registries, the one that shall serve. This command must reach its NATS.",
		},
	}
}

func (c *resumeCmd) Run(s *session) error {
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		report, err := s.inspect(ctx, js)
		if err != nil {
			return err
		}
		bus, kind := natsbus.New(js.Conn(), s.namespace()), report.Identity.Kind
		if report.Trouble != nil { // the bucket's own record of its kind is lost: the marks show the kind
			kind = map[bool]string{true: era.Guarded, false: era.Alone}[report.Guards > 0]
		}
		o := lineage.Operator{
			Choices: lineage.Choices{Restored: c.Restored, Bump: c.Bump, Keep: c.Keep, DryRun: c.DryRun},
			Kind:    kind, Name: "natsid resume", Limit: math.MaxInt64, Now: time.Now,
			Announce: bus.Announce, Ask: bus.Ask, Soon: s.soon,
			Say: func(what string) { fmt.Fprintln(s.stderr, what) },
			Agree: func(p lineage.Plan) error {
				_, _ = s.stderr.Write(typeset(func(out *sheet) { printPlan(p, out) }).Bytes())
				return s.agree(c.Yes, "Resume?")
			},
		}
		cfg := kvstore.Config{Bucket: wire.SegmentBucket(s.namespace()), Existing: true, Eras: o.Eras}
		if kind == era.Guarded {
			table, err := s.openTable(ctx)
			if err == nil {
				defer table.Close()
				cfg.Table, o.Limit = table, table.Limit()
			} else if !errors.Is(err, errNoMySQL) {
				return err
			}
		}
		store := kvstore.New(onJetStream(js), cfg)
		o.Bucket, o.List = store.Own(), store.List
		p, err := o.Run()
		if choices, ok := errors.AsType[lineage.ChoicesError](err); ok {
			return usage(choices)
		} else if err != nil {
			return err
		}
		return s.print(p, func(out *sheet) { printPlan(p, out) })
	})
}

// printPlan prints a plan of a resume. It is deterministic: the same plan gives the same text.
func printPlan(j lineage.Plan, out *sheet) {
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
