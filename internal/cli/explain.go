package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/snowflake"
)

// explainCmd has the flags --layout and --epoch, too.
type explainCmd struct {
	ID  int64 `arg:""`
	Tag tagName
}

func (*explainCmd) help() help {
	return help{
		summary: "Show when an ID was granted, to which worker, and from which load or window.",
		detail: `Looks in the stream of grants. With --tag, ID is one of that tag; without, a
snowflake, in the layout of the workers unless --layout or --epoch says another.
An ID that is in no window of a snowflake is looked for in the loads of all tags.
"natsid audit" names what the stream lacks. An ID that a service masked must be
given as natsid issued it.

Examples:
  natsid explain 1234567 --tag order
  natsid explain 2124263042718941184`,
		values: map[string]string{"id": "The ID, in decimal.", "tag": "The tag that it is of."},
	}
}

// explainedJSON is the explanation of an ID.
type explainedJSON struct {
	ID     int64       `json:"id,string"`
	Tag    string      `json:"tag,omitempty"`
	Parts  *partsJSON  `json:"parts,omitempty"` // of a snowflake
	Grants []grantJSON `json:"grants"`          // more than one only if IDs may have repeated
}

// grantJSON is a grant that contains an ID.
type grantJSON struct {
	Tag      string    `json:"tag,omitempty"` // of a load
	Granted  time.Time `json:"granted"`       // by the worker's clock
	Instance string    `json:"instance"`
	Process  string    `json:"process"`
	Number   *int      `json:"number,omitempty"` // the worker number, if there was one
	First    int64     `json:"first,string"`     // of the range; of a window the first time, Unix ms
	Last     int64     `json:"last,string"`
	Revision uint64    `json:"revision,omitempty"` // of the mark as the load read it
	Written  uint64    `json:"written,omitempty"`  // of the mark as the load wrote it
	How      string    `json:"how,omitempty"`      // origin of a window
	Store    string    `json:"store"`
	Registry string    `json:"registry,omitempty"`
	Era      string    `json:"era,omitempty"` // of the registry, in which the load was written
	Entry    uint64    `json:"entry"`         // in the stream
}

