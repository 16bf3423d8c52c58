package cli

import (
	"fmt"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// decodeCmd also has the flags --layout and --epoch, which addSettings adds.
type decodeCmd struct {
	ID int64 `arg:""`
}

func (*decodeCmd) help() help {
	return help{
		summary: "Show the fields of a snowflake.",
		detail: `Examples:
  natsid decode 2124263042718941184
  natsid decode --layout article 270162187289683973`,
		values: map[string]string{"id": "The snowflake, in decimal."},
	}
}

func (c *decodeCmd) Run(s *session) error {
	l, err := s.layout()
	if err != nil {
		return err
	}
	p, err := l.Decode(subjects.ID(c.ID))
	if err != nil {
		return fmt.Errorf("%w; give the layout of the workers with --layout", err)
	}
	parts := partsOf(l, p)
	return s.print(parts, parts.print)
}

// partsJSON is a snowflake in its parts. A part is absent if the layout has no bits for it.
type partsJSON struct {
	Time     time.Time `json:"time"`
	Site     *int      `json:"site,omitempty"`
	Machine  *int      `json:"machine,omitempty"` // its number within the site
	Worker   int       `json:"worker"`
	Business *int64    `json:"business,omitempty"`
	Sequence int64     `json:"sequence"`
}

func partsOf(l snowflake.Layout, p snowflake.Parts) partsJSON {
	out := partsJSON{Time: p.Time, Worker: p.Worker, Sequence: p.Sequence}
	if l.Site > 0 {
		out.Site, out.Machine = &p.Site, &p.Machine
	}
	if l.Business > 0 {
		out.Business = &p.Business
	}
	return out
}

func (p partsJSON) print(out *sheet) {
	out.row("time", exact(p.Time))
	if p.Site != nil {
		out.row("site", p.Site)
		out.row("machine", p.Machine)
	}
	out.row("worker", p.Worker)
	if p.Business != nil {
		out.row("business", *p.Business)
	}
	out.row("sequence", p.Sequence)
}
