package lineage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/segment"
)

// An Operator resumes a stopped registry: see [Operator.Look].
//
// Law: it raises nothing before each worker has stopped that did not know of the incident. A load needs a check of the
// last 3 s and an answer within the write timeout, so it waits for longer than both, from when it first read the
// incident, by its own clock. What a slower load reserves is no longer used.
type Operator struct {
	Bucket Bucket
	Tags   Tags
	Kind   string // of an identity that is missing
	Name   string // for people
	Now    func() time.Time
	// Announce sends a notice to all workers, so that each checks at once; nil sends none.
	Announce func(notice []byte) error
	// Step is that of tags which the bucket lacks and a plan names; 0 is 1.
	Step int64
	// Limit is the highest mark that a tag can have and still give an ID; 0 is that of int64.
	Limit int64
}

// Settling is how long an operator waits after it first read an incident.
const Settling = fresh + writeTimeout + time.Second

// A Case is what an operator sees of a registry.
type Case struct {
	Identity Identity
	Missing  error            // why there is no identity to use
	Unfit    error            // settings under which entries can vanish: nothing is resumed while they stand
	Seen     time.Time        // when this operator first read the incident
	Marks    map[string]int64 // by tag
	Planned  map[string]int64 // ends of the plan of the identity, by tag
	Workers  []Worker

	created  time.Time
	revision uint64
}

// A Worker is one that has an own key in the bucket.
type Worker struct {
	Name   string
	Last   time.Time // write of its own key, by its clock
	Joined bool      // it has stopped for the open incident
	Ended  bool      // it stopped cleanly
}

var (
	// ErrChanged is returned when a worker or another operator has changed the incident or its plan: look again.
	ErrChanged = errors.New("lineage: a worker or another operator has changed the incident; look again")
	// ErrNoPlan is returned where nothing was planned yet.
	ErrNoPlan = errors.New("lineage: nothing was planned for the incident")
	// ErrNoIncident is returned where the registry is not stopped.
	ErrNoIncident = errors.New("lineage: the registry is not stopped")
)

// Look reads the registry. before is what this operator saw last, nil at first.
func (o *Operator) Look(ctx context.Context, before *Case) (c Case, err error) {
	stream, unfit, err := describe(ctx, o.Bucket) // first, so that End notices a restore from now on
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
	if before != nil && c.Identity.Incident != nil && before.Identity.open() == c.Identity.open() {
		c.Seen = before.Seen
	}
	if c.Marks, err = marksOf(ctx, o.Tags); err != nil {
		return c, err
	}
	if c.Workers, err = o.workers(ctx, c.Identity); err != nil {
		return c, err
	}
	if p := c.Identity.Plan; p != nil {
		parts, err := p.parts(ctx, o.Bucket)
		if err != nil {
			return c, err
		}
		raises, _ := p.read(parts) // a plan that is gone was never raised from, or the marks show it
		c.Planned = endsOf(raises)
	}
	return c, nil
}

func (o *Operator) workers(ctx context.Context, id Identity) (all []Worker, err error) {
	entries, err := o.Bucket.AllOwn(ctx, ownPrefix)
	if err != nil {
		return nil, fmt.Errorf("lineage: the own keys of workers cannot be listed: %w", err)
	}
	for _, e := range entries {
		k, err := decodeOwn(e.Value)
		if err != nil || k.Name == "" {
			continue
		}
		all = append(all, Worker{k.Name, k.Time, k.Incident != "" && k.Incident == id.open(), k.Ended})
	}
	slices.SortFunc(all, func(a, b Worker) int { return b.Last.Compare(a.Last) })
	return all, nil
}

// Declare opens an incident on the operator's word, though one may be open: each declared restore is one of its own.
func (o *Operator) Declare(ctx context.Context, c *Case, why string) error {
	next := c.Identity
	if c.Missing != nil {
		next = Found(o.Kind, c.created)
		next.Eras = nil
	}
	in := Incident{ID: newID(), Cause: Declared, Opened: o.Now().UTC()}
	if open := next.Incident; open != nil {
		in.forget(next, append(slices.Clone(open.Forgotten), open.ID)...)
	}
	in.addProver(Prover{Name: o.Name, Why: why, At: o.Now().UTC()})
	next.Incident = &in
	return o.put(ctx, c, next)
}

