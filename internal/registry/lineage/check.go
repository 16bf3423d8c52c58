package lineage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/natsid/natsid/internal/registry/era"
)

// A checker checks the registry: it writes this worker's own key (an entry that no other worker writes), reads the
// identity (the entry that describes the registry), and acts on both.
//
// Invariant: one check is under way at a time, and only it uses what the worker remembers. A check stops the registry
// only if an acknowledged compare-and-set proves that its state is wrong, and ends the stop only in a new era.
type checker struct {
	cfg      *Config
	gate     *gate
	registry *registry
	own      *own
	peers    *peers
	turn     chan struct{} // a lock with room for one value: the goroutine whose value is in it may use own and last
	last     view          // what the last successful check has read
}

// do calls f as soon as no other check is under way. It returns an error if ctx ends before.
func (c *checker) do(ctx context.Context, f func() error) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
		return f()
	case <-ctx.Done():
		return fmt.Errorf("lineage: the bucket of marks could not be checked in time: %w", ctx.Err())
	}
}

// check makes one check, and returns nil if the registry is sound. Call it, and the methods below it, within do.
//
// Law: the own key (which only this worker writes) is written before the identity (which describes the registry) is
// read, so the identity is no older than that acknowledged write. If the bucket went back, that write fails before the
// worker acts on the identity.
func (c *checker) check(ctx context.Context, thorough bool) error {
	a := c.gate.begin(thorough)
	var wrote error
	inEra := c.own.Key != "" && c.own.Incident == "" && c.gate.Stopped() == nil
	if inEra {
		wrote = c.own.write(ctx, 0, false)
	}
	v, err := c.registry.read(ctx, a.thorough)
	if err != nil {
		return err
	}
	if err := c.leave(&v); err != nil {
		c.cfg.Settled(v.id.Registry)
		return err
	}
	err = c.follow(ctx, &v, a.proof, wrote, inEra)
	if f, ok := errors.AsType[*finding](err); ok {
		err = c.prove(ctx, &v, f)
	}
	if err != nil {
		return err
	}
	c.cfg.Settled(v.id.Registry)
	c.last = v
	inIncident := c.own.Incident != ""
	if !inIncident {
		c.own.Stop = ""
		c.registry.begun.Store(&v.id)
	}
	return c.gate.end(a, inIncident)
}

// leave stops this worker if it uses another registry than the one that an operator chose, and returns why. Otherwise
// it returns nil.
func (c *checker) leave(v *view) (why error) {
	if v.missing != nil || c.cfg.Pin == "" || v.id.Registry == c.cfg.Pin {
		return nil
	}
	why = fmt.Errorf("%w: this worker rests on registry %s, and --registry is %s: correct that, or the NATS",
		ErrStopped, v.id.Registry, c.cfg.Pin)
	if why.Error() != c.own.Stop {
		c.own.Stop = why.Error()
		c.gate.stop(why, true)
		c.own.save()
	}
	return why
}

// follow acts on the identity (the entry that describes the registry) that a check has read, or returns a [finding]:
// how that contradicts the worker's memory. The parameter proof is a finding that an acknowledged write has proved
// already, or nil. inEra says that this check wrote the own key, which only this worker writes; wrote is the error of
// that write.
func (c *checker) follow(ctx context.Context, v *view, proof *finding, wrote error, inEra bool) error {
	k, in := c.own, v.id.Incident
	if k.Incident != "" {
		return c.followStop(ctx, v)
	}
	f := find(&k.memory, v)
	switch {
	case v.missing != nil && k.isFresh():
		return c.givesWay(ctx, v, f)
	case f != nil:
		return f
	case in == nil && k.isFresh():
		return c.begin(ctx, v)
	case in == nil && k.Era != v.id.Era: //mutant:new-era
		return c.enter(ctx, v) // the new era explains why the own key or a mark differs
	case proof != nil:
		return proof
	case in != nil:
		return c.join(ctx, v)
	case inEra:
		return wrote
	}
	return c.write(ctx, v)
}

