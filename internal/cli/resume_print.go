package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/registry/lineage"
)

// resumeJSON is the actions of a resume, or with --dry-run its plan.
type resumeJSON struct {
	Registry string          `json:"registry"`
	Incident string          `json:"incident,omitempty"`
	Cause    string          `json:"cause,omitempty"`
	Found    []foundJSON     `json:"found"` // by workers
	State    time.Time       `json:"state,omitzero"`
	Stopped  []string        `json:"stopped"` // workers that have stopped for it
	Waiting  []string        `json:"waiting"` // workers that have not confirmed it
	Raises   []lineage.Raise `json:"raises"`
	DryRun   bool            `json:"dry_run"`
	Outcome  string          `json:"outcome,omitempty"` // "in order", or the remaining task; absent with --dry-run

	assumption string // the assumption behind the raises
}

type foundJSON struct {
	Worker string    `json:"worker"`
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
}

// show prints the findings, the workers that have stopped, and the plan.
func (r *resumption) show(raises []lineage.Raise) error {
	r.report = r.describe(raises)
	switch {
	case r.DryRun:
		return r.s.print(r.report, r.report.print)
	case r.s.json:
		return nil // done prints it
	}
	r.report.print(r.s.stderr)
	return nil
}

func (r *resumption) describe(raises []lineage.Raise) resumeJSON {
	j := resumeJSON{
		Registry: r.c.Identity.Registry, Found: []foundJSON{}, Stopped: []string{}, Waiting: []string{},
		Raises: append([]lineage.Raise{}, raises...), DryRun: r.DryRun,
	}
	if in := r.c.Identity.Incident; in != nil {
		j.Incident, j.Cause, j.State = in.ID, string(in.Cause), in.Since()
		for _, p := range in.Provers {
			j.Found = append(j.Found, foundJSON{p.Name, p.Why, p.At})
		}
	}
	for _, w := range r.c.Workers {
		switch {
		case w.Joined:
			j.Stopped = append(j.Stopped, w.Name)
		case slices.Contains(j.Stopped, w.Name): // the worker's key until it proved the incident
		case !w.Ended && time.Since(w.Last) < time.Hour:
			j.Waiting = append(j.Waiting, w.Name)
		}
	}
	switch {
	case r.Keep != "":
		j.assumption = "No ID repeats if the marks of the other registry are all that its workers loaded."
	case r.TableIsWhole:
		j.assumption = "No ID repeats if the table lacks nothing that was ever loaded."
	default:
		j.assumption = "No ID repeats if no tag moved further than that since the state found: loads, raises and " +
			"earlier resumes counted."
	}
	return j
}

func (j resumeJSON) print(out io.Writer) {
	fmt.Fprintf(out, "Registry %s is stopped: %s, incident %s\n",
		j.Registry, cmp.Or(j.Cause, "-"), cmp.Or(j.Incident, "-"))
	for _, f := range j.Found {
		fmt.Fprintf(out, "  %s  worker %s: %s\n", instant(f.At), f.Worker, f.Why)
	}
	fmt.Fprintf(out, "The state found is of %s.\n", instant(j.State))
	fmt.Fprintf(out, "Stopped: %s. Heard within the last hour, and not stopped yet: %s.\n",
		names(j.Stopped), names(j.Waiting))
	for i, raise := range j.Raises {
		if i == 20 {
			fmt.Fprintf(out, "  ... and %d more\n", len(j.Raises)-i)
			break
		}
		fmt.Fprintf(out, "  %s: %d -> %d\n", raise.Tag, raise.From, raise.To)
	}
	fmt.Fprintln(out, j.assumption)
}

func names(all []string) string {
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

func firstOf(all []string, most int) []string {
	slices.Sort(all)
	if len(all) > most {
		return append(all[:most:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return all
}

// done prints the state of the registry.
func (r *resumption) done(state string) error {
	if r.report.Raises == nil { // no registry was stopped
		r.report = r.describe(nil)
	}
	r.report.Outcome = state
	return r.s.print(r.report, func(out io.Writer) {
		fmt.Fprintf(out, "registry %s: %s\n", r.report.Registry, state)
	})
}
