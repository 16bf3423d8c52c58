package lineage

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A checker checks the registry: it reads the identity, writes this worker's own key, and follows what both show.
//
// Invariant: one check is under way at a time, and only it uses what the worker remembers. A check stops the registry
// for a finding that an acknowledged compare-and-set proves, and ends a stop only when the chain has the incident.
type checker struct {
	cfg      *Config
	gate     *gate
	registry *registry
	own      *own
	floors   *floors
	peers    *peers
	turn     chan struct{} // has room for one: whoever put a value in may use own and settled
	settled  string        // the registry of which Settled was called
}

// do calls f when no other check is under way.
func (c *checker) do(ctx context.Context, f func() error) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
		return f()
	case <-ctx.Done():
		return fmt.Errorf("lineage: the bucket of marks could not be checked in time: %w", ctx.Err())
	}
}

// check makes one check. It returns nil if the registry is sound. This method and those below need a turn: see do.
func (c *checker) check(ctx context.Context, thorough bool) error {
	a := c.gate.begin(thorough)
	v, err := c.registry.read(ctx, a.thorough, !c.own.remembers())
	if err != nil {
		return err
	}
	if err := c.leave(&v); err != nil {
		c.settle(&v)
		return err
	}
	err = c.follow(ctx, &v, a.proof)
	if f, ok := errors.AsType[*finding](err); ok {
		err = c.prove(ctx, &v, f)
	}
	if err != nil {
		return err
	}
	if c.gate.Stopped() == nil { // before this worker answers for the registry: see natsbus
		if err := c.peers.greet(ctx, c.own.Registry, a.links, v.stream.Mine); err != nil {
			return err
		}
	}
	c.settle(&v)
	inIncident := c.own.Incident != ""
	if !inIncident {
		c.own.Stop, c.own.All = "", false
	}
	return c.gate.end(a, inIncident)
}

// settle says of which registry this worker can answer questions.
func (c *checker) settle(v *view) {
	if r := v.id.Registry; r != c.settled {
		c.settled = r
		c.cfg.Settled(r)
	}
}

// leave makes this worker serve nothing while its registry is not the one that serves, and returns why; nil if it is.
func (c *checker) leave(v *view) (why error) {
	switch id := v.id; {
	case v.missing != nil:
	case c.cfg.Pin != "" && id.Registry != c.cfg.Pin:
		why = fmt.Errorf("%w: this worker rests on registry %s, and --registry is %s: connect it to the NATS of "+
			"that one",
			ErrStopped, id.Registry, c.cfg.Pin)
	case id.Out != "":
		why = fmt.Errorf("%w: registry %s serves instead of registry %s, on which this worker rests: connect this "+
			"worker to the NATS of that one, or run `natsid resume --keep`", ErrStopped, id.Out, id.Registry)
	}
	if why != nil && why.Error() != c.own.Stop {
		c.own.Stop, c.own.All = why.Error(), true
		c.gate.refuse(why, true)
		c.own.save()
	}
	return why
}

// follow does what a view shows, or returns a finding. proof is what an acknowledgement has proved, nil if nothing.
func (c *checker) follow(ctx context.Context, v *view, proof *finding) error {
	k, in := c.own, v.id.Incident
	if k.Incident != "" {
		return c.followStop(ctx, v)
	}
	f := find(&k.memory, v)
	switch {
	case f == nil && in == nil && !k.isFresh() && k.Era != v.id.Era(): //mutant:renew
		return c.renew(ctx, v)
	case v.missing != nil && k.isFresh():
		if err := c.giveWay(ctx, v); err != nil {
			return err
		}
		return f
	case f != nil:
		return f
	case proof != nil:
		return proof
	case in != nil:
		return c.join(ctx, v)
	case k.isFresh():
		if err := c.floors.take(ctx, v.id.Plan); err != nil {
			return err
		}
		return c.begin(ctx, v)
	}
	if !v.stream.Created.IsZero() {
		k.Looked = k.Written.Sent
	}
	return k.write(ctx, v.revision, false)
}

// followStop follows a view while this worker has joined an incident.
func (c *checker) followStop(ctx context.Context, v *view) error {
	switch joined := c.own.Incident; {
	case v.missing != nil:
		return find(&c.own.memory, v)
	case joined == v.id.open():
		return c.stay(ctx, v)
	case v.id.Incident != nil:
		return c.join(ctx, v)
	case v.id.Knows(joined):
		return c.resume(ctx, v)
	}
	//mutant:gone
	return &finding{cause: WentBack, why: "the open incident is gone from the identity, and no resume ended it"}
}