// followStop is follow for a worker that has joined an incident, a stop of all workers, and so issues nothing.
func (c *checker) followStop(ctx context.Context, v *view) error {
	joined, f := c.own.Incident, find(&c.own.memory, v)
	switch {
	case v.missing != nil, !v.id.Knowing(nil).Offsets.Has(c.own.Eras): //mutant:facts-gone
		return f
	case joined == v.id.Open():
		return c.stay(ctx, v)
	case f != nil && v.id.Incident == nil:
		return f
	case v.id.Incident != nil:
		return c.join(ctx, v)
	case v.id.Ended[joined] != "", v.id.Registry != c.own.Registry: // ours was merged into this other registry
		return c.enter(ctx, v)
	}
	//mutant:gone
	return &finding{cause: era.WentBack, why: "the open incident is gone from the identity, and no resume ended it"}
}

// prove writes a finding (how the bucket contradicts this worker's memory) into the identity by compare-and-set: as a
// new incident (a stop of all workers), or as a part of the open one. It adds the eras that this worker knows and the
// registry lacks.
//
// Law: one set-back that several workers prove is one incident, so a worker joins the open one. But if the worker has
// joined that before, or knows that it ended, the finding is of another set-back, and begins an incident of its own.
func (c *checker) prove(ctx context.Context, v *view, f *finding) error {
	if f.confirm != nil {
		if err := f.confirm(ctx); isRefused(err) {
			return errNewerRead
		} else if err != nil {
			return fmt.Errorf("lineage: it is not proved yet that %s: %w", f.why, err)
		}
	}
	c.gate.stop(f.reason())
	next, isNew := c.accuse(v, f)
	if err := c.registry.replace(ctx, v, next); err != nil {
		return err
	}
	c.gate.named()
	c.own.copied = false
	c.own.join(next.Incident.ID)
	// The old own key, which only this worker wrote, is the proof. So it stays as it was found, and this worker takes a
	// new key.
	c.own.leaveKey() //mutant:proof-key
	if isNew {
		c.cfg.Serving.Alarm(f.cause, fmt.Sprintf(
			"%s. No segment ID is served until an operator runs `natsid resume`. Incident %s", f.why, next.Incident.ID))
	} else {
		c.gate.stop(ofIncident(next.Incident)) // all workers give one reason
	}
	c.peers.announce()
	return c.note(ctx, v)
}

// accuse returns the identity (the entry that describes the registry) with a finding added as an incident, a stop of
// all workers. It reports whether that incident is a new one.
func (c *checker) accuse(v *view, f *finding) (next era.Identity, isNew bool) {
	k := c.own
	next = v.id
	if v.missing != nil {
		next = era.Blank(c.cfg.Kind, v.stream.Created)
		if k.Registry != "" {
			next.Registry = k.Registry
		}
	}
	in := era.Incident{
		ID: newID(), Cause: f.cause, Other: f.other, Unused: f.unused, Need: f.need,
		Provers: []era.Prover{{Name: c.cfg.Name(), Why: f.why, At: c.cfg.Now().UTC()}},
		Prior:   append(slices.Clone(k.Ended), k.Incident),
		Eras:    era.Offsets{f.era: 0}.Add(k.Eras),
		Merged:  []string{k.Registry},
	}
	if f.cause == era.Lost {
		in.Need = max(in.Need, c.own.beyond())
	}
	open := next.Open()
	joins := open != "" && open != k.Incident && !slices.Contains(k.Ended, open) //mutant:joins
	return next.Accuse(in, joins), !joins
}

// join stops this worker for an open incident, a stop of all workers that another one has proved to be needed.
func (c *checker) join(ctx context.Context, v *view) error {
	c.gate.stop(ofIncident(v.id.Incident))
	if err := c.own.compare(ctx); err != nil {
		return err
	}
	if c.own.isFresh() {
		c.own.Registry = v.id.Registry
	}
	c.own.join(v.id.Incident.ID)
	return c.note(ctx, v)
}

// note completes a stop. It writes entries that the bucket lacks, and then the own key, which names the incident that
// this worker has joined, and by how much marks are below its floors (the IDs up to which it has loaded tags).
//
// Law: no entry that proves a set-back is overwritten. note writes only missing entries, and marks of tags with a
// last number: neither of them proves a set-back.
func (c *checker) note(ctx context.Context, v *view) error {
	known := v.id.Knowing(c.own.Eras) // others may have restored entries that name eras known only to the incident
	c.registry.begun.Store(&known)
	if err := c.own.restore(ctx); err != nil {
		return err
	}
	low, err := c.own.low(ctx) // after restore, as another worker may have restored an entry from its own, lower floor
	if err != nil {
		return err
	}
	c.own.need = 0
	if low != nil {
		c.own.need = low.need //mutant:join-need
	}
	if v.id.Incident.Cause == era.Lost {
		c.own.need = max(c.own.need, c.own.beyond())
	}
	c.own.saveFloors()
	if c.own.Stop = ""; v.id.Incident.Other != "" {
		c.own.Stop = c.gate.Stopped().Error()
	}
	if err := c.own.write(ctx, v.revision, false); err != nil {
		return err
	}
	c.own.noted = v.id.Open()
	return nil
}

