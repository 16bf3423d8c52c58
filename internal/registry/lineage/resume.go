package lineage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// Choices are a person's choices: the flags of `natsid resume`.
type Choices struct {
	Restored bool   // a backup was restored, though no worker has noticed
	Bump     *int64 // how many IDs a tag used at most beyond what is known; nil is usualBump
	Keep     string // of two registries, the one that serves; "" for none
	DryRun   bool
}

// usualBump, in IDs, is more than a tag that issues 10,000 IDs/s uses in a day.
const usualBump = 1_000_000_000

// A ChoicesError is returned for choices that do not fit the state of the registry.
type ChoicesError struct{ error }

// An Operator is `natsid resume`: it resumes a registry that its workers have stopped. It waits until each worker has
// checked the registry, shows a [Plan], and once a person agrees begins a new era, which continues above all IDs
// loaded before. Choices may be zero; all other exported fields must be set.
//
// Law: an operator writes by compare-and-set on the identity (the entry that describes the registry) that it has
// shown. Each attempt makes an era with a random ID, even if the attempt before had no answer. So every operator
// learns which era is the present one, and no era has two offsets.
type Operator struct {
	Choices
	Bucket Bucket
	Kind   string // the kind of marks, which Run writes if the identity is missing
	Name   string // the operator's name, for people
	Now    func() time.Time
	// Announce sends a notice to all workers, so that each checks at once. Ask asks workers: see [Bus].
	Announce func(notice []byte) error
	Ask      AskFunc
	// List lists the tags as [segment.Store] does. Their marks (next IDs) are raised as the identity that Eras returns
	// says.
	List  func(ctx context.Context, after string, limit int) ([]segment.Tag, error)
	Limit int64 // the highest mark that the store can hold
	// Soon returns a context that ends when one step of Run has taken too long.
	Soon  func() (context.Context, context.CancelFunc)
	Say   func(what string)
	Agree func(Plan) error // nil once a person agrees

	seen   *standing    // the registry as read last; nil before
	first  era.Identity // the identity as read first
	agreed string       // the incident that a person agreed to end
}

// joining is how long an operator waits after it has first read of a stop: by then each worker has checked the
// registry, and noted by how much marks are below what it loaded. draining is for a choice between two registries:
// for that long workers of the other one may use ranges that they loaded before they heard of the choice.
const (
	joining  = fresh + time.Second
	draining = fresh + writeTimeout + time.Second
)

// A standing is the state of a registry as an [Operator] has read it. An incident is a stop of all its workers.
type standing struct {
	id       era.Identity
	missing  error     // why there is no identity to use
	unfit    error     // the bucket's settings can lose entries; they must be corrected before a resume
	since    time.Time // when this operator first read the incident, or that the identity is missing
	stopped  []string  // workers that have joined the incident
	need     int64     // by how much marks are below what these workers and the provers loaded
	created  time.Time // when the stream was made
	revision uint64    // of the identity, the entry that describes the registry
}

// repeatAfter is the pause after a write whose answer is lost. It is a variable for simulations.
var repeatAfter = time.Second

// errChanged says that a worker or another operator has changed the identity.
var errChanged = errors.New("lineage: a worker or another operator has changed the identity; look again")

// ErrUnknown is returned by [Operator.Run] if it did not learn whether its last write was made.
var ErrUnknown = errors.New("lineage: it is not known whether the registry is resumed, so run the command again")

// Eras returns the identity as last read, with all eras known: their offsets raise the marks that are read.
func (o *Operator) Eras() era.Identity { return o.seen.id.Knowing(nil) }

