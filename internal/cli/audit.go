package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
)

type auditCmd struct {
	Tag   tagName
	Since since
}

func (*auditCmd) help() help {
	return help{
		summary: "Prove that no ID was granted twice, by what workers wrote down, or say of which that is not proven.",
		detail: `Reads the stream of grants: all loads of tags and windows of worker numbers.

proven      exit code 0. Each ID that was loaded since the first entry is in one
            load, and no two processes had one worker number at one time.
repeated    exit code 1. Two grants share IDs, or times of a worker number.
not proven  exit code 2. IDs below a mark are in no load, as where a worker died
            within a second of it, or somebody wrote the mark by hand: it says
            which; or the end of a worker's window is not written down.

Examples:
  natsid audit
  natsid audit --tag order --since 24h`,
		values: map[string]string{
			"tag":   "Only the loads of this tag.",
			"since": "Only what was written since then: a time, as 2026-01-31T12:00:00Z, or an age, as 24h.",
		},
	}
}

// auditJSON is the outcome of an audit.
type auditJSON struct {
	Verdict string `json:"verdict"` // proven, repeated or "not proven"
	grants.Scope
	Loads     int64            `json:"loads"`
	Lost      uint64           `json:"lost"` // grants for which workers had no room
	Tags      int              `json:"tags"`
	Numbers   int              `json:"numbers"`
	Resumed   bool             `json:"resumed"`    // the proof rests on the assumption of `natsid resume`
	Repeated  []grants.Finding `json:"repeated"`   // the first 100
	NotProven []grants.Finding `json:"not_proven"` // likewise
	More      int              `json:"more"`       // findings beyond these
}

// maxShown bounds the findings of a kind that an audit lists.
const maxShown = 100

// settled is the time after a write of a mark within which a worker records it, if it can.
const settled = 2500 * time.Millisecond

// Run implements the command. It reads the marks first, and the grants when the last writes of marks are recorded: so
// an ID below its mark that is in no record was in a load that nobody wrote down.
func (c *auditCmd) Run(s *session) error {
	return s.withGrants(func(ctx context.Context, js jetstream.JetStream, before *grants.Reader) error {
		streams := onJetStream(js)
		marks, err := kvstore.Inspect(ctx, streams, s.namespace().SegmentBucket())
		if err != nil && !errors.Is(err, buckets.ErrNoBucket) {
			return fmt.Errorf("read the marks: %w", err)
		}
		tick(ctx, settled)
		r, err := grants.Open(ctx, js, s.namespace().GrantsBucket())
		if err != nil {
			return err
		}
		a := grants.Audit{
			Tag: string(c.Tag), Eras: erasOf(marks.Identity), Past: before.Last,
			Whole: c.Since.IsZero() && !r.Cut && r.Made.Sub(marks.Info.Created).Abs() < sameAge,
		}
		scope, err := s.readGrants(r, c.Since.Time, a.Add)
		if err != nil {
			return err
		}
		present, err := presentOf(s.ctx, s, streams, marks, a.Tags())
		if err != nil {
			return err
		}
		found, numbers := a.Judge(scope, present)
		out := auditJSON{Scope: scope, Loads: a.Loads, Lost: a.Lost, Tags: len(a.Tags()), Numbers: numbers,
			Resumed: a.Resumed, Repeated: []grants.Finding{}, NotProven: []grants.Finding{}}
		out.add(found)
		if err := s.print(out, out.print); err != nil {
			return err
		}
		return out.err()
	})
}

// erasOf returns the eras of a registry in their order: each begins above those before. Of two with one offset it is
// not known which was first.
func erasOf(id era.Identity) []string {
	all := slices.SortedFunc(maps.Keys(id.Offsets), func(a, b string) int {
		return cmp.Or(cmp.Compare(id.Offsets[a], id.Offsets[b]), strings.Compare(a, b))
	})
	return slices.CompactFunc(all, func(a, b string) bool { return id.Offsets[a] == id.Offsets[b] })
}

// sameAge is how long after the marks the stream of grants is created at most, if it has all writes of them.
const sameAge = 10 * time.Minute

// presentOf returns the marks, as an audit takes them. A mark that is written while all are listed may be missing in
// the list: then it is read by itself.
func presentOf(ctx context.Context, s *session, streams buckets.Streams, r kvstore.Report, tags []string) (
	all map[string]grants.Mark, err error,
) {
	for _, tag := range tags {
		if _, ok := r.Marks[tag]; !ok && r.Marks != nil {
			p, ok, err := r.Mark(ctx, streams, s.namespace().SegmentBucket(), tag)
			if err != nil {
				return nil, err
			}
			if p.Raw = 0; ok { // what was loaded since the list may not be recorded yet
				r.Marks[tag] = p
			}
		}
	}
	all = make(map[string]grants.Mark)
	for tag, p := range r.Marks {
		if p.Undecided {
			p.Mark = math.MaxInt64 // nothing is loaded
		}
		all[tag] = grants.Mark{Raw: p.Raw, Shown: p.Mark}
	}
	return all, nil
}

// add adds findings to the output, up to maxShown of a kind.
func (j *auditJSON) add(found []grants.Finding) {
	j.Verdict = "proven"
	for _, f := range found {
		shown := &j.NotProven
		if f.Repeated {
			shown, j.Verdict = &j.Repeated, "repeated"
		} else if j.Verdict == "proven" {
			j.Verdict = "not proven"
		}
		if len(*shown) < maxShown {
			*shown = append(*shown, f)
		} else {
			j.More++
		}
	}
}

// err returns the error with which the command ends after the audit.
func (j *auditJSON) err() error {
	switch j.Verdict {
	case "repeated":
		return errors.New("IDs were granted twice")
	case "not proven":
		return notProvenError{errors.New("it is not proven that no ID was granted twice")}
	}
	return nil
}

func (j *auditJSON) print(out io.Writer) {
	if !j.From.IsZero() {
		fmt.Fprintf(out, "from        %s\n", j.From.Format(millis))
	}
	fmt.Fprintf(out, "read        %s; %s of %s, %s\n", numberOf(int(j.Entries), "entry"),
		numberOf(int(j.Loads), "load"), numberOf(j.Tags, "tag"), numberOf(j.Numbers, "worker number"))
	for _, f := range j.Repeated {
		fmt.Fprintf(out, "repeated    %s: %s\n", f.What, f.Message)
	}
	for _, f := range j.NotProven {
		fmt.Fprintf(out, "not proven  %s: %s\n", f.What, f.Message)
	}
	if j.More > 0 {
		fmt.Fprintf(out, "            and %d more\n", j.More)
	}
	if j.Resumed {
		fmt.Fprintf(out, "resumed     so the verdict rests on the assumption of `natsid resume`\n")
	}
	fmt.Fprintf(out, "verdict     %s\n", map[string]string{
		"proven": "proven: no ID was granted twice", "repeated": "repeated: IDs were granted twice",
		"not proven": "not proven: no ID is known to have been granted twice",
	}[j.Verdict])
}