// stay is a check while the incident (a stop of all workers) that this worker has joined is open. If the own key, which
// only this worker writes, is not as it wrote it last, the bucket went back again.
func (c *checker) stay(ctx context.Context, v *view) error {
	//mutant:stay
	if c.gate.Stopped() == nil { // the process began during the incident
		c.gate.stop(ofIncident(v.id.Incident))
	}
	if err := c.own.compare(ctx); err != nil {
		return err
	}
	switch {
	case c.own.noted != v.id.Open():
		return c.note(ctx, v)
	case v.id.Incident.Cause == era.Exposed: // with unfit settings of the bucket, restored entries may vanish again
		return c.own.restore(ctx)
	}
	return nil
}

// enter enters the present era: the incident that this worker joined, or one that it missed, has ended.
//
// Law: an era begins above every ID that the workers stopped by its incident had loaded. So a mark below this
// worker's floor, the ID up to which it has loaded the tag, shows that the bucket went back again. Missing entries
// are restored, as an operator may have restored an older bucket after those workers wrote theirs.
func (c *checker) enter(ctx context.Context, v *view) error {
	if c.gate.Stopped() == nil {
		c.gate.stop((&finding{cause: era.WentBack, why: "it was resumed while this worker was away"}).reason())
	}
	c.gate.named()
	c.registry.begun.Store(&v.id)
	switch low, err := c.own.low(ctx); {
	case err != nil:
		return err
	case low != nil: //mutant:resume-low
		return low
	}
	if err := c.own.restore(ctx); err != nil {
		return err
	}
	c.own.join("")
	c.cfg.Log.Info("the registry was resumed", "era", v.id.Era)
	return c.begin(ctx, v)
}

// begin makes this worker a part of the present era (the time since the last resume), with a new own key: an entry that
// only this worker writes.
func (c *checker) begin(ctx context.Context, v *view) error {
	c.own.Registry, c.own.Era, c.own.Eras = v.id.Registry, v.id.Era, v.id.Offsets
	c.own.leaveKey()
	c.own.saveFloors()
	return c.write(ctx, v)
}

// write writes the own key (which only this worker writes), and then reads the identity (which describes the registry)
// again. If the identity has changed since the check read it, the check has acted on an old one, and write returns
// errNewerRead.
func (c *checker) write(ctx context.Context, v *view) error {
	if err := c.own.write(ctx, v.revision, false); err != nil {
		return err
	}
	now, err := c.registry.read(ctx, false)
	if err == nil && now.revision != v.revision {
		err = errNewerRead
	}
	return err
}

// proveLow stops the registry if an acknowledged write shows that a mark is below what this worker loaded.
func (c *checker) proveLow(ctx context.Context) error {
	return c.do(ctx, func() error {
		low, err := c.own.low(ctx)
		if low != nil {
			c.gate.WentBack(low.why, low.need)
		}
		return err
	})
}

// meetEra checks the registry after a load has read a tag's entry that names an era unknown to this worker. If the
// identity lacks that era, too, the bucket was set back to an earlier state, and meetEra stops the registry.
//
// Law: no era is ever removed from the identity, and the identity is read after the entry. So if it lacks the entry's
// era, the two belong to different histories of the bucket.
func (c *checker) meetEra(ctx context.Context, of string) error {
	c.gate.Doubt()
	return c.do(ctx, func() error {
		if err := c.check(ctx, false); err != nil {
			return err
		}
		v := c.last
		if _, err := v.id.Since(of); err == nil {
			return nil
		}
		return c.prove(ctx, &v, &finding{cause: era.WentBack, era: of, why: fmt.Sprintf("an entry of the bucket of "+
			"marks is of an era that its identity lacks, %s", of)})
	})
}