// Run takes steps until the registry is resumed, or needs no resume. It returns what it did, or with DryRun would do.
func (o *Operator) Run() (p Plan, err error) {
	if o.Bump != nil && (*o.Bump < 0 || *o.Bump > era.MostOffset) {
		return p, ChoicesError{fmt.Errorf("--bump %d: want 0 to %d", *o.Bump, int64(era.MostOffset))}
	}
	for range 14 {
		ctx, cancel := o.Soon()
		p, err = o.step(ctx)
		cancel()
		if !errors.Is(err, errChanged) {
			break
		}
	}
	if err == nil || errors.As(err, new(ChoicesError)) || errors.Is(err, ErrUnknown) {
		return p, err
	}
	return p, fmt.Errorf("the registry is not resumed: %w", err)
}

// step reads the registry, and does what comes next. After errChanged the caller calls step again.
func (o *Operator) step(ctx context.Context) (p Plan, err error) {
	isFirst := o.seen == nil
	if err := o.look(ctx); err != nil {
		return p, err
	}
	if isFirst {
		o.first = o.seen.id
		o.rouse()
	}
	isIdle, err := o.check()
	if err != nil {
		return p, err
	}
	if wait := o.wait(); wait > 0 && !isIdle {
		o.Say("Waiting until each worker has checked the registry.")
		return p, cmp.Or(jitter.Sleep(ctx, wait), errChanged)
	}
	other := o.other(ctx)
	p, err = o.plan(ctx, isIdle, other)
	switch agreed := cmp.Or(o.seen.id.Open(), "none"); {
	case err != nil || isIdle || o.DryRun:
		return p, err
	case o.agreed != agreed:
		o.agreed = agreed
		return p, cmp.Or(o.Agree(p), errChanged)
	case other != "":
		eras, err := o.Ask.Stop(ctx, other, o.Keep)
		if err != nil {
			return p, fmt.Errorf("registry %s is not stopped: %w", other, err)
		}
		o.Say("Registry " + other + " is stopped. Waiting until its workers use no earlier loads.")
		if err = jitter.Sleep(ctx, draining); err == nil {
			p, err = o.plan(ctx, false, other)
		}
		if err != nil {
			return p, err
		}
		o.seen.id = o.seen.id.Merge(other, eras)
	}
	if err := o.resume(ctx, p.Bump, p.Need); err != nil {
		return p, err
	}
	p.Registry, p.Offset, p.Outcome = o.seen.id.Registry, o.seen.id.Offset(), "resumed"
	return p, nil
}

func (o *Operator) look(ctx context.Context) error {
	stream, unfit, err := describe(ctx, o.Bucket) // first, so that resume notices if the bucket is restored from now on
	if err != nil {
		return err
	}
	v, err := readView(ctx, o.Bucket, false)
	if err != nil {
		return err
	}
	now := &standing{
		id: v.id, missing: v.missing, unfit: unfit, since: o.Now(), revision: v.revision, created: stream.Created.UTC(),
	}
	if was := o.seen; was != nil && was.id.Open() == v.id.Open() && (was.missing == nil) == (v.missing == nil) {
		now.since = was.since
	}
	if v.id.Incident != nil {
		now.need = v.id.Incident.Need
	}
	entries, err := o.Bucket.Latest(ctx, ownPrefix)
	if err != nil {
		return fmt.Errorf("lineage: the own keys of workers cannot be listed: %w", err)
	}
	for _, e := range entries {
		k, err := decodeOwn(e.Value)
		if err == nil && k.Incident != "" && k.Incident == v.id.Open() {
			now.need = max(now.need, k.Need)
			now.stopped = append(now.stopped, k.Name)
		}
	}
	slices.Sort(now.stopped)
	now.stopped = slices.Compact(now.stopped)
	o.seen = now
	return nil
}

// wait returns how long this operator must still wait until each worker has checked.
func (o *Operator) wait() time.Duration { return max(0, joining-o.Now().Sub(o.seen.since)) }

