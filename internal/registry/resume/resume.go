// Package resume resumes a registry that its workers have stopped, by an operator's choices; it is internal to natsid
// and may change. It waits until each worker has checked, shows a [Plan], and writes once a person has agreed to it.
package resume

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/segment"
)

// Words are an operator's choices: the flags of `natsid resume`.
type Words struct {
	Restored bool   // a backup was restored, though no worker has noticed
	Bump     *int64 // no tag moved further since the state found, in IDs; nil is usualBump
	Keep     string // of two registries, the one that serves; "" for none
	DryRun   bool
}

// usualBump covers a day of one tag at 10,000 IDs/s.
const usualBump = 1_000_000_000

// A WordsError is returned for choices that do not fit the state of the registry.
type WordsError struct{ error }

// A Resumption is one run of an operator's command. All fields must be set.
type Resumption struct {
	Words
	Operator lineage.Operator
	Ask      lineage.AskFunc
	// Tags lists the tags, reading their entries by the identity that Eras returns.
	Tags    func(ctx context.Context, after string, limit int) ([]segment.Tag, error)
	Limit   int64 // the highest mark that the store can hold
	HasRows bool  // a table has a row for each tag
	// Soon returns the context of a step.
	Soon  func() (context.Context, context.CancelFunc)
	Say   func(what string)
	Agree func(Plan) error // nil once a person agrees

	seen   *lineage.Case // as seen last; nil before the first look
	first  era.Identity  // the identity as seen first
	agreed string        // the incident that a person agreed to end
}

// Eras returns the identity by which entries are read.
func (r *Resumption) Eras() era.Identity { return r.seen.Identity.Knowing(nil) }

// Run takes steps until the registry is resumed, or needs no resume. It returns what it did, or with DryRun would do.
func (r *Resumption) Run() (p Plan, err error) {
	if r.Bump != nil && (*r.Bump < 0 || *r.Bump > era.MostOffset) {
		return p, WordsError{fmt.Errorf("--bump %d: want 0 to %d", *r.Bump, int64(era.MostOffset))}
	}
	for range 14 {
		ctx, cancel := r.Soon()
		p, err = r.step(ctx)
		cancel()
		if !errors.Is(err, lineage.ErrChanged) {
			break
		}
	}
	if err == nil || errors.As(err, new(WordsError)) || errors.Is(err, lineage.ErrUnknown) {
		return p, err
	}
	return p, fmt.Errorf("the registry is not resumed: %w", err)
}

// step looks at the registry, and does what comes next. If it returns [lineage.ErrChanged], call it again.
func (r *Resumption) step(ctx context.Context) (p Plan, err error) {
	c, err := r.Operator.Look(ctx, r.seen)
	if err != nil {
		return p, err
	}
	if r.seen == nil {
		r.first = c.Identity
		r.Operator.Rouse(c)
	}
	r.seen = &c
	isIdle, err := r.check(c)
	if err != nil {
		return p, err
	}
	if wait := r.Operator.Wait(c); wait > 0 && !isIdle {
		r.Say("Waiting until each worker has checked the registry.")
		return p, cmp.Or(jitter.Sleep(ctx, wait), lineage.ErrChanged)
	}
	other := r.other(ctx)
	p, err = r.plan(ctx, c, isIdle, other)
	switch agreed := cmp.Or(c.Identity.Open(), "none"); {
	case err != nil || isIdle || r.DryRun:
		return p, err
	case r.agreed != agreed:
		r.agreed = agreed
		return p, cmp.Or(r.Agree(p), lineage.ErrChanged)
	case other != "":
		eras, err := r.Ask.Stop(ctx, other, r.Keep)
		if err != nil {
			return p, fmt.Errorf("registry %s is not stopped: %w", other, err)
		}
		r.Say("Registry " + other + " is stopped. Waiting until its workers use no earlier loads.")
		if err = jitter.Sleep(ctx, lineage.Draining); err == nil {
			p, err = r.plan(ctx, c, false, other)
		}
		if err != nil {
			return p, err
		}
		c.Identity = c.Identity.Merge(other, eras)
	}
	if err := r.Operator.Resume(ctx, &c, p.Bump, p.Need); err != nil {
		return p, err
	}
	p.Registry, p.Offset, p.Outcome = c.Identity.Registry, c.Identity.Offset(), "resumed"
	return p, nil
}

// check returns an error if the choices do not fit the state of the registry. isIdle says that there is nothing to
// resume.
func (r *Resumption) check(c lineage.Case) (isIdle bool, err error) {
	id, in := c.Identity, c.Identity.Incident
	switch {
	case r.Keep != "" && r.Keep != id.Registry:
		err = fmt.Errorf("--keep %s: this NATS reaches registry %s; reach the other one with --nats, or --js-domain",
			r.Keep, id.Registry)
	case in != nil && in.Other != "" && r.Keep == "":
		err = fmt.Errorf("registries %s and %s serve the same subjects: say which one serves with --keep",
			id.Registry, in.Other)
	case in == nil && id.Era != r.first.Era && id.Offsets.Has(r.first.Offsets): // another operator was faster
		return true, nil
	case in != nil || c.Missing != nil || r.Restored || r.Keep != "":
		return false, nil
	case r.Bump == nil:
		return true, nil
	default:
		err = errors.New("the registry is not stopped, so nothing is raised: no worker has noticed another state; if " +
			"a backup was restored, say so with --restored")
	}
	return false, WordsError{err}
}

