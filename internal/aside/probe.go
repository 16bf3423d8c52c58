package aside

import (
	"context"
	"errors"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A probe is what is known of the probes of the store.
type probe struct {
	began   time.Time // of the one under way; zero if none is
	giveUp  func()    // ends that one
	next    time.Time // none begins before
	ended   time.Time // when the last one ended
	failed  time.Time // when the last one failed
	tried   time.Time // when that one began
	retries *jitter.Backoff
}

// ErrNoProof is returned by [Config.Probe] if nothing speaks against the store, and nothing could be written to prove
// it.
var ErrNoProof = errors.New("nothing can be written to the store to prove that loads succeed")

var errNoAnswer = errors.New("a write to the store has no answer yet")

// probeIsDue reports whether a probe begins now: loads are in doubt, the last probe failed, or a report is owed.
func (w *Watch) probeIsDue(now time.Time) bool {
	if !w.probe.began.IsZero() {
		return false
	}
	if !now.Before(w.probe.next) && (w.store.isDoubted() || w.Trouble() != nil) {
		return true
	}
	return w.owesProof(now) && now.Sub(w.probe.ended) >= proofEvery
}

// takeProbe takes in how a probe ended.
func (w *Watch) takeProbe(err error, now time.Time) {
	began := w.probe.began
	if errors.Is(err, context.Canceled) {
		err = errNoAnswer
	}
	w.probe.began, w.probe.ended = time.Time{}, now
	if errors.Is(err, ErrNoProof) {
		w.store.reassured()
	}
	if err == nil {
		w.store.succeeded(now.Sub(began))
	}
	if err == nil || errors.Is(err, ErrNoProof) {
		w.probe.next, w.probe.retries = now.Add(w.moment(probeEvery, now, widestProbe)), nil
		w.setTrouble(nil)
		return
	}
	if w.probe.retries == nil {
		w.probe.retries = jitter.NewBackoff(probeEvery, probeSeldom)
	}
	w.probe.failed, w.probe.tried = now, began
	w.probe.next = began.Add(w.moment(w.probe.retries.NextBackOff(), now, widestProbe))
	w.setTrouble(err)
}

func (w *Watch) setTrouble(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = err
}

// unable returns why the store cannot be written: the last probe failed, or the present one takes too long, and no
// load has succeeded since.
func (w *Watch) unable(now time.Time) error {
	err, from := w.Trouble(), w.probe.failed
	if err == nil && w.hangs(now, w.store.patience()) {
		err, from = errNoAnswer, w.probe.began
	}
	if err != nil && w.store.wroteSince(from) {
		w.setTrouble(nil)
		err = nil
	}
	return err
}

// isWorse reports whether a probe that began after another worker wrote has failed, or takes too long.
func (w *Watch) isWorse(now time.Time) bool {
	p, wrote := &w.probe, w.others.wrote
	tooLong := max(leastPatience, w.store.patience()/2)
	return p.tried.After(wrote) || p.began.After(wrote) && w.hangs(now, tooLong)
}

// hangs reports whether a probe has had no answer for d.
func (w *Watch) hangs(now time.Time, d time.Duration) bool {
	return !w.probe.began.IsZero() && now.Sub(w.probe.began) >= d
}
