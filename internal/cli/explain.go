package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

type explainCmd struct {
	ID  int64 `arg:""`
	Tag tagName
}

func (*explainCmd) help() help {
	return help{
		summary: "Show when an ID was granted or skipped, by which worker, and in which load or window.",
		detail: `Searches the stream of grants. With --tag it searches the loads of that tag. Without,
it takes the ID for a snowflake or, if no window contains it, searches the loads of
all tags. "natsid audit" names what the stream lacks. Give an ID that a service
masked as natsid issued it.

Examples:
  natsid explain 1234567 --tag order
  natsid explain 2124263042718941184`,
		values: map[string]string{"id": "The ID, in decimal.", "tag": "The tag of the ID."},
	}
}

type explainedJSON struct {
	ID    subjects.ID `json:"id"`
	Parts *partsJSON  `json:"parts,omitempty"` // nil unless the ID is a snowflake
	// Grants are more than one only if the ID may have been issued twice. If no load has the ID, they are the changes
	// that raised the tag's next ID past it: then it is below their First.
	Grants []grants.Grant `json:"grants"`
}

func (c *explainCmd) Run(s *session) error {
	return s.withJetStream(func(_ context.Context, js jetstream.JetStream) error {
		h := grants.History{Tag: string(c.Tag), ID: c.ID, Found: []grants.Grant{}}
		err := h.Read(s.ctx, js, onJetStream(js), wire.GrantsBucket(s.namespace()), time.Time{})
		if err != nil {
			return err
		}
		out := explainedJSON{ID: subjects.ID(c.ID), Grants: h.Found}
		isRaise := func(g grants.Grant) bool { return g.First > c.ID }
		if loads := slices.DeleteFunc(slices.Clone(h.Found), isRaise); len(loads) > 0 {
			out.Grants = loads
		}
		if c.Tag == "" {
			out.windows(h.Claims)
		}
		if err := s.print(out, out.print); err != nil {
			return err
		}
		if len(out.Grants) == 0 {
			return fmt.Errorf("no grant that is written down contains %d: `natsid tag list` says up to which ID a tag "+
				"is loaded, `natsid audit` what is not written down", c.ID)
		}
		return nil
	})
}

// windows reads the ID as a snowflake. If windows of its worker number contain its time, they replace Grants.
func (j *explainedJSON) windows(claims []*grants.Grant) {
	var found []grants.Grant
	for _, c := range claims {
		l, err := snowflake.ParseLayout(c.Layout)
		l.Epoch, l.Unit = c.Epoch, c.Unit
		if err != nil || l.Validate() != nil {
			continue
		}
		p, err := l.Decode(j.ID)
		if ms := l.FirstMs(p.Tick); err != nil || p.Worker != c.Number || ms < c.From || ms >= c.Until {
			continue
		}
		parts := partsOf(l, p)
		j.Parts, found = &parts, append(found, *c)
	}
	if found != nil {
		j.Grants = found
	}
}

func (j *explainedJSON) print(out *sheet) {
	if j.Parts != nil {
		j.Parts.print(out)
	}
	n := len(j.Grants)
	for _, g := range j.Grants {
		out.row("recorded", fmt.Sprintf("%s, in entry %d", exact(g.Stored), g.Entry))
		out.row("worker", g.Who.String())
		switch {
		case g.Window != nil:
			from, until := exact(time.UnixMilli(g.From)), exact(time.UnixMilli(g.Until))
			out.row("window", fmt.Sprintf("%s to %s, %s", from, until, g.How))
		case g.First <= int64(j.ID):
			out.row("load", fmt.Sprintf("%d-%d of tag %s", g.First, g.Last, g.Tag))
		default:
			out.row("skipped", fmt.Sprintf("%d-%d of tag %s: a raise to %d left them out",
				g.Above, g.First-1, g.Tag, g.First))
			n = 0
		}
	}
	if n > 1 {
		out.row("warning", fmt.Sprintf("%d grants contain it: add --tag TAG, or run `natsid audit`", n))
	}
}