// other returns the registry to stop, so that the kept one serves; "" if no other one answers.
func (r *Resumption) other(ctx context.Context) string {
	if r.Keep == "" {
		return ""
	}
	all, _ := r.Ask.Notices(ctx, lineage.Notice{Process: rand.Text()}) // an error counts as none
	for _, n := range all {
		if n.Registry != "" && n.Registry != r.Keep {
			return n.Registry
		}
	}
	return ""
}

// plan reads the tags of both registries, and returns what a resume would do.
func (r *Resumption) plan(ctx context.Context, c lineage.Case, isIdle bool, other string) (p Plan, err error) {
	tags, err := r.Tags(ctx, "", math.MaxInt)
	var there map[string]int64
	if err == nil && other != "" {
		there, err = r.Ask.Marks(ctx, other)
	}
	if err != nil {
		return p, err
	}
	return r.planOf(c, tags, there, isIdle, other)
}

// A Plan is what a resume did, or would do. It crosses into scripts as JSON.
type Plan struct {
	Registry  string       `json:"registry"`
	Incident  string       `json:"incident,omitempty"`
	Cause     string       `json:"cause,omitempty"`
	Found     []era.Prover `json:"found"`         // what workers have proved
	Stopped   []string     `json:"stopped"`       // workers that have joined the incident
	Bump      int64        `json:"bump,string"`   // how far tags may have moved beyond what workers know
	Need      int64        `json:"need,string"`   // by how much workers know marks to be too low
	Offset    int64        `json:"offset,string"` // of the new era
	Wide      []string     `json:"wide"`          // tags whose next ID no longer fits in 31, 32 or 53 bits
	Undecided []string     `json:"undecided"`     // tags about which an operator must decide
	DryRun    bool         `json:"dry_run"`
	Outcome   string       `json:"outcome,omitempty"` // InOrder or "resumed"; absent with DryRun
}

// InOrder is the outcome where nothing is to be resumed.
const InOrder = "in order"

// planOf returns what a resume would do, given the tags of this registry, and the marks of the registry to stop.
//
// Law: need is at least the most by which any tag is below what workers of either registry have loaded. The new era's
// offset is the highest known one + need + bump: see [era.Identity.Resume].
func (r *Resumption) planOf(
	c lineage.Case, tags []segment.Tag, there map[string]int64, isIdle bool, other string,
) (p Plan, err error) {
	id, in := c.Identity, cmp.Or(c.Identity.Incident, &era.Incident{})
	p = Plan{
		Registry: id.Registry, Incident: in.ID, Cause: string(in.Cause), Found: in.Provers, Stopped: c.Stopped,
		Need: c.Need, DryRun: r.DryRun,
	}
	here := make(map[string]bool)
	for _, t := range tags {
		here[t.Name] = true
		p.Need = max(p.Need, there[t.Name]-t.MaxID)
	}
	for tag, mark := range there {
		if !here[tag] { // here the tag would begin at the offset + 1
			p.Need = max(p.Need, mark-id.Offset()-1)
		}
	}
	knowsRows := r.HasRows && len(in.Eras) > 0 // then rows have the marks, and provers know the eras
	switch {
	case isIdle:
		p.Outcome = InOrder
	case r.Bump == nil && r.Keep != "" && other == "":
		err = errors.New("no worker of another registry answers: connect one, or give --bump N, N above all that " +
			"it may have loaded of a tag")
	case r.Bump == nil && p.Need == 0 && (c.Missing != nil || in.Cause == era.Lost && !knowsRows):
		err = errors.New("the marks are lost, and no worker knows how far tags were: give --bump N, N above every ID " +
			"that was ever used")
	default:
		p.Bump = *cmp.Or(r.Bump, new(int64(usualBump)))
		id, err = id.Resume(p.Bump, p.Need, time.Time{})
	}
	if err != nil {
		return p, WordsError{err}
	}
	p.Offset = id.Offset()
	by := p.Offset - c.Identity.Offset()
	for _, t := range tags {
		to := t.MaxID + by
		width := slices.IndexFunc(widths, func(bits int) bool { return t.MaxID>>bits == 0 && to>>bits > 0 })
		switch {
		case t.Disabled:
		case t.Undecided || by > 0 && (t.Rules.Bounded() || t.MaxID > r.Limit-by):
			p.Undecided = append(p.Undecided, t.Name)
		case width >= 0:
			p.Wide = append(p.Wide, fmt.Sprintf("%s: %d -> %d, beyond 2^%d", t.Name, t.MaxID, to, widths[width]))
		}
	}
	return p, nil
}

// widths are the bits of types in which callers may keep IDs, the widest first.
var widths = []int{53, 32, 31}
