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
		detail: `Reads the stream of grants: all loads of tags, all other writes of their marks,
and all windows of worker numbers. It sorts in the directory of temporary files,
some 20 bytes for each load.

proven      exit code 0. The writes of each tag's mark, from the first one kept to
            the present mark, follow one another without a gap, but for loads of
            workers that were killed before they wrote them down. No two grants
            share an ID, and no two workers had one number at one time.
repeated    exit code 1. Two grants share IDs: both are named.
not proven  exit code 2. A write of a mark is missing, as where marks were put
            back, or entries are: it says which IDs of which tag may have been
            granted twice, and why.

Where a worker wrote that it discarded what it shares, as after marks that went
back, nothing was issued twice: that is shown as harmless.

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
	Verdict  string    `json:"verdict"`            // proven, repeated or "not proven"
	Registry string    `json:"registry,omitempty"` // of the marks: another one's are not audited
	From     time.Time `json:"from,omitzero"`      // the first entry
	Eras     []eraJSON `json:"eras"`               // of the registry
	grants.Outcome
	Repeated  []findingJSON `json:"repeated"`   // the first 100
	NotProven []findingJSON `json:"not_proven"` // likewise; one for each tag
	Harmless  []findingJSON `json:"harmless"`   // likewise; one grant discarded the shared IDs unused
	More      int           `json:"more"`       // findings beyond these
}

// eraJSON is an era of the registry. Each but the founding one was begun by a resume.
type eraJSON struct {
	Era    string   `json:"era"`
	Offset int64    `json:"offset,string"`
	Ended  []string `json:"ended,omitempty"` // the incidents that its resume ended
}

// erasOf returns the eras of a registry, the lowest first, and the founding one if it is known: the only one that no
// resume can have begun.
func erasOf(id era.Identity) (all []eraJSON, founding string) {
	all = []eraJSON{}
	for name, offset := range id.Offsets {
		e := eraJSON{Era: name, Offset: offset}
		for _, incident := range slices.Sorted(maps.Keys(id.Ended)) {
			if id.Ended[incident] == name {
				e.Ended = append(e.Ended, incident)
			}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b eraJSON) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), strings.Compare(a.Era, b.Era))
	})
	isFounding := func(e eraJSON) bool { return e.Offset == 0 && e.Ended == nil }
	if len(all) > 0 && isFounding(all[0]) && !slices.ContainsFunc(all[1:], isFounding) {
		founding = all[0].Era
	}
	return all, founding
}

// findingJSON is a finding about a tag or a worker number.
type findingJSON struct {
	What    string `json:"what"` // "tag order", "worker number 17" or "worker numbers"
	Message string `json:"message"`
}

// maxShown bounds the findings of a kind that an audit lists.
const maxShown = 100

// Run implements the command.
func (c *auditCmd) Run(s *session) error {
	return s.withGrants(func(ctx context.Context, js jetstream.JetStream, r *grants.Reader) error {
		a := grants.NewAudit("")
		defer a.Close()
		a.Tag = string(c.Tag)
		out := auditJSON{Repeated: []findingJSON{}, NotProven: []findingJSON{}, Harmless: []findingJSON{},
			Eras: []eraJSON{}}
		if err := c.readAll(ctx, s, js, r, a, &out); err != nil {
			return err
		}
		if err := out.judge(a, s.stderr); err != nil {
			return err
		}
		if err := s.print(out, out.print); err != nil {
			return err
		}
		return out.err()
	})
}

// withGrants calls f with the stream of grants.
func (s *session) withGrants(f func(context.Context, jetstream.JetStream, *grants.Reader) error) error {
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		r, err := s.openGrants(ctx, js)
		if errors.Is(err, grants.ErrNone) {
			return nobodyError{fmt.Errorf("%w in namespace %s; check --nats and --namespace", err, s.namespace())}
		}
		if err != nil {
			return err
		}
		return f(s.ctx, js, r)
	})
}

func (s *session) openGrants(ctx context.Context, js jetstream.JetStream) (*grants.Reader, error) {
	p := new(progress)
	return grants.Open(ctx, js, s.namespace().GrantsBucket(), func(why string) {
		p.say(s.stderr, "the stream of grants is not read yet: %s; it is tried again", why)
	})
}

// readAll reads the grants, then the marks, and then the grants recorded since. So if the write of a mark was not
// read, no entry records it.
func (c *auditCmd) readAll(
	ctx context.Context, s *session, js jetstream.JetStream, r *grants.Reader, a *grants.Audit, out *auditJSON,
) (err error) {
	first := r.First
	if !c.Since.IsZero() {
		if first, err = r.From(ctx, c.Since.Time); err != nil {
			return err
		}
	}
	if err = c.read(ctx, s, r, first, a, out); err != nil {
		return err
	}
	a.MarksNow()
	marks, err := readMarks(ctx, s, js, a)
	if err != nil {
		return err
	}
	out.Registry = marks.Identity.Registry
	out.Eras, a.Founding = erasOf(marks.Identity)
	a.Whole = c.Since.IsZero() && !r.Cut && r.Made.Sub(marks.Info.Created).Abs() < sameAge
	if err := marks.settle(ctx); err != nil {
		return err
	}
	later, err := s.openGrants(ctx, js)
	if err != nil {
		return err
	}
	if err = c.read(ctx, s, later, r.Last+1, a, out); err != nil {
		return err
	}
	return marks.points(ctx, a)
}

// sameAge is how long after the marks the stream of grants is created at most, if it has all writes of them.
const sameAge = 10 * time.Minute

// read reads grants from an entry on, and reports progress.
func (c *auditCmd) read(
	ctx context.Context, s *session, r *grants.Reader, first uint64, a *grants.Audit, out *auditJSON,
) error {
	var failed error
	p := &progress{time.Now()}
	bad, err := r.Scan(ctx, first, r.Last, func(at grants.At, b *grants.Batch) bool {
		if a.Entries++; a.Entries == 1 {
			out.From = at.Time.UTC()
		}
		p.say(s.stderr, "%d loads read, %d %% of the entries", a.Loads, 100*(at.Sequence-first+1)/(r.Last-first+1))
		failed = a.Add(at, b)
		return failed == nil
	})
	a.Unreadable += bad
	return errors.Join(err, failed)
}

// A progress limits the reports of a long audit to one in two seconds.
type progress struct{ said time.Time }

// say prints how far an audit is, unless it was said just before.
func (p *progress) say(out io.Writer, format string, args ...any) {
	if time.Since(p.said) > 2*time.Second {
		p.said = time.Now()
		fmt.Fprintf(out, "natsid: "+format+"\n", args...)
	}
}

// presentMarks are the present marks.
type presentMarks struct {
	kvstore.Report
	streams buckets.Streams
	bucket  string
}

// readMarks reads the present marks. It records in a why they cannot be read.
func readMarks(
	ctx context.Context, s *session, js jetstream.JetStream, a *grants.Audit,
) (m presentMarks, err error) {
	m.streams, m.bucket = onJetStream(js), s.namespace().SegmentBucket()
	m.Report, err = kvstore.Inspect(ctx, m.streams, m.bucket)
	if errors.Is(err, buckets.ErrNoBucket) {
		err = nil
	}
	if isA[*buckets.RightError](err) {
		return m, err
	}
	if err != nil {
		a.Unread = err.Error()
	}
	return m, nil
}

// settled is the time after a write of a mark within which a worker records it, if it can.
const settled = 2500 * time.Millisecond

// settle waits until the last writes of the marks that were read are recorded.
func (m *presentMarks) settle(ctx context.Context) error {
	var last time.Time
	for _, p := range m.Marks {
		if p.Written.After(last) {
			last = p.Written
		}
	}
	age := m.Info.Now.Sub(last)
	if last.IsZero() || age >= settled {
		return nil
	}
	tick(ctx, min(settled, settled-age))
	return ctx.Err()
}

// maxAsked bounds the marks missing in the list that are read one by one: a mark that is written while they are
// listed may be missing.
const maxAsked = 1000

// points passes the marks of all granted tags to the audit.
func (m *presentMarks) points(ctx context.Context, a *grants.Audit) error {
	asked := 0
	for _, tag := range a.Tags() {
		p, ok := m.Marks[tag]
		if !ok && a.Unread == "" && asked < maxAsked {
			asked++
			var err error
			if p, ok, err = m.Mark(ctx, m.streams, m.bucket, tag); err != nil &&
				!errors.Is(err, buckets.ErrNoBucket) {
				return err
			}
		}
		if !ok {
			continue
		}
		if p.Undecided {
			p.Mark = math.MaxInt64 // nothing is loaded
		}
		err := a.Point(tag, m.Identity.Era, p.Raw, p.Mark, p.Revision, p.Written)
		if err != nil {
			return err
		}
	}
	return nil
}

// judge judges the audit, and prints progress.
func (j *auditJSON) judge(a *grants.Audit, stderr io.Writer) error {
	p := &progress{time.Now()}
	err := a.Judge(j.add, func(loads int64) {
		p.say(stderr, "%d loads judged, %d %%", loads, 100*loads/a.Loads)
	})
	j.Outcome = a.Outcome
	switch {
	case len(j.Repeated) > 0:
		j.Verdict = "repeated"
	case len(j.NotProven) > 0:
		j.Verdict = "not proven"
	default:
		j.Verdict = "proven"
	}
	return err
}

// add adds a finding to the output, up to maxShown.
func (j *auditJSON) add(f grants.Finding) {
	shown := map[grants.Kind]*[]findingJSON{
		grants.Repeated: &j.Repeated, grants.NotProven: &j.NotProven, grants.Harmless: &j.Harmless,
	}[f.Kind]
	if len(*shown) >= maxShown {
		j.More++
		return
	}
	*shown = append(*shown, findingJSON{f.What, f.String()})
}

// err returns the error with which the command ends after the audit.
func (j *auditJSON) err() error {
	switch {
	case len(j.Repeated) > 0:
		return fmt.Errorf("IDs of %s were granted twice", j.parts(j.OfTags.Repeated, j.OfNumbers.Repeated))
	case len(j.NotProven) > 0:
		return notProvenError{fmt.Errorf("of %s it is not proven that no ID was granted twice",
			j.parts(j.OfTags.NotProven, j.OfNumbers.NotProven))}
	}
	return nil
}

// parts returns the numbers of tags and worker numbers as text.
func (*auditJSON) parts(tags, numbers int) string {
	switch {
	case numbers == 0:
		return numberOf(tags, "tag")
	case tags == 0:
		return numberOf(numbers, "worker number")
	}
	return numberOf(tags, "tag") + " and " + numberOf(numbers, "worker number")
}

func (j *auditJSON) print(out io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s"+format+"\n", append([]any{name}, args...)...)
	}
	line("read", "%s of %s and %s of worker numbers, and %s of marks, in %s of %s",
		numberOf(int(j.Loads), "load"), numberOf(j.OfTags.Proven+j.OfTags.Repeated+j.OfTags.NotProven, "tag"),
		numberOf(int(j.Windows), "window"), numberOf(int(j.Writes), "other write"), numberOf(int(j.Entries), "entry"),
		numberOf(j.Processes, "process"))
	line("since", "%s, of registry %s", instant(j.From), cmp.Or(j.Registry, "-"))
	if j.Lost+j.Missing+uint64(j.Unreadable) > 0 {
		line("missing", "%d grants that workers could not keep, %d entries; %d entries cannot be read",
			j.Lost, j.Missing, j.Unreadable)
	}
	if j.Held > 0 {
		line("held", "%d IDs by workers that were killed before they wrote them down, or have not yet", j.Held)
	}
	for _, e := range j.Eras[min(1, len(j.Eras)):] {
		line("era", "%s, with offset %d, which ended %s", e.Era, e.Offset,
			cmp.Or(strings.Join(e.Ended, ", "), "no incident"))
	}
	if j.Resumed > 0 {
		line("resumed", "%s: written after a resume, on the assumption that no tag was loaded, raised or created "+
			"further than its bump since the state that it found", numberOf(j.Resumed, "tag"))
	}
	for _, part := range []struct {
		name string
		all  []findingJSON
	}{{"repeated", j.Repeated}, {"not proven", j.NotProven}, {"harmless", j.Harmless}} {
		for _, f := range part.all {
			line(part.name, "%s: %s", f.What, f.Message)
		}
	}
	if j.More > 0 {
		line("", "and %d more", j.More)
	}
	line("tags", "%s", tally(j.OfTags))
	line("numbers", "%s", tally(j.OfNumbers))
	verdict := map[string]string{
		"proven": "proven: no ID was granted twice", "repeated": "repeated: IDs were granted twice",
		"not proven": "not proven: no ID is known to have been granted twice",
	}[j.Verdict]
	if j.Verdict == "proven" && j.Resumed > 0 {
		verdict = "proven, on the assumption of `natsid resume`: no ID was granted twice"
	}
	if j.Verdict == "proven" && len(j.Harmless) > 0 {
		verdict = strings.Replace(verdict, "granted", "issued", 1)
	}
	line("verdict", "%s", verdict)
}

func tally(t grants.Tally) string {
	return fmt.Sprintf("%d proven, %d repeated, %d not proven", t.Proven, t.Repeated, t.NotProven)
}
