package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/grants"
	"github.com/natsid/natsid/segment/kvstore"
	"github.com/natsid/natsid/subjects"
)

type auditCmd struct {
	Tag   string
	Since since
}

func (*auditCmd) help() help {
	return help{
		summary: "Check that no ID was granted twice, by what workers wrote down.",
		detail: `Reads the stream of grants: all loads of tags, and all windows of worker numbers.
No two loads of a tag may share an ID; all marks, and MySQL's rows where there is
no mark, must stand above all loads; no two workers may have had one number at one
time. Grants of two registries are not compared. It sorts in the directory of
temporary files, 32 bytes for each load.

It ends with 1 and names both grants if two share IDs. Where a worker wrote that it
discarded what it shares, as after marks that went back, nothing was issued twice:
that is shown as harmless. What is missing in the stream is counted, and cannot be
judged.

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
	Entries    int64          `json:"entries"`
	Loads      int64          `json:"loads"`
	Tags       int            `json:"tags"`
	Windows    int64          `json:"windows"`
	Processes  int            `json:"processes"`
	From       time.Time      `json:"from,omitzero"` // the first entry
	Lost       uint64         `json:"lost"`          // grants that workers could not keep
	Missing    uint64         `json:"missing"`       // entries between others of one process
	Unreadable int            `json:"unreadable"`    // entries
	Conflicts  int            `json:"conflicts"`
	Shown      []conflictJSON `json:"shown"`    // the first 100 conflicts
	Unclear    []conflictJSON `json:"unclear"`  // that may be none
	Harmless   []conflictJSON `json:"harmless"` // the first 100 that share IDs which one of them discarded unused
	Notes      []string       `json:"notes"`    // what was not judged
}

// conflictJSON is two grants that share IDs, or a mark below a grant.
type conflictJSON struct {
	What    string `json:"what"` // "tag order" or "worker number 17"
	Message string `json:"message"`
}

// maxShown bounds the conflicts that an audit names.
const maxShown = 100

// Run implements the command.
func (c *auditCmd) Run(s *session) error {
	if c.Tag != "" {
		if err := checkTag(c.Tag); err != nil {
			return err
		}
	}
	return s.withGrants(func(ctx context.Context, js jetstream.JetStream, r *grants.Reader) error {
		a := grants.NewAudit("")
		defer a.Close()
		a.Tag = c.Tag
		out := auditJSON{Notes: []string{}}
		out.Shown, out.Unclear, out.Harmless = []conflictJSON{}, []conflictJSON{}, []conflictJSON{}
		if err := c.read(ctx, s, r, a, &out); err != nil {
			return err
		}
		if err := s.judge(a, &out); err != nil {
			return err
		}
		said := make(chan struct{})
		slow := time.AfterFunc(progressEvery, func() {
			defer close(said)
			fmt.Fprintln(s.stderr, "natsid: the grants are read; JetStream is slow to list the marks")
		})
		err := s.checkMarks(ctx, js, a, &out)
		if !slow.Stop() {
			<-said
		}
		if err != nil {
			return err
		}
		if err := s.print(out, out.print); err != nil {
			return err
		}
		if out.Conflicts > 0 {
			return fmt.Errorf("%s: IDs were granted twice, or may be", numberOf(out.Conflicts, "conflict"))
		}
		return nil
	})
}

// withGrants calls f with the stream of grants.
func (s *session) withGrants(f func(context.Context, jetstream.JetStream, *grants.Reader) error) error {
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		var said time.Time
		r, err := grants.Open(ctx, js, s.namespace().GrantsBucket(), func(why string) {
			if time.Since(said) > progressEvery {
				said = time.Now()
				fmt.Fprintf(s.stderr, "natsid: the stream of grants is not read yet: %s; it is tried again\n", why)
			}
		})
		if errors.Is(err, grants.ErrNone) {
			return nobodyError{fmt.Errorf("%w in namespace %s; check --nats and --namespace", err, s.namespace())}
		}
		if err != nil {
			return err
		}
		return f(s.ctx, js, r)
	})
}

// read reads all grants, and reports how far it is.
func (c *auditCmd) read(
	ctx context.Context, s *session, r *grants.Reader, a *grants.Audit, out *auditJSON,
) (err error) {
	first := r.First
	if !c.Since.IsZero() {
		if first, err = r.From(ctx, c.Since.Time); err != nil {
			return err
		}
	}
	var failed error
	said := time.Now()
	out.Unreadable, err = r.Scan(ctx, first, r.Last, func(at grants.At, b *grants.Batch) bool {
		if out.Entries++; out.Entries == 1 {
			out.From = at.Time.UTC()
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			fmt.Fprintf(s.stderr, "natsid: %d loads read, %d %% of the entries\n",
				a.Loads, 100*(at.Sequence-first+1)/(r.Last-first+1))
		}
		failed = a.Add(at, b)
		return failed == nil
	})
	return errors.Join(err, failed)
}

// progressEvery is how often a long audit says how far it is.
const progressEvery = 2 * time.Second

// judge finds the grants that share IDs.
func (s *session) judge(a *grants.Audit, out *auditJSON) error {
	said := time.Now()
	err := a.Judge(func(c grants.Conflict) {
		switch text := c.String(); {
		case c.Unclear != "":
			out.Unclear = add(out.Unclear, c.What, text)
		case c.Harmless != "":
			out.Harmless = add(out.Harmless, c.What, text)
		default:
			out.conflict(c.What, text)
		}
	}, func(loads int64) {
		if time.Since(said) > progressEvery {
			said = time.Now()
			fmt.Fprintf(s.stderr, "natsid: %d loads judged, %d %%\n", loads, 100*loads/a.Loads)
		}
	})
	out.Loads, out.Tags, out.Windows, out.Processes = a.Loads, a.Tags(), a.Windows, a.Processes()
	out.Lost, out.Missing = a.Lost, a.Missing
	return err
}

func (j *auditJSON) conflict(what, text string) {
	j.Conflicts++
	j.Shown = add(j.Shown, what, text)
}

// add adds to what is shown, unless that is enough.
func add(all []conflictJSON, what, text string) []conflictJSON {
	if len(all) >= maxShown {
		return all
	}
	return append(all, conflictJSON{what, text})
}

func (j *auditJSON) note(format string, args ...any) {
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// checkMarks checks that the marks are above all that was granted. They only rise, and are read after the grants.
func (s *session) checkMarks(ctx context.Context, js jetstream.JetStream, a *grants.Audit, out *auditJSON) error {
	bucket := s.namespace().SegmentBucket()
	r, err := kvstore.Inspect(ctx, buckets.OnJetStream(js), bucket)
	marks, whose := r.Marks, "mark"
	if errors.Is(err, buckets.ErrNoBucket) {
		whose = "row"
		marks, err = s.rows(ctx, js)
	}
	if err != nil && isA[*buckets.RightError](err) {
		return err
	}
	if err != nil {
		out.note("the marks were not compared: %v", err)
		return nil
	}
	missing := 0
	a.Highest(r.Identity.Registry, func(tag string, highest int64) {
		mark, ok := marks[tag]
		switch {
		case !ok:
			missing++
		case mark <= highest:
			out.conflict("tag "+tag, fmt.Sprintf("its %s is %d, and IDs up to %d were granted", whose, mark, highest))
		}
	})
	if missing > 0 {
		out.note("%s with grants have no %s: they were removed, or are lost", numberOf(missing, "tag"), whose)
	}
	return nil
}

// rows returns how far the tags of a table without marks are, as a worker lists them.
func (s *session) rows(ctx context.Context, js jetstream.JetStream) (map[string]int64, error) {
	cl := client.New(js.Conn(), client.Namespace(s.namespace()))
	all := make(map[string]int64)
	for after := ""; ; {
		page, err := cl.ListTags(ctx, subjects.TagList{After: after})
		if err != nil || len(page) == 0 {
			return all, err
		}
		for _, t := range page {
			all[t.Tag] = int64(t.MaxID)
		}
		after = page[len(page)-1].Tag
	}
}

func (j *auditJSON) print(out io.Writer) error {
	fmt.Fprintf(out, "read      %s of %s and %s of worker numbers, in %d entries of %s\n",
		numberOf(int(j.Loads), "load"), numberOf(j.Tags, "tag"), numberOf(int(j.Windows), "window"),
		j.Entries, processes(j.Processes))
	fmt.Fprintf(out, "since     %s\n", instant(j.From))
	if j.Lost+j.Missing+uint64(j.Unreadable) > 0 {
		fmt.Fprintf(out, "missing   %d grants that workers could not keep, %d entries; %d entries cannot be read\n",
			j.Lost, j.Missing, j.Unreadable)
	}
	for _, part := range []struct {
		name string
		all  []conflictJSON
	}{{"conflict", j.Shown}, {"unclear ", j.Unclear}, {"harmless", j.Harmless}} {
		for _, c := range part.all {
			fmt.Fprintf(out, "%s  %s: %s\n", part.name, c.What, c.Message)
		}
	}
	for _, note := range j.Notes {
		fmt.Fprintf(out, "note      %s\n", note)
	}
	verdict := "no ID was granted twice"
	switch {
	case j.Conflicts > 0:
		verdict = numberOf(j.Conflicts, "conflict")
	case len(j.Harmless) > 0:
		verdict = "no ID was issued twice"
	}
	_, err := fmt.Fprintf(out, "verdict   %s\n", verdict)
	return err
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