// Run implements the command.
func (c *explainCmd) Run(s *session) error {
	return s.withGrants(func(ctx context.Context, _ jetstream.JetStream, r *grants.Reader) (err error) {
		out := explainedJSON{ID: c.ID, Tag: string(c.Tag), Grants: []grantJSON{}}
		if c.Tag != "" {
			err = c.segment(ctx, r, &out)
		} else {
			err = c.snowflake(ctx, s, r, &out)
		}
		if err != nil {
			return err
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

func (c *explainCmd) segment(ctx context.Context, r *grants.Reader, out *explainedJSON) error {
	found, err := r.FindLoads(ctx, string(c.Tag), c.ID)
	for _, f := range found {
		out.Grants = append(out.Grants, loadJSON(f))
	}
	return err
}

func (c *explainCmd) snowflake(ctx context.Context, s *session, r *grants.Reader, out *explainedJSON) error {
	l, err := layoutOf(ctx, s, r)
	if err != nil {
		return err
	}
	p, err := l.Decode(c.ID)
	if err != nil { // no snowflake of this layout
		return c.anyTag(ctx, r, out)
	}
	parts := partsOf(l, p)
	out.Parts = &parts
	found, err := r.FindWindows(ctx, p.Worker, l.FirstMs(p.Tick))
	if err != nil {
		return err
	}
	for _, f := range found {
		out.Grants = append(out.Grants, grantJSON{
			Granted: time.UnixMilli(f.Window.Time).UTC(), Instance: f.Head.Instance, Process: f.Head.Process,
			Number: &f.Window.Number, First: f.Window.From, Last: f.Window.Until - 1, How: f.Window.How,
			Store: "JetStream", Registry: f.Head.Numbers, Entry: f.At.Sequence,
		})
	}
	if len(found) > 0 {
		return nil
	}
	err = c.anyTag(ctx, r, out)
	if len(out.Grants) > 0 {
		out.Parts = nil // of a tag, then
	}
	return err
}

// anyTag looks for the ID in the loads of all tags.
func (c *explainCmd) anyTag(ctx context.Context, r *grants.Reader, out *explainedJSON) error {
	_, err := r.Scan(ctx, r.First, r.Last, func(at grants.At, b *grants.Batch) bool {
		for _, l := range b.Loads {
			if l.First <= c.ID && c.ID <= l.Last {
				out.Grants = append(out.Grants, loadJSON(grants.Found{At: at, Head: b.Head, Load: &l}))
			}
		}
		return len(out.Grants) < maxShown
	})
	return err
}

// layoutOf returns the layout of the last entry, unless one was given.
func layoutOf(ctx context.Context, s *session, r *grants.Reader) (snowflake.Layout, error) {
	_, layout := s.given["layout"]
	_, epoch := s.given["epoch"]
	if layout || epoch {
		return s.layout()
	}
	_, b, ok, err := r.Get(ctx, r.Last)
	if err != nil || !ok {
		return snowflake.Layout{}, errors.Join(errors.New("the stream of grants says no layout: give --layout"), err)
	}
	l, err := snowflake.ParseLayout(b.Layout)
	if err != nil {
		return snowflake.Layout{}, fmt.Errorf("the layout of the last entry: %w; give --layout", err)
	}
	l.Epoch, l.Unit = b.Epoch, b.Unit
	return l, l.Validate()
}

func loadJSON(f grants.Found) grantJSON {
	g := grantJSON{
		Tag: f.Load.Tag, Granted: time.UnixMilli(f.Load.Time).UTC(), Instance: f.Head.Instance,
		Process: f.Head.Process, First: f.Load.First, Last: f.Load.Last, Revision: f.Load.Read,
		Written: f.Load.Written, Store: f.Head.Store, Registry: f.Head.Segments, Era: f.Head.Era, Entry: f.At.Sequence,
	}
	if f.Load.Number >= 0 {
		g.Number = &f.Load.Number
	}
	return g
}

// revision names a revision that a load wrote.
func revision(n uint64) string {
	if n == 0 {
		return "one that is not known"
	}
	return strconv.FormatUint(n, 10)
}

func (j *explainedJSON) print(out io.Writer) {
	if p := j.Parts; p != nil {
		fmt.Fprintf(out, "snowflake of %s, worker number %d, sequence %d\n",
			p.Time.Format(millis), p.Worker, p.Sequence)
	}
	tags := make(map[string]bool)
	for _, g := range j.Grants {
		tags[g.Tag] = true
		fmt.Fprintf(out, "granted   %s\n", g.Granted.Format(millis))
		fmt.Fprintf(out, "worker    %s, process %s\n", g.Instance, g.Process)
		if g.Number != nil {
			fmt.Fprintf(out, "number    %d\n", *g.Number)
		}
		if g.Tag != "" {
			fmt.Fprintf(out, "issued    from %s on, if it was\n", g.Granted.Format(millis))
			fmt.Fprintf(out, "load      %d-%d of tag %s, from revision %d of its mark to %s\n",
				g.First, g.Last, g.Tag, g.Revision, revision(g.Written))
		} else {
			fmt.Fprintf(out, "window    %s to %s, %s\n", time.UnixMilli(g.First).UTC().Format(millis),
				time.UnixMilli(g.Last+1).UTC().Format(millis), g.How)
		}
		registry := cmp.Or(g.Registry, "-")
		if g.Era != "" {
			registry += ", era " + g.Era
		}
		fmt.Fprintf(out, "store     %s, registry %s, entry %d\n", g.Store, registry, g.Entry)
	}
	switch {
	case len(tags) > 1:
		fmt.Fprintf(out, "warning   %d tags have this ID: add --tag TAG\n", len(tags))
	case len(j.Grants) > 1:
		fmt.Fprintf(out, "warning   %d grants contain it: run `natsid audit`\n", len(j.Grants))
	}
}
