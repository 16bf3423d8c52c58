package witness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/jitter"
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
	return false, w.closeIncident(ctx, i.ID) // seen at the next try
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
		w.orphan, w.repaired = false, true
		clear(w.seen)
	}
	return closed, nil
}

// answer lifts all marks to this worker's floors, names the witnesses that it knows of, and answers the incident.
//
// Law: an orphan does not know what the process before it loaded after the restored state, unless that state has a
// witness of the present life: that process had ended by then. Only a write that replaces an older witness shows that,
// so an orphan writes before it says what it does not know; another proof may have come first.
func (w *Witness) answer(ctx context.Context, i incident) error {
	if w.revision == 0 || w.orphan { // no check got as far
		if err := w.write(ctx, "", false); err != nil {
			return err
		}
	}
	w.succeed(i)
	if err := w.addMust(ctx, i); err != nil {
		return err
	}
	if err := w.liftAll(ctx, true); err != nil {
		return err
	}
	switch {
	case w.memory.Forgot():
		w.gap = "more tags were deleted than it remembers, and it does not know any more how far it had loaded them"
	case w.orphan && w.gap == "":
		w.gap = lostWithProcess
	}
	w.owes = ""
	if err := w.write(ctx, i.ID, false); err != nil || w.owes == "" {
		return err
	}
	w.owes = "" // its own witness showed it only now, and the gap, which the answer lacks
	return w.write(ctx, i.ID, false)
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
