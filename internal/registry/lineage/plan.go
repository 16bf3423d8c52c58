package lineage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/registry/era"
)

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

// plan reads the tags of this registry, and those of the registry to stop, and returns what a resume would do.
//
// Law: need is at least the most by which any tag is below what workers of either registry have loaded. The new era's
// offset is the highest known one + need + bump: see [era.Identity.Resume].
func (o *Operator) plan(ctx context.Context, isIdle bool, other string) (p Plan, err error) {
	tags, err := o.List(ctx, "", math.MaxInt)
	var there map[string]int64
	if err == nil && other != "" {
		there, err = o.Ask.Marks(ctx, other)
	}
	if err != nil {
		return p, err
	}
	now := o.seen
	id, in := now.id, cmp.Or(now.id.Incident, &era.Incident{})
	p = Plan{
		Registry: id.Registry, Incident: in.ID, Cause: string(in.Cause), Found: in.Provers, Stopped: now.stopped,
		Need: now.need, DryRun: o.DryRun,
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
	knowsRows := o.HasRows && len(in.Eras) > 0 // then rows have the marks, and provers know the eras
	switch {
	case isIdle:
		p.Outcome = InOrder
	case o.Bump == nil && o.Keep != "" && other == "":
		err = errors.New("no worker of another registry answers: connect one, or give --bump N, N above all that " +
			"it may have loaded of a tag")
	case o.Bump == nil && p.Need == 0 && (now.missing != nil || in.Cause == era.Lost && !knowsRows):
		err = errors.New("the marks are lost, and no worker knows how far tags were: give --bump N, N above every ID " +
			"that was ever used")
	default:
		p.Bump = *cmp.Or(o.Bump, new(int64(usualBump)))
		id, err = id.Resume(p.Bump, p.Need, time.Time{})
	}
	if err != nil {
		return p, ChoicesError{err}
	}
	p.Offset = id.Offset()
	by := p.Offset - now.id.Offset()
	for _, t := range tags {
		to := t.MaxID + by
		width := slices.IndexFunc(widths, func(bits int) bool { return t.MaxID>>bits == 0 && to>>bits > 0 })
		switch {
		case t.Disabled:
		case t.Undecided || by > 0 && (t.Rules.Bounded() || t.MaxID > o.Limit-by):
			p.Undecided = append(p.Undecided, t.Name)
		case width >= 0:
			p.Wide = append(p.Wide, fmt.Sprintf("%s: %d -> %d, beyond 2^%d", t.Name, t.MaxID, to, widths[width]))
		}
	}
	return p, nil
}

// widths are the bits of types in which callers may keep IDs, the widest first.
var widths = []int{53, 32, 31}
