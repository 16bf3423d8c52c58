package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/snowflake"
)

type explainCmd struct {
	ID  int64 `arg:""`
	Tag tagName
}

func (*explainCmd) help() help {
	return help{
		summary: "Show when an ID was granted, to which worker, and from which load or window.",
		detail: `Looks in the stream of grants. With --tag, ID is one of that tag; without, a
snowflake or, if it is in no window, one of any tag. "natsid audit" names what the
stream lacks. An ID that a service masked must be given as natsid issued it.

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
	First    int64     `json:"first,string"` // of the range; of a window the first time, Unix ms
	Last     int64     `json:"last,string"`
	Strict   bool      `json:"strict,omitempty"`
	Era      string    `json:"era,omitempty"`    // of the registry, in which it was loaded
	Number   *int      `json:"number,omitempty"` // of a window
	How      string    `json:"how,omitempty"`    // origin of a window
	Entry    uint64    `json:"entry"`            // in the stream
}

// Run implements the command.
func (c *explainCmd) Run(s *session) error {
	return s.withGrants(func(_ context.Context, _ jetstream.JetStream, r *grants.Reader) error {
		out := explainedJSON{ID: c.ID, Tag: string(c.Tag), Grants: []grantJSON{}}
		var claims grants.Claims
		_, err := s.readGrants(r, time.Time{}, func(at grants.At, e *grants.Entry) {
			claims.Add(at, e)
			if c.Tag != "" {
				out.load(at, e, string(c.Tag))
				return
			}
			for tag := range e.Loads {
				out.load(at, e, tag)
			}
		})
		if err != nil {
			return err
		}
		if c.Tag == "" {
			out.windows(claims.Settle())
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

// withGrants calls f with a reader of the stream of grants.
func (s *session) withGrants(f func(context.Context, jetstream.JetStream, *grants.Reader) error) error {
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		r, err := grants.Open(ctx, js, s.namespace().GrantsBucket())
		if errors.Is(err, grants.ErrNone) {
			return nobodyError{fmt.Errorf("%w in namespace %s; check --nats and --namespace", err, s.namespace())}
		}
		if err != nil {
			return err
		}
		return f(ctx, js, r)
	})
}

// readGrants reads grants, and prints how far it is.
func (s *session) readGrants(
	r *grants.Reader, since time.Time, f func(grants.At, *grants.Entry),
) (grants.Scope, error) {
	n, said := 0, time.Now()
	return r.Read(s.ctx, since, func(at grants.At, e *grants.Entry) {
		if n++; time.Since(said) > 2*time.Second {
			said = time.Now()
			fmt.Fprintf(s.stderr, "natsid: %d entries read, up to %s\n", n, at.Time.UTC().Format(millis))
		}
		f(at, e)
	})
}

// load adds the loads of a tag that contain the ID.
func (j *explainedJSON) load(at grants.At, e *grants.Entry, tag string) {
	for _, l := range e.Loads[tag] {
		if l.First <= j.ID && j.ID <= l.Last && len(j.Grants) < maxShown {
			j.Grants = append(j.Grants, grantJSON{
				Tag: tag, Granted: time.UnixMilli(l.Time).UTC(), Instance: e.Instance, Process: e.Process,
				First: l.First, Last: l.Last, Strict: l.Strict, Era: e.Era, Entry: at.Sequence,
			})
		}
	}
}

// windows puts the windows that contain the ID in the place of loads, if there are any: it is a snowflake.
func (j *explainedJSON) windows(claims []*grants.Claim) {
	var found []grantJSON
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
		j.Parts = &parts
		found = append(found, grantJSON{
			Granted: time.UnixMilli(c.Time).UTC(), Instance: c.Instance, Process: c.Process, First: c.From,
			Last: c.Until - 1, Number: &c.Number, How: c.How, Entry: c.First,
		})
	}
	if len(found) > 0 {
		j.Grants = found
	}
}

func (j *explainedJSON) print(out io.Writer) {
	if p := j.Parts; p != nil {
		fmt.Fprintf(out, "snowflake of %s, worker number %d, sequence %d\n",
			p.Time.Format(millis), p.Worker, p.Sequence)
	}
	tags := make(map[string]bool)
	for _, g := range j.Grants {
		tags[g.Tag] = true
		fmt.Fprintf(out, "granted   %s, in entry %d\n", g.Granted.Format(millis), g.Entry)
		fmt.Fprintf(out, "worker    %s, process %s\n", g.Instance, g.Process)
		switch {
		case g.Number != nil:
			fmt.Fprintf(out, "window    %s to %s, %s\n", time.UnixMilli(g.First).UTC().Format(millis),
				time.UnixMilli(g.Last+1).UTC().Format(millis), g.How)
			continue
		case g.Strict:
			g.Tag += ", strict"
		}
		fmt.Fprintf(out, "load      %d-%d of tag %s\n", g.First, g.Last, g.Tag)
		if g.Era != "" {
			fmt.Fprintf(out, "era       %s\n", g.Era)
		}
	}
	switch {
	case len(tags) > 1:
		fmt.Fprintf(out, "warning   %d tags have this ID: add --tag TAG\n", len(tags))
	case len(j.Grants) > 1:
		fmt.Fprintf(out, "warning   %d grants contain it: run `natsid audit`\n", len(j.Grants))
	}
}