// put replaces the identity by compare-and-set.
func (o *Operator) put(ctx context.Context, c *Case, next Identity) error {
	revision, err := putIdentity(ctx, o.Bucket, next, c.revision)
	if errors.Is(err, errNewerRead) {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	c.Identity, c.Missing, c.revision = next, nil, revision
	return o.announce(next)
}

// announce makes workers check that know another state: until then one may issue what it has in memory.
func (o *Operator) announce(id Identity) error {
	if o.Announce == nil {
		return nil
	}
	n := Notice{
		Registry: id.Registry, Era: id.Era(), Incident: id.open(), Out: id.Out, Made: id.Made, Instance: o.Name,
		Process: newID(),
	}
	if err := o.Announce(encode(n)); err != nil {
		return fmt.Errorf("lineage: workers cannot be told of the incident: %w", err)
	}
	return nil
}

// Wait returns how long this operator has to wait before it plans.
func (o *Operator) Wait(c Case) time.Duration { return max(0, Settling-o.Now().Sub(c.Seen)) }

// Raises returns the raises to the given marks, and never below what was planned for this incident before. It returns
// an error that names the tags which cannot have such a mark.
func (o *Operator) Raises(c Case, to map[string]int64) (raises []Raise, err error) {
	ends := maps.Clone(c.Planned)
	if ends == nil {
		ends = make(map[string]int64)
	}
	for tag, end := range to {
		ends[tag] = max(ends[tag], end)
	}
	limit := o.Limit
	if limit == 0 {
		limit = math.MaxInt64 - 1
	}
	var over []string
	for _, tag := range slices.Sorted(maps.Keys(ends)) {
		r := Raise{tag, c.Marks[tag], max(ends[tag], c.Marks[tag])}
		if r.To > max(limit, r.From) { // one that is used up already stays so
			over = append(over, fmt.Sprintf("%s from %d to %d, at most %d", tag, r.From, r.To, limit))
		}
		raises = append(raises, r)
	}
	if len(over) > 0 {
		return nil, fmt.Errorf("these tags cannot be raised so far: %s; nothing was raised: choose a smaller distance "+
			"that is still above all that was loaded, or delete tags that are not in use", strings.Join(over, "; "))
	}
	return raises, nil
}

// Plan writes a plan into the identity. Nothing is raised before it stands there: another operator, and each worker,
// finds it.
func (o *Operator) Plan(ctx context.Context, c *Case, raises []Raise) error {
	if err := o.mayRaise(*c); err != nil {
		return err
	}
	plan, parts := partsOf(raises)
	for _, e := range parts {
		if _, err := o.Bucket.Create(ctx, e.Key, e.Value); err != nil {
			return fmt.Errorf("lineage: the plan cannot be written: %w", err)
		}
	}
	next := c.Identity
	next.Plan = &plan
	return o.put(ctx, c, next)
}

func (o *Operator) mayRaise(c Case) error {
	switch {
	case c.Unfit != nil:
		return fmt.Errorf("correct the settings of the bucket first: %w", c.Unfit)
	case c.Missing != nil || c.Identity.Incident == nil:
		return ErrNoIncident
	case o.Wait(c) > 0: //mutant:wait
		return fmt.Errorf("lineage: workers may still use ranges for %v", o.Wait(c))
	}
	return nil
}

// Raise raises the marks of a plan, and calls done with how many are raised.
func (o *Operator) Raise(ctx context.Context, raises []Raise, done func(int)) error {
	floors := make(map[string]segment.Floor, len(raises))
	for n, r := range raises {
		if r.To > 1 {
			floors[r.Tag] = segment.Floor{End: r.To, Step: max(1, o.Step), Live: true}
		}
		if (n+1)%100 != 0 && n+1 != len(raises) {
			continue
		}
		_, err := liftAll(ctx, o.Tags, slices.Sorted(maps.Keys(floors)), floors)
		if err != nil {
			return err
		}
		clear(floors)
		done(n + 1)
	}
	return nil
}

// End ends the incident, by compare-and-set on the identity with the plan that was raised. Workers resume within
// seconds. confirmed says that the bucket lacks no tag that was in use.
func (o *Operator) End(ctx context.Context, c *Case, confirmed bool) error {
	if err := o.mayRaise(*c); err != nil {
		return err
	}
	state, err := o.Bucket.Look(ctx)
	switch {
	case err != nil:
		return err
	case !state.Created.Equal(c.created):
		return ErrChanged
	case c.Identity.Plan == nil:
		return ErrNoPlan
	}
	parts, err := c.Identity.Plan.parts(ctx, o.Bucket)
	if err != nil {
		return err
	}
	if _, err := c.Identity.Plan.read(parts); err != nil {
		return ErrChanged
	}
	next, in := c.Identity, c.Identity.Incident
	next.Eras = append(slices.Clone(next.Eras), in.Forgotten...) //mutant:chain
	next.Eras = append(next.Eras, in.ID)
	next.Incident, next.Created, next.Out = nil, c.created, ""
	next.Unconfirmed = !confirmed
	return o.put(ctx, c, next)
}

// Confirm says that the bucket lacks no tag that was in use, so that tags are made on first use again.
func (o *Operator) Confirm(ctx context.Context, c *Case) error {
	next := c.Identity
	next.Unconfirmed = false
	return o.put(ctx, c, next)
}

// far and loads are the factors of a distance, and hour is the record that a tag needs.
const (
	far   = 10
	loads = 10
	hour  = time.Hour
)

// ErrNoRecord is returned where no tag has a load on record, so that no distance can be proposed.
var ErrNoRecord = errors.New("lineage: no load is on record")

// Distance returns by how much each tag is raised at least: ten times what its highest pace on record gives in the time
// since the state that was found, and ten of its largest loads. A tag without an hour of record takes the highest pace
// and the largest load of any. It returns [ErrNoRecord] if none has a record.
//
// Its assumption is that no tag moved further than that, loads, raises by operators and earlier resumes counted.
func Distance(records map[string]segment.Record, since, now time.Time) (map[string]int64, error) {
	var highest float64
	var largest int64
	for _, r := range records {
		highest, largest = max(highest, r.PerSecond()), max(largest, r.Largest)
	}
	if largest == 0 && len(records) > 0 {
		return nil, ErrNoRecord
	}
	away := max(0, now.Sub(since).Seconds())
	distance := make(map[string]int64, len(records))
	for tag, r := range records {
		pace, load := r.PerSecond(), r.Largest
		if r.Since == 0 || since.Sub(time.UnixMilli(r.Since)) < hour {
			pace, load = highest, largest
		}
		distance[tag] = int64(min(far*pace*away+loads*float64(load), math.MaxInt64/4))
	}
	return distance, nil
}
