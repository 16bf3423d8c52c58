package witness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// check writes the witness and looks for an incident of other workers. The caller has entered.
func (w *Witness) check(ctx context.Context) error {
	err := w.checkOnce(ctx)
	newer := errors.Is(err, errNewer)
	if newer && !w.newer {
		w.cfg.NewerAlarm(err.Error() + "; until then it loads no ranges")
	}
	w.newer = newer
	return err
}

func (w *Witness) checkOnce(ctx context.Context) error {
	began, doubts := time.Now(), w.doubtsNow()
	reconnects := w.cfg.Reconnects()
	w.greetAgain(reconnects)
	if err := w.write(ctx, "", false); err != nil {
		return err
	}
	if err := w.liftStrange(ctx); err != nil {
		return err
	}
	i, _, err := w.readIncident(ctx)
	if errors.Is(err, errDamaged) {
		w.owe(err.Error(), lostIncident)
	}
	if err != nil {
		return err
	}
	w.enterEra(i.ID)
	w.succeed(i)
	if err := w.greet(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.open() {
		w.incident = i.ID
		w.holdLocked()
		w.signal()
	}
	if w.held {
		return w.heldError()
	}
	w.gap, w.sound = "", true
	if w.doubts == doubts {
		w.checked, w.reconnects = began, reconnects
	}
	return nil
}

// enterEra notes the last incident. What was announced before it counts no more.
func (w *Witness) enterEra(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.era != id {
		w.era, w.highest, w.before, w.earlier = id, 0, 0, 0
	}
}

// greetAgain makes the worker ask the others after a reconnect: they may have loaded just before, and not have said so.
func (w *Witness) greetAgain(reconnects uint64) {
	if w.asked != reconnects {
		w.greeted, w.greetUntil, w.asked = false, time.Time{}, reconnects
	}
}

func (w *Witness) doubtsNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubts
}

// greet asks the workers that have not stopped, as their witnesses say, for the highest revision that they know. One
// that has just begun knows none: without an answer it could load first from a bucket that went back.
//
// Whoever hears the question has met this worker, and demands its answer in an incident: see met.
//
// Law: a worker loads nothing after another one has told it that the bucket went back, and one that knows that itself
// waits for nobody, but opens an incident.
func (w *Witness) greet(ctx context.Context) error {
	if w.greeted || w.isHeld() {
		return nil
	}
	absent, err := w.others(ctx)
	if err != nil {
		return err
	}
	if w.greetUntil.IsZero() {
		w.greetUntil = time.Now().Add(w.cfg.Enough(2, greeting))
	}
	limited, cancel := context.WithDeadline(ctx, w.greetUntil)
	defer cancel()
	if len(absent) > 0 {
		back := false
		w.cfg.Ask(limited, w.message(""), func(reply []byte) (enough bool) {
			back = back || w.saysBack(reply)
			delete(absent, w.take(reply))
			return len(absent) == 0 || back || w.isHeld()
		})
		if back && !w.isHeld() {
			w.greetUntil = time.Time{}
			return errBack
		}
		w.orphan = w.orphan && len(absent) > 0 // who lived through that time found the bucket in order
	}
	w.greeted = len(absent) == 0 || ctx.Err() == nil
	if w.greeted {
		w.retireSilent(ctx, absent)
	}
	return ctx.Err()
}

var errBack = errors.New("witness: another worker has just found that the marks went back")

// others returns the witnesses of other workers that have not stopped cleanly.
func (w *Witness) others(ctx context.Context) (map[string]record, error) {
	all, err := w.witnesses(ctx)
	if err != nil {
		return nil, err
	}
	w.listed = all
	others := make(map[string]record)
	for id, r := range all {
		if id != w.journal.Witness && !r.Ended {
			others[id] = r
		}
	}
	return others, nil
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
