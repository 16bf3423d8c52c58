package witness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
)

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
		Lacks: i.Lacks,
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
// started later has not been seen, but met. A retired witness was last written before that state.
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
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.met {
		if r, there := all[id]; !there && must[id] == "" || there && r.Ended && r.Retired == "" {
			must[id] = cmp.Or(r.Name, "that began lately")
		}
	}
	return must, nil
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

// closeIncident closes an incident, unless another worker did.
func (w *Witness) closeIncident(ctx context.Context, id string) error {
	return w.closeBy(ctx, id, func(*incident) {})
}

// closeBy is closeIncident, with something more to note in it.
func (w *Witness) closeBy(ctx context.Context, id string, note func(*incident)) error {
	for {
		i, revision, err := w.readIncident(ctx)
		if err != nil || i.ID != id || !i.open() {
			return err
		}
		i.Closed = time.Now().UTC()
		note(&i)
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
		_, confirmed, err := w.cfg.Registry(ctx, true)
		if err == nil {
			err = w.closeBy(ctx, i.ID, func(i *incident) { i.RaisedBy, i.Lacks = by, &confirmed })
		}
		if err != nil {
			return err
		}
		w.cfg.Log.Warn("an operator has raised all tags; segments are served again, and no tag is created on "+
			"first use until `natsid store confirm`", "incident", i.ID, "by", by)
	}
	now, _, err := w.readIncident(ctx)
	if err != nil || now.ID != i.ID || now.RaisedBy == 0 {
		return err
	}
	return w.retireUnanswered(ctx, now)
}

// ErrNotConfirmed is why no tag is made on first use.
var ErrNotConfirmed = fmt.Errorf("%w: the marks went back, and the bucket may lack tags that were in use: create "+
	"those, each with a start above all its IDs, then run `natsid store confirm`", segment.ErrUnknownTag)

// mayMake returns an error if no tag may be made on first use.
//
// Law: a tag that the bucket lacks begins at 1, so it must never have been loaded. Where an operator has raised all
// tags that the bucket has, since not all loads are known, only the operator knows which tags it lacks. Another
// incident does not change that, so it takes this over.
func (w *Witness) mayMake(ctx context.Context) error {
	i, _, err := w.readIncident(ctx)
	if err != nil || i.Lacks == nil {
		return err
	}
	_, confirmed, err := w.cfg.Registry(ctx, true)
	if err == nil && confirmed.Equal(*i.Lacks) {
		err = ErrNotConfirmed
	}
	return err
}
