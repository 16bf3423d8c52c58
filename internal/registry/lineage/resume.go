package lineage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/era"
)

// An Operator resumes a registry by one write: a new era, see package era.
//
// Law: an operator writes by compare-and-set on the identity that it has shown, and each attempt makes an era with a
// random ID, even if the former attempt had no answer. So every operator learns which era is the present one, and no
// era has two offsets.
type Operator struct {
	Bucket Bucket
	Kind   string // the kind to write if the identity is missing
	Name   string // the operator's name, for people
	Now    func() time.Time
	// Announce sends a notice to all workers, so that each checks at once.
	Announce func(notice []byte) error
}

// Joining is how long an operator waits after first reading an incident: by then each worker has checked, and has
// written by how much marks are below its floors. Draining is for a decision between two registries: for that long
// workers may still use ranges that they loaded before they heard of it.
const (
	Joining  = fresh + time.Second
	Draining = fresh + writeTimeout + time.Second
)

// A Case is what an operator sees of a registry.
type Case struct {
	Identity era.Identity
	Missing  error     // why there is no identity to use
	Unfit    error     // settings under which entries can vanish: nothing is resumed while they stand
	Seen     time.Time // when this operator first read the incident, or that it is missing
	Stopped  []string  // workers that have joined the incident
	Need     int64     // by how much marks are below the floors of workers in the incident

	created  time.Time
	revision uint64
}

// repeatAfter is the pause after a write whose answer is lost. It is a variable for simulations.
var repeatAfter = time.Second

var (
	// ErrChanged is returned when a worker or another operator has changed the identity: look again.
	ErrChanged = errors.New("lineage: a worker or another operator has changed the identity; look again")
	// ErrUnknown is returned by [Operator.Resume] if no answer says whether the era has begun.
	ErrUnknown = errors.New("lineage: it is not known whether the registry is resumed, so run the command again")
)

// Look reads the registry. before is the result of this operator's last Look, nil at first.
func (o *Operator) Look(ctx context.Context, before *Case) (c Case, err error) {
	stream, unfit, err := describe(ctx, o.Bucket) // first, so that Resume notices a restore from now on
	if err != nil {
		return c, err
	}
	v, err := readView(ctx, o.Bucket, false)
	if err != nil {
		return c, err
	}
	c = Case{
		Identity: v.id, Missing: v.missing, Unfit: unfit, Seen: o.Now(), revision: v.revision,
		created: stream.Created.UTC(),
	}
	if before != nil && before.Identity.Open() == c.Identity.Open() && (before.Missing == nil) == (c.Missing == nil) {
		c.Seen = before.Seen
	}
	if v.id.Incident != nil {
		c.Need = v.id.Incident.Need
	}
	entries, err := o.Bucket.Latest(ctx, ownPrefix)
	if err != nil {
		return c, fmt.Errorf("lineage: the own keys of workers cannot be listed: %w", err)
	}
	for _, e := range entries {
		k, err := decodeOwn(e.Value)
		if err == nil && k.Incident != "" && k.Incident == c.Identity.Open() {
			c.Need = max(c.Need, k.Need)
			c.Stopped = append(c.Stopped, k.Name)
		}
	}
	slices.Sort(c.Stopped)
	c.Stopped = slices.Compact(c.Stopped)
	return c, nil
}

// Wait returns how long this operator has to wait before it resumes.
func (o *Operator) Wait(c Case) time.Duration { return max(0, Joining-o.Now().Sub(c.Seen)) }

// Resume begins a new era, and with it ends the incident of a case, if one is open. by is how far any tag can have been
// loaded beyond what is known, and need by how much marks are too low. Workers serve again within seconds. The error is
// [ErrChanged] if the identity is another one than the case has, and nothing was written.
//
// Where the answer of NATS is lost, the identity is read until it says whether the era has begun. The error is
// [ErrUnknown] if ctx ends before.
func (o *Operator) Resume(ctx context.Context, c *Case, by, need int64) error {
	if c.Unfit != nil {
		return fmt.Errorf("correct the settings of the bucket first: %w", c.Unfit)
	}
	if wait := o.Wait(*c); wait > 0 {
		return fmt.Errorf("lineage: workers may join the incident for %v", wait)
	}
	state, err := o.Bucket.Look(ctx)
	if err != nil {
		return err
	}
	if !isOne(state.Created, c.created) {
		return ErrChanged
	}
	next := c.Identity
	if c.Missing != nil {
		next = era.Blank(o.Kind, c.created)
	}
	if next, err = next.Resume(by, max(need, c.Need), c.created); err != nil {
		return err
	}
	for {
		_, err := putIdentity(ctx, o.Bucket, next, c.revision)
		if err == nil {
			break
		}
		v, unread := readView(ctx, o.Bucket, false)
		if unread == nil && v.id.Era == next.Era {
			break
		}
		if unread == nil && v.revision != c.revision {
			return ErrChanged
		}
		if jitter.Sleep(ctx, repeatAfter) != nil {
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	c.Identity, c.Missing = next, nil
	o.tell(Notice{Registry: next.Registry, Era: next.Era})
	return nil
}

// Rouse makes each worker check now: its notice names no era, and so differs from what each worker knows.
func (o *Operator) Rouse(c Case) {
	o.tell(Notice{Registry: c.Identity.Registry, Incident: c.Identity.Open()})
}

// tell sends a notice. A worker that misses it checks within seconds if it loads.
func (o *Operator) tell(n Notice) {
	n.Instance, n.Process = o.Name, newID()
	_ = o.Announce(encode(n))
}