// check returns an error if the choices do not fit the state of the registry. isIdle says that there is nothing to
// resume.
func (o *Operator) check() (isIdle bool, err error) {
	id, in := o.seen.id, o.seen.id.Incident
	switch {
	case o.Keep != "" && o.Keep != id.Registry:
		err = fmt.Errorf("--keep %s: this NATS reaches registry %s; reach the other one with --nats, or --js-domain",
			o.Keep, id.Registry)
	case in != nil && in.Other != "" && o.Keep == "":
		err = fmt.Errorf("registries %s and %s serve the same subjects: say which one serves with --keep",
			id.Registry, in.Other)
	case in == nil && id.Era != o.first.Era && id.Offsets.Has(o.first.Offsets): // another operator was faster
		return true, nil
	case in != nil || o.seen.missing != nil || o.Restored || o.Keep != "":
		return false, nil
	case o.Bump == nil:
		return true, nil
	default:
		err = errors.New("the registry is not stopped, so nothing is raised: no worker has noticed another state; if " +
			"a backup was restored, say so with --restored")
	}
	return false, ChoicesError{err}
}

// other returns a registry beside the one to keep, which must stop; "" if none answers, or --keep is not set.
func (o *Operator) other(ctx context.Context) string {
	if o.Keep == "" {
		return ""
	}
	all, _ := o.Ask.Look(ctx, newID()) // an error counts as none
	for _, n := range all {
		if n.Registry != "" && n.Registry != o.Keep {
			return n.Registry
		}
	}
	return ""
}

// resume begins a new era, and so ends the open incident (the stop of all workers), if there is one. The parameter by
// is how many IDs a tag may have used beyond what is known, need by how much marks are too low. Workers serve again
// within seconds. The error is errChanged if the identity is not the one that was read, and nothing was written.
//
// If the answer to the write is lost, resume reads the identity until it shows whether the era has begun. The error
// is [ErrUnknown] if ctx ends before.
func (o *Operator) resume(ctx context.Context, by, need int64) error {
	now := o.seen
	if now.unfit != nil {
		return fmt.Errorf("correct the settings of the bucket first: %w", now.unfit)
	}
	if wait := o.wait(); wait > 0 {
		return fmt.Errorf("lineage: workers may join the incident for %v", wait)
	}
	state, err := o.Bucket.Look(ctx)
	if err != nil {
		return err
	}
	if !isOne(state.Created, now.created) {
		return errChanged
	}
	next := now.id
	if now.missing != nil {
		next = era.Blank(o.Kind, now.created)
	}
	if next, err = next.Resume(by, max(need, now.need), now.created); err != nil {
		return err
	}
	for {
		_, err := putIdentity(ctx, o.Bucket, next, now.revision)
		if err == nil {
			break
		}
		v, unread := readView(ctx, o.Bucket, false)
		if unread == nil && v.id.Era == next.Era {
			break
		}
		if unread == nil && v.revision != now.revision {
			return errChanged
		}
		if jitter.Sleep(ctx, repeatAfter) != nil {
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	now.id, now.missing = next, nil
	o.tell(Notice{Registry: next.Registry, Era: next.Era})
	return nil
}

// rouse makes each worker check now. Its notice names no era (no time between two resumes), and so differs from what
// each worker knows.
func (o *Operator) rouse() {
	o.tell(Notice{Registry: o.seen.id.Registry, Incident: o.seen.id.Open()})
}

// tell sends a notice about the registry to all workers. A worker that misses it reads the registry within 3 s if it
// loads.
func (o *Operator) tell(n Notice) {
	n.Instance, n.Process = o.Name, newID()
	_ = o.Announce(encode(n))
}

// A Plan is what a resume did, or would do. Scripts read it as JSON.
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
// Law: Need is at least the most by which any mark, a tag's next ID, is below what workers of either registry have
// loaded. The new era's offset is the highest known one + Need + Bump: see [era.Identity.Resume].
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
	knowsRows := o.Kind == era.Guarded && len(in.Eras) > 0 // rows show how far tags were, and provers know the eras
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

// widths are the bits that callers may have for an ID: in a float64, a uint32 and an int32.
var widths = []int{53, 32, 31}