// prove opens an incident for a finding, or joins the open one, by compare-and-set.
//
// Law: one set-back that several workers prove is one incident, so who has not joined the open one joins it. Who has,
// or knows that it ended, proves another set-back and makes a new one. The chain gets what a prover has and it lacks.
func (c *checker) prove(ctx context.Context, v *view, f *finding) error {
	c.gate.stop(f)
	if f.cause == WentBack && f.state.IsZero() {
		o, e, _ := c.own.read(ctx) // without it nobody knows the time
		f.state = c.own.foundAt(o, e.Revision, f.isRemade)
	}
	next, isNew := c.accuse(v, f)
	if err := c.registry.replace(ctx, v, next); err != nil {
		return err
	}
	c.gate.named()
	c.own.copied = false
	c.own.join(next.Incident.ID)
	// What the proof rests on stays as it was found.
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

// accuse returns the identity with the incident for a finding, and reports whether the incident is a new one.
func (c *checker) accuse(v *view, f *finding) (next Identity, isNew bool) {
	k := c.own
	next = v.id
	if v.missing != nil {
		next = Found(c.cfg.Kind, v.stream.Created)
		next.Eras = nil
		if k.Registry != "" {
			next.Registry = k.Registry
		}
	}
	in := Incident{ID: newID(), Cause: f.cause, Opened: c.cfg.Now().UTC(), Other: f.other}
	open := next.Incident
	joins := open != nil && open.ID != k.Incident && !slices.Contains(k.Ended, open.ID) //mutant:joins
	switch {
	case joins:
		in = *open
		in.Provers, in.Forgotten = slices.Clone(in.Provers), slices.Clone(in.Forgotten)
	case open != nil:
		in.forget(next, append(slices.Clone(open.Forgotten), open.ID)...)
	}
	in.forget(next, append([]string{k.Era, k.Incident}, k.Ended...)...) //mutant:forgotten
	in.addProver(Prover{Name: c.cfg.Name(), Why: f.why, At: c.cfg.Now().UTC(), State: f.state})
	next.Incident = &in
	return next, !joins
}

// join stops since an incident is open that another worker has proved.
func (c *checker) join(ctx context.Context, v *view) error {
	c.gate.stop(ofIncident(v.id.Incident))
	if err := c.own.compare(ctx); err != nil {
		return err
	}
	if c.own.isFresh() {
		c.own.Registry, c.own.Era = v.id.Registry, v.id.Era()
	}
	c.own.join(v.id.Incident.ID)
	return c.note(ctx, v)
}

// note ends the begin of a stop: it lifts the marks to the floors, writes settings again, and joins the incident in the
// own key.
func (c *checker) note(ctx context.Context, v *view) error {
	//mutant:stop-lift
	if _, err := c.floors.lift(ctx); err != nil {
		return err
	}
	if err := c.cfg.Reassert(ctx); err != nil {
		return err
	}
	c.floors.save()
	c.own.Stop, c.own.All = c.gate.Stopped().Error(), v.id.Incident.Cause == Second
	if err := c.own.write(ctx, v.revision, false); err != nil {
		return err
	}
	c.gate.noted()
	return nil
}

// stay waits for the end of an incident, and looks whether the bucket went back once more.
func (c *checker) stay(ctx context.Context, v *view) error {
	if err := c.own.compare(ctx); err != nil {
		return err
	}
	switch {
	case c.gate.state() != Stopped:
		return c.note(ctx, v)
	case v.id.Incident.Cause == Exposed: // what was lifted may vanish again until the settings are right
		_, err := c.floors.lift(ctx)
		return err
	}
	return nil
}

// resume ends the stop, since the chain has the incident.
//
// Law: all that a resume raised, and all that this worker loaded, lies below the marks, or the bucket went back since.
// So the marks are lifted to both first, and one that was below is a finding.
func (c *checker) resume(ctx context.Context, v *view) error {
	if err := c.floors.take(ctx, v.id.Plan); err != nil {
		return err
	}
	switch below, err := c.floors.lift(ctx); {
	case below != "":
		return &finding{cause: WentBack, why: below}
	case err != nil:
		return err
	}
	if err := c.cfg.Reread(ctx); err != nil {
		return err
	}
	c.own.join("")
	c.cfg.Log.Info("the registry was resumed", "era", v.id.Era())
	return c.begin(ctx, v)
}

// renew begins as new in a registry that was resumed while this worker was away.
//
// Law: it does so as a stopped worker, which throws no floor away. Its first write may get a lower revision than it
// knows, which the resume explains. So may a late acknowledgement of a write that was sent before: all that this worker
// loaded is of its era.
func (c *checker) renew(ctx context.Context, v *view) error {
	c.gate.stop(&finding{cause: WentBack, why: "it was resumed while this worker was away"})
	c.gate.named()
	c.own.Stop = c.gate.Stopped().Error() // on disk with the first write, for the life after a crash
	return c.resume(ctx, v)
}

// begin joins the present era, with a new key.
func (c *checker) begin(ctx context.Context, v *view) error {
	c.own.Registry, c.own.Era = v.id.Registry, v.id.Era()
	c.own.leaveKey()
	c.floors.save()
	return c.own.write(ctx, v.revision, false)
}

// proveLow lifts the marks to this worker's floors. One that an acknowledged write found below proves that the bucket
// went back.
func (c *checker) proveLow(ctx context.Context) error {
	return c.do(ctx, func() error {
		below, err := c.floors.lift(ctx)
		if below != "" {
			c.gate.WentBack(below)
		}
		return err
	})
}
