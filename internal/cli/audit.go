package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/wire"
)

type auditCmd struct {
	Tag   tagName
	Since since
}

func (*auditCmd) help() help {
	return help{
		summary: "Prove from the records of workers that no ID was granted twice, or name the IDs in doubt.",
		detail: `Reads the stream of grants: all loads of tags and windows of worker numbers.

Exit code 0 means proven: each ID that was loaded since the first entry is in one
load, or was lost by a process that died within a second of loading it, and no two
processes had one worker number at one time.

Exit code 1 means repeated: two grants share IDs, or times of a worker number.

Exit code 4 means not proven: IDs below a mark are in no load. Several workers died
so, one after the other; or one did, and the marks went back or were resumed before
the next load; or somebody wrote the mark by hand; or entries are gone.

Examples:
  natsid audit
  natsid audit --tag order --since 24h`,
		values: map[string]string{
			"tag":   "Only the loads of this tag.",
			"since": "Only entries since a time, such as 2026-01-31T12:00:00Z, or of an age, such as 24h.",
		},
	}
}

// auditJSON is the outcome of an audit of grants: which process was given which IDs.
type auditJSON struct {
	Verdict string `json:"verdict"` // proven, repeated or "not proven"
	grants.Scope
	Resumed  bool             `json:"resumed"`  // the proof rests on what `natsid resume` assumes
	Findings []grants.Finding `json:"findings"` // IDs that were granted twice come first
}

// settled is the longest time from a worker's write of a mark, the next ID of a tag, to its record of the load.
const settled = 2500 * time.Millisecond

// Run reads the marks (the next IDs of the tags), waits until their last writes are recorded, and then reads the
// records. So an ID that is below its tag's mark, and in no record, is of a load that was never recorded.
func (c *auditCmd) Run(s *session) error {
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		streams, bucket := onJetStream(js), wire.GrantsBucket(s.namespace())
		before, err := streams.Info(ctx, bucket)
		if err != nil && !errors.Is(err, buckets.ErrNoBucket) {
			return err
		}
		r, err := s.inspect(ctx, js)
		if err != nil {
			return err
		}
		marks := make(map[string]grants.Mark)
		for tag, p := range r.Marks {
			if p.Undecided {
				p.Mark = math.MaxInt64 // no worker loads the tag: it waits for an operator
			}
			marks[tag] = grants.Mark{Raw: p.Raw, Shown: p.Mark, Run: p.Run}
		}
		_ = jitter.Sleep(ctx, settled)
		h := grants.History{Tag: string(c.Tag), Since: c.Since.Time, Past: before.LastSeq}
		if err := h.Read(s.ctx, js, streams, bucket, r.Info.Created); err != nil {
			return err
		}
		out := auditJSON{Verdict: grants.Proven, Resumed: len(r.Identity.Offsets) > 1, Findings: h.Judge(marks)}
		if out.Scope = h.Scope; c.Tag != "" && out.Tags == 0 {
			return fmt.Errorf("tag %s has no mark, nor a load that is written down: see `natsid tag list`", c.Tag)
		}
		if len(out.Findings) > 0 && out.Findings[0].Verdict != grants.Lost {
			out.Verdict = out.Findings[0].Verdict
		}
		if err := s.print(out, out.print); err != nil {
			return err
		}
		switch out.Verdict {
		case grants.Repeated:
			return errors.New("IDs were granted twice")
		case grants.NotProven:
			return errNotProven
		}
		return nil
	})
}

func (j *auditJSON) print(out *sheet) {
	if !j.From.IsZero() {
		out.row("from", exact(j.From))
	}
	out.row("read", fmt.Sprintf("%s; %s of %s, %s", numberOf(j.Entries, "entry"),
		numberOf(j.Loads, "load"), numberOf(j.Tags, "tag"), numberOf(j.Windows, "window")))
	for _, f := range j.Findings {
		out.row(f.Verdict, f.What+": "+f.Message)
	}
	if j.Resumed {
		out.row("resumed", "so the verdict rests on the assumption of `natsid resume`")
	}
	out.row("verdict", map[string]string{
		grants.Proven: "proven: no ID was granted twice", grants.Repeated: "repeated: IDs were granted twice",
		grants.NotProven: "not proven: no ID is known to have been granted twice",
	}[j.Verdict])
}
