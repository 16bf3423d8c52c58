package witness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
)

// repair takes this worker through an open incident, until that is closed or ctx ends.
func (w *Witness) repair(ctx context.Context) {
	if w.enter(ctx) != nil {
		return
	}
	defer w.leave()
	r := repair{w: w, began: time.Now()}
	pauses := jitter.NewBackoff(tick/2, 5*tick)
	for {
		step, cancel := context.WithTimeout(ctx, w.cfg.Enough(checkRequests, max(checkTimeout, w.cfg.Poll)))
		closed, err := r.try(step)
		cancel()
		if closed || ctx.Err() != nil {
			return
		}
		pause := tick / 4
		if err != nil && !errors.Is(err, buckets.ErrRevision) { // another worker was faster
			pause = pauses.NextBackOff()
			w.cfg.Log.Warn("the marks went back, and their repair is not done yet; it is tried again", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// A repair is this worker's part in incidents, from the first proof until loads continue.
type repair struct {
	w        *Witness
	began    time.Time
	answered string // the incident for which this worker has answered
	tries    int
}

// othersLook is how many tries pass between two looks at all answers by a worker that did not open the incident: one
// look by each worker at each try would cost the square of the workers.
const othersLook = 12

// try does what is due, and reports whether the incident is closed.
func (r *repair) try(ctx context.Context) (closed bool, err error) {
	w := r.w
	i, err := w.openIncident(ctx)
	if err != nil {
		return false, err
	}
	if !i.open() {
		return w.ended(ctx, i)
	}
	w.enterEra(i.ID)
	if r.answered != i.ID {
		if err := w.answer(ctx, i); err != nil {
			return false, err
		}
		r.answered = i.ID
	}
	if r.tries++; i.By != w.cfg.Name() && r.tries%othersLook != 0 {
		return false, nil
	}
	w.announce(i.ID)
	why, mine, err := w.missing(ctx, i)
	if err != nil {
		return false, err
	}
	if !mine {
		r.answered = "" // the bucket went back again
	}
	if why != "" {
		w.refuse(why, time.Since(r.began))
		return false, nil
	}
	if time.Since(r.began) < settling {
		return false, nil
	}
	return false, w.closeIncident(ctx, i.ID, 0) // seen at the next try
}

// lostIncident is the gap of an answer to an incident that takes the place of a damaged one.
const lostIncident = "the entry of the last repair was damaged, and whose answers it still missed is not known"

// readIncident returns the last incident, and its revision.
func (w *Witness) readIncident(ctx context.Context) (i incident, revision uint64, err error) {
	e, err := w.cfg.Bucket.Get(ctx, incidentKey)
	if errors.Is(err, buckets.ErrNoKey) {
		return incident{}, 0, nil
	}
	if err != nil {
		return incident{}, 0, fmt.Errorf("witness: the entry %s cannot be read: %w", incidentKey, err)
	}
	i, err = decodeIncident(e.Value)
	return i, e.Revision, err
}

func (w *Witness) writeIncident(ctx context.Context, i incident, last uint64) (err error) {
	if last == 0 {
		_, err = w.cfg.Bucket.Create(ctx, incidentKey, encode(i))
	} else {
		_, err = w.cfg.Bucket.Update(ctx, incidentKey, encode(i), last)
	}
	if err != nil {
		return fmt.Errorf("witness: the entry %s cannot be written: %w", incidentKey, err)
	}
	return nil
}

// openIncident returns the incident to repair, and opens one if this worker has a proof for which there is none. An
// open incident in the bucket may be one of the restored state, with answers of that time. So a worker with a proof
// joins only one that it knows of by a worker's message or by an earlier reading.
func (w *Witness) openIncident(ctx context.Context) (incident, error) {
	i, revision, err := w.readIncident(ctx)
	if errors.Is(err, errDamaged) {
		w.owe(err.Error(), lostIncident)
		err = nil
	}
	if err != nil {
		return i, err
	}
	proof, joined := w.join(i)
	if proof == "" || joined {
		return i, nil
	}
	must, err := w.mustAnswer(ctx)
	if err != nil {
		return i, err
	}
	i = incident{
		Version: version, ID: newToken(), Opened: time.Now().UTC(), By: w.cfg.Name(), Why: proof, Must: must,
	}
	if err := w.writeIncident(ctx, i, revision); err != nil {
		return i, err
	}
	w.enterEra(i.ID)
	w.mu.Lock()
	w.incident, w.proof = i.ID, ""
	w.mu.Unlock()
	w.announce(i.ID)
	w.raise(ctx, i)
	return i, nil
}

// join takes part in an incident if that is possible without opening one. It returns the proof that this worker has.
func (w *Witness) join(i incident) (proof string, joined bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	proof = w.proof
	if joined = i.open() && (proof == "" || i.ID == w.incident); joined {
		w.incident, w.proof = i.ID, ""
	}
	return proof, joined
}

// ended ends the repair where the bucket has no open incident. If it is not the one that this worker was in, the bucket
// may have gone back again: then a write of the witness shows that.
func (w *Witness) ended(ctx context.Context, i incident) (closed bool, err error) {
	w.mu.Lock()
	mine := i.ID == w.incident
	w.mu.Unlock()
	if !mine {
		if err := w.write(ctx, "", false); err != nil {
			return false, err
		}
	}
	if closed = w.resume(i); closed {
		w.forgetOthers()
	}
	return closed, nil
}

// raise raises the alarm for an incident, with what this worker knows of the tags.
func (w *Witness) raise(ctx context.Context, i incident) {
	text := "none"
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Enough(checkRequests, checkTimeout))
	defer cancel()
	low, err := w.low(ctx)
	if err != nil {
		text = err.Error()
	} else if len(low) > 0 {
		text = lows(low)
	}
	w.cfg.Alarm(fmt.Sprintf("the marks in JetStream went back: %s. Segments are not served until all workers have "+
		"raised the marks above what they loaded. Tags whose marks were below what this worker loaded: %s. Incident %s",
		i.Why, text, i.ID))
}

// mustAnswer returns the witnesses that may have loaded after the state that the bucket is in: all but those that had
// stopped cleanly in it, and still had when this process last saw them in the bucket before it went back.
//
// Law: a witness that has ended says nothing about what its worker did after the restored state. A backup that is made
// while all workers are stopped has only such witnesses. What an earlier process saw may be as old: a worker that was
// started later has not been seen. A retired witness was last written before that state.
func (w *Witness) mustAnswer(ctx context.Context) (map[string]string, error) {
	all, err := w.witnesses(ctx)
	if err != nil {
		return nil, err
	}
	must := make(map[string]string, len(all))
	for id, r := range all {
		if r.Retired == "" && (!r.Ended || !w.seen[id] || w.known[id].Counter > r.Counter) {
			must[id] = r.Name
		}
	}
	for id, r := range w.known {
		if _, there := all[id]; !there {
			must[id] = r.Name
		}
	}
	return must, nil
}

func (w *Witness) witnesses(ctx context.Context) (map[string]record, error) {
	entries, err := w.cfg.Bucket.AllOwn(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("witness: the witnesses cannot be listed: %w", err)
	}
	all := make(map[string]record, len(entries))
	for key, e := range entries {
		id := strings.TrimPrefix(key, prefix)
		r, err := decodeRecord(e.Value)
		if errors.Is(err, errDamaged) { // its worker may have loaded, and has answered nothing
			r, err = record{Name: "of the damaged entry " + key}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w (key %s)", err, key)
		}
		all[id] = r
	}
	return all, nil
}

// answer lifts all marks to this worker's floors, names the witnesses that it knows of, and answers the incident.
func (w *Witness) answer(ctx context.Context, i incident) error {
	if err := w.addMust(ctx, i); err != nil {
		return err
	}
	if err := w.liftAll(ctx, true); err != nil {
		return err
	}
	if w.owes = ""; w.memory.Forgot() {
		w.gap = "more tags were deleted than it remembers, and it does not know any more how far it had loaded them"
	}
	return w.write(ctx, i.ID, false)
}

// addMust adds the witnesses that this worker knows to those that must answer.
func (w *Witness) addMust(ctx context.Context, i incident) error {
	must, err := w.mustAnswer(ctx)
	if err != nil {
		return err
	}
	for {
		now, revision, err := w.readIncident(ctx)
		if err != nil || now.ID != i.ID || !now.open() {
			return err // the next try sees which incident there is
		}
		before := len(now.Must)
		if now.Must == nil {
			now.Must = map[string]string{}
		}
		for id, name := range must {
			if _, there := now.Must[id]; !there {
				now.Must[id] = name
			}
		}
		if len(now.Must) == before {
			return nil
		}
		if err := w.writeIncident(ctx, now, revision); !errors.Is(err, buckets.ErrRevision) {
			return err
		}
	}
}

// lifts is how many marks are lifted at once.
const lifts = 8

// A lowTag is a tag whose mark, 0 if it is missing, is below this worker's floor.
type lowTag struct {
	name  string
	mark  int64
	floor segment.Floor
}

// low returns the tags whose marks are below this worker's floors, in order.
func (w *Witness) low(ctx context.Context) (low []lowTag, err error) {
	floors := w.memory.Floors()
	marks := make(map[string]int64)
	for after, more := "", true; more; {
		page, err := w.cfg.Store.List(ctx, after, 1000)
		if err != nil {
			return nil, fmt.Errorf("witness: the marks cannot be listed: %w", err)
		}
		for _, t := range page {
			after, marks[t.Name] = t.Name, t.MaxID
		}
		more = len(page) > 0
	}
	for _, tag := range slices.Sorted(maps.Keys(floors)) {
		if f := floors[tag]; f.End > marks[tag] {
			low = append(low, lowTag{tag, marks[tag], f})
		}
	}
	return low, nil
}

// lows names some tags and how far they went back, for an operator.
func lows(low []lowTag) string {
	const some = 10
	var texts []string
	for _, l := range low[:min(some, len(low))] {
		texts = append(texts, fmt.Sprintf("%s at %d, loaded up to %d", l.name, l.mark, l.floor.End))
	}
	if len(low) > some {
		texts = append(texts, fmt.Sprintf("and %d more", len(low)-some))
	}
	return strings.Join(texts, "; ")
}

// liftAll lifts every mark that is below this worker's floor. With live, missing tags that are in memory are served on;
// otherwise they wait for their operator.
func (w *Witness) liftAll(ctx context.Context, live bool) error {
	low, err := w.low(ctx)
	if err != nil || len(low) == 0 {
		return err
	}
	w.cfg.Log.Warn("marks are below what this worker loaded; they are raised to it", "count", len(low),
		"tags", lows(low))
	return w.liftThese(ctx, low, live)
}

func (w *Witness) liftThese(ctx context.Context, low []lowTag, live bool) error {
	var workers sync.WaitGroup
	faults := make([]error, lifts)
	for n := range lifts {
		workers.Go(func() {
			for k := n; k < len(low) && faults[n] == nil; k += lifts {
				low[k].floor.Live = low[k].floor.Live && live
				faults[n] = w.cfg.Store.Lift(ctx, low[k].name, low[k].floor)
			}
		})
	}
	workers.Wait()
	return errors.Join(faults...)
}

// missing returns whose answer is missing, or has a gap; "" if loads may continue. It reports whether this worker's own
// answer is there.
func (w *Witness) missing(ctx context.Context, i incident) (why string, mine bool, err error) {
	all, err := w.witnesses(ctx)
	if err != nil {
		return "", false, err
	}
	if len(i.Must) == 0 {
		i.Must = map[string]string{w.journal.Witness: w.cfg.Name()}
	}
	var faults []string
	for _, id := range slices.Sorted(maps.Keys(i.Must)) {
		r := all[id]
		switch {
		case r.Answer != i.ID:
			faults = append(faults, fmt.Sprintf("worker %s (witness %s) does not answer", i.Must[id], id))
		case r.Gap != "":
			faults = append(faults, fmt.Sprintf("worker %s: %s", r.Name, r.Gap))
		}
	}
	return strings.Join(faults, "; "), all[w.journal.Witness].Answer == i.ID, nil
}

// refuse says why segments stay refused, and what an operator can do, once an answer takes too long.
func (w *Witness) refuse(why string, since time.Duration) {
	if since < patience {
		return
	}
	err := fmt.Errorf("%w, and what was loaded since is not known: %s. Start those workers if they are down, and kill "+
		"those that hang; or run `natsid tag raise --all --by N`, N above all IDs issued of any tag since the backup",
		ErrWentBack, why)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg.Refuse(err)
	w.memory.Hold(err)
}

// closeIncident closes an incident, unless another worker did. raisedBy is not 0 if an operator raised all tags.
func (w *Witness) closeIncident(ctx context.Context, id string, raisedBy int64) error {
	for {
		i, revision, err := w.readIncident(ctx)
		if err != nil || i.ID != id || !i.open() {
			return err
		}
		i.Closed, i.RaisedBy = time.Now().UTC(), raisedBy
		if err = w.writeIncident(ctx, i, revision); !errors.Is(err, buckets.ErrRevision) {
			return err
		}
	}
}

// Raised says that an operator has raised all tags by this many IDs: that closes the incident that is open, and retires
// the witnesses that have not answered it. Called again, it does what was left undone.
func (w *Witness) Raised(ctx context.Context, by int64) error {
	i, _, err := w.readIncident(ctx)
	if err != nil {
		return err
	}
	if i.open() {
		if err := w.closeIncident(ctx, i.ID, by); err != nil {
			return err
		}
		w.cfg.Log.Warn("an operator has raised all tags; segments are served again", "incident", i.ID, "by", by)
	}
	now, _, err := w.readIncident(ctx)
	if err != nil || now.ID != i.ID || now.RaisedBy == 0 {
		return err
	}
	return w.retireUnanswered(ctx, now)
}

// resume ends the holding of loads, since the incident is closed. It reports false if there is another proof.
func (w *Witness) resume(i incident) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proof != "" {
		return false
	}
	if w.closed = w.incident; w.closed == "" {
		w.closed = i.ID
	}
	w.held, w.incident, w.gap = false, "", ""
	w.memory.Release()
	if !w.other {
		w.cfg.Allow()
	}
	w.cfg.Log.Info("the marks are repaired; segments are served again", "incident", i.ID)
	return true
}
