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
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
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
An ID that is in no grant is explained by what it cannot be. An ID that a service
masked must be given as natsid issued it.

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
	CantBe []string    `json:"cant_be"`         // the exclusions for an ID that no grant contains
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
	Entry    uint64    `json:"entry"` // in the stream
}

// Run implements the command.
func (c *explainCmd) Run(s *session) error {
	return s.withGrants(func(ctx context.Context, js jetstream.JetStream, r *grants.Reader) (err error) {
		out := explainedJSON{ID: c.ID, Tag: string(c.Tag), Grants: []grantJSON{}, CantBe: []string{}}
		if c.Tag != "" {
			err = c.segment(ctx, s, js, r, &out)
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
			return fmt.Errorf("no grant that is written down contains %d", c.ID)
		}
		return nil
	})
}

func (c *explainCmd) segment(
	ctx context.Context, s *session, js jetstream.JetStream, r *grants.Reader, out *explainedJSON,
) error {
	tag := string(c.Tag)
	found, err := r.FindLoads(ctx, tag, c.ID)
	if err != nil {
		return err
	}
	for _, f := range found {
		out.Grants = append(out.Grants, loadJSON(f))
	}
	if len(found) > 0 {
		return nil
	}
	if c.ID < 1 {
		out.cant("an ID of a tag: these begin at 1")
		return nil
	}
	first, known, hole := int64(0), false, ""
	gaps := grants.NewAudit("")
	defer gaps.Close()
	gaps.Tag = " " // no tag: only missing entries count
	r.Only(tag)
	_, err = r.Scan(ctx, r.First, r.Last, func(at grants.At, b *grants.Batch) bool {
		for _, l := range b.Loads {
			if l.Tag == tag && (!known || l.First < first) {
				first, known = l.First, true
			}
			if l.Tag == tag && 0 < l.Before && l.Before <= c.ID && c.ID < l.First {
				hole = fmt.Sprintf("the load %d-%d of process %s left it out", l.First, l.Last, b.Process)
			}
		}
		for _, w := range b.Writes {
			if w.Tag == tag && w.Before <= c.ID && c.ID < w.After {
				hole = holeOf(w, b.Process)
			}
		}
		return gaps.Add(at, b) == nil
	})
	if err != nil {
		return err
	}
	marks, err := kvstore.Inspect(ctx, buckets.OnJetStream(js), s.namespace().SegmentBucket())
	mark, marked := marks.Marks[tag]
	switch {
	case err == nil && marked && c.ID >= mark.Mark:
		out.cant("one that was issued: the tag's mark is %d, and no worker has loaded IDs above it", mark.Mark)
	case hole != "":
		out.cant("one that was issued: %s", hole)
	case !known && err == nil && !marked:
		out.cant("one of this tag here: there is no such tag, and no load of it is written down")
	case !known:
		out.cant("one of a load that is written down: the stream has none of this tag")
	case c.ID < first:
		out.cant("one of a load that is still written down: they begin at ID %d", first)
	case gaps.Lost+gaps.Missing > 0:
		out.cant("one of a load that is written down; %d grants and %d entries are missing", gaps.Lost, gaps.Missing)
	default:
		out.cant("one that was issued while all grants were written down: `natsid audit` names the gaps; or " +
			"Leaf issued it")
	}
	return nil
}

// holeOf describes the write of a mark that passed over an ID.
func holeOf(w grants.Write, process string) string {
	if w.How == "load" {
		return fmt.Sprintf("a load of %d-%d by process %s failed, or its acknowledgement was lost",
			w.Before, w.After-1, process)
	}
	return fmt.Sprintf("process %s raised the mark from %d to %d (%s)", process, w.Before, w.After, w.How)
}

func (c *explainCmd) snowflake(ctx context.Context, s *session, r *grants.Reader, out *explainedJSON) error {
	l, err := layoutOf(ctx, s, r)
	if err != nil {
		return err
	}
	p, err := l.Decode(c.ID)
	if err != nil {
		out.cant("a snowflake of layout %s: %v", l, err)
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
	if err := c.anyTag(ctx, r, out); err != nil || len(out.Grants) > 0 {
		out.Parts = nil // of a tag, then
		return err
	}
	switch oldest, _, ok, err := r.Get(ctx, r.First); {
	case p.Time.After(time.Now()):
		out.cant("one that was issued by now: its time is %s", p.Time.Format(millis))
	case err == nil && ok && p.Time.Before(oldest.Time):
		out.cant("one of a window that is still written down: they begin at %s", oldest.Time.UTC().Format(millis))
	default:
		out.cant("a snowflake of a window that is written down: worker number %d had none at its time; it is of "+
			"another layout, epoch or registry, was masked, or an entry is missing: `natsid audit` counts those",
			p.Worker)
	}
	return nil
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

func (j *explainedJSON) cant(format string, args ...any) {
	j.CantBe = append(j.CantBe, fmt.Sprintf(format, args...))
}

func loadJSON(f grants.Found) grantJSON {
	g := grantJSON{
		Tag: f.Load.Tag, Granted: time.UnixMilli(f.Load.Time).UTC(), Instance: f.Head.Instance,
		Process: f.Head.Process, First: f.Load.First, Last: f.Load.Last, Revision: f.Load.Read,
		Written: f.Load.Written, Store: f.Head.Store, Registry: f.Head.Segments, Entry: f.At.Sequence,
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
		fmt.Fprintf(out, "store     %s, registry %s, entry %d\n", g.Store, cmp.Or(g.Registry, "-"), g.Entry)
	}
	switch {
	case len(tags) > 1:
		fmt.Fprintf(out, "warning   %d tags have this ID: add --tag TAG\n", len(tags))
	case len(j.Grants) > 1:
		fmt.Fprintf(out, "warning   %d grants contain it: run `natsid audit`\n", len(j.Grants))
	}
	for _, c := range j.CantBe {
		fmt.Fprintf(out, "cannot be %s\n", c)
	}
}
