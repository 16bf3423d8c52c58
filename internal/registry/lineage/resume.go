package lineage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// Choices are a person's choices: the flags of `natsid resume`.
type Choices struct {
	Restored bool   // a backup was restored, though no worker has noticed
	Bump     *int64 // no tag moved further since the state found, in IDs; nil is usualBump
	Keep     string // of two registries, the one that serves; "" for none
	DryRun   bool
}

// usualBump covers a day of one tag at 10,000 IDs/s.
const usualBump = 1_000_000_000

// A ChoicesError is returned for choices that do not fit the state of the registry.
type ChoicesError struct{ error }

// An Operator resumes a registry that its workers have stopped. It waits until each worker has checked the registry,
// shows a [Plan], and once a person has agreed to that begins a new era by one write. Choices may be zero; all other
// fields must be set.
//
// Law: an operator writes by compare-and-set on the identity that it has shown. Each attempt makes an era with a random
// ID, even if the attempt before had no answer. So every operator learns which era is the present one, and no era has
// two offsets.
type Operator struct {
	Choices
	Bucket Bucket
	Kind   string // the kind to write if the identity is missing
	Name   string // the operator's name, for people
	Now    func() time.Time
	// Announce sends a notice to all workers, so that each checks at once. Ask asks workers: see [Bus].
	Announce func(notice []byte) error
	Ask      AskFunc
	// List lists the tags as [segment.Store] does, reading their entries by the identity that Eras returns.
	List    func(ctx context.Context, after string, limit int) ([]segment.Tag, error)
	Limit   int64 // the highest mark that the store can hold
	HasRows bool  // a table has a row for each tag
	// Soon returns the context of a step.
	Soon  func() (context.Context, context.CancelFunc)
	Say   func(what string)
	Agree func(Plan) error // nil once a person agrees

	seen   *standing    // as read last; nil before the first look
	first  era.Identity // the identity as read first
	agreed string       // the incident that a person agreed to end
}

// joining is how long an operator waits after it has first read an incident: by then each worker has checked the
// registry, and has written by how much marks are below its floors. draining is for a decision between two registries:
// for that long workers may use ranges that they loaded before they heard of the decision.
const (
	joining  = fresh + time.Second
	draining = fresh + writeTimeout + time.Second
)

// A standing is what an operator has read of a registry.
type standing struct {
	id       era.Identity
	missing  error     // why there is no identity to use
	unfit    error     // settings under which entries can vanish: nothing is resumed while they stand
	since    time.Time // when this operator first read the incident, or that the identity is missing
	stopped  []string  // workers that have joined the incident
	need     int64     // by how much marks are below the floors of workers in the incident
	created  time.Time // when the stream was made
	revision uint64    // of the identity
}

// repeatAfter is the pause after a write whose answer is lost. It is a variable for simulations.
var repeatAfter = time.Second

// errChanged says that a worker or another operator has changed the identity.
var errChanged = errors.New("lineage: a worker or another operator has changed the identity; look again")

// ErrUnknown is returned by [Operator.Run] if no answer says whether the era has begun.
var ErrUnknown = errors.New("lineage: it is not known whether the registry is resumed, so run the command again")

// Eras returns the identity by which entries are read.
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

// look reads the registry.
func (o *Operator) look(ctx context.Context) error {
	stream, unfit, err := describe(ctx, o.Bucket) // first, so that resume notices a restore from now on
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

// wait returns how long this operator has to wait before it resumes.
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

// other returns the registry to stop, so that the kept one serves; "" if no other one answers.
func (o *Operator) other(ctx context.Context) string {
	if o.Keep == "" {
		return ""
	}
	all, _ := o.Ask.Notices(ctx, Notice{Process: newID()}) // an error counts as none
	for _, n := range all {
		if n.Registry != "" && n.Registry != o.Keep {
			return n.Registry
		}
	}
	return ""
}

// resume begins a new era, and with it ends the open incident, if there is one. by is how far any tag can have been
// loaded beyond what is known, and need by how much marks are too low. Workers serve again within seconds. The error is
// errChanged if the identity is not the one that was read, and nothing was written.
//
// Where the answer of NATS is lost, the identity is read until it says whether the era has begun. The error is
// [ErrUnknown] if ctx ends before.
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

// rouse makes each worker check now: its notice names no era, and so differs from what each worker knows.
func (o *Operator) rouse() {
	o.tell(Notice{Registry: o.seen.id.Registry, Incident: o.seen.id.Open()})
}

// tell sends a notice. A worker that misses it checks within seconds if it loads.
func (o *Operator) tell(n Notice) {
	n.Instance, n.Process = o.Name, newID()
	_ = o.Announce(encode(n))
}
