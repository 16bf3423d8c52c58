package oneregistry

import (
	"context"
	"fmt"
	"time"
)

// meet looks at a notice of another registry.
func (w *Watch) meet(ctx context.Context, n Notice) {
	own, verdict := w.mine()
	o := w.note(n)
	switch {
	case verdict.Yields != "":
		w.takeBack(ctx, own, verdict, n)
	case w.misplaced(): // --registry names another one: this worker does not serve
	case n.serves(), own.Is(n.Yields) && !n.Merged, o.hold != nil:
		w.check(ctx, o)
	}
}

// note keeps what was heard of another registry.
func (w *Watch) note(n Notice) *other {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.others[n.ID]
	if o == nil {
		o = &other{}
		w.others[n.ID] = o
	}
	if n.Workers == 0 {
		n.Workers = o.notice.Workers // who starts has not counted
	}
	o.notice, o.heard = n, time.Now()
	return o
}

// takeBack ends what can only come of two decisions at one moment: both registries have yielded to each other, and each
// has merged its marks into the other. One of them serves again.
func (w *Watch) takeBack(ctx context.Context, own Notice, v Verdict, n Notice) {
	crossed := n.Is(v.Yields) && own.Is(n.Yields) && v.Merged && n.Merged
	if !crossed || v.Ordered || own.ID > n.ID {
		return
	}
	w.decide(ctx, Verdict{Revision: v.Revision})
}

// check finds out whether a registry that was heard is another one, and what state it is in, and acts upon it. The own
// registry is read first, and the other one's answer is read afresh after that: so if both are one registry that was
// made again, both see the new one.
func (w *Watch) check(ctx context.Context, o *other) {
	if now := time.Now(); now.Sub(o.checked) < retryAfter {
		return
	} else {
		o.checked = now
	}
	if !w.reread(ctx, counted) {
		w.unread(o)
		return
	}
	o.unread = 0
	own, verdict := w.mine()
	r, err := w.call(ctx, o.notice.ID, call{Op: opState})
	switch {
	case err == nil && !own.Differs(r.Notice):
		w.drop(o)
		return
	case err != nil:
		w.unanswered(o, own, err)
		return
	case verdict.Yields != "" || !r.Notice.Fresh:
		return
	}
	o = w.note(r.Notice)
	o.checked, o.unanswered = time.Now(), 0
	w.act(ctx, o, own, r.Notice)
}

// unansweredMost is how many announcements in a row may come from workers that cannot be called: a registry that was
// made again is announced under its old name once more.
const unansweredMost = 3

// unanswered deals with a registry that announces itself, and whose workers cannot be called. Nothing can be merged
// then. The one that would yield stops while the other is heard.
func (w *Watch) unanswered(o *other, own Notice, why error) {
	if o.unanswered++; o.unanswered < unansweredMost || o.hold != nil {
		w.cfg.Log.Info("another registry was announced, but none of its workers answers", "registry", o.notice.ID,
			"error", why)
		return
	}
	n := o.notice
	w.alarm("unanswered "+n.ID, "registry %v announces itself beside %v, on which this worker rests, but none of its "+
		"workers can be called: let the link and the permissions carry all subjects of registries; the one with fewer "+
		"workers issues nothing meanwhile, and marks are not merged", n, own)
	if !own.Outranks(n) {
		w.hold(o, true, fmt.Errorf("registry %s serves the same subjects, and cannot be called", n.ID))
	}
}

// unread deals with another registry while this worker's own cannot be read. This worker loads nothing then, but has
// IDs in memory and a window of ticks, which the other one may give as well; and the other one does not wait for a
// registry that cannot say what it is. So this worker stops, once it is clear that the own one was not made again just
// now, as after a wipe.
func (w *Watch) unread(o *other) {
	if o.unread++; o.unread < unansweredMost || o.hold != nil {
		return
	}
	own, _ := w.mine()
	w.alarm("unread "+o.notice.ID, "registry %v serves the same subjects, and this worker rests on %v, which "+
		"cannot be read: this worker serves nothing until it can, as both may give the same IDs; "+
		"bring its JetStream back, or separate the two", o.notice, own)
	w.hold(o, true, fmt.Errorf("registry %s serves the same subjects, and the registry of this worker cannot be read",
		o.notice.ID))
}

// drop forgets a registry that is none any more.
func (w *Watch) drop(o *other) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropLocked(o)
	w.settleLocked()
}

// act does what follows from two notices that were read just now: own is this registry's, n that of another one.
func (w *Watch) act(ctx context.Context, o *other, own, n Notice) {
	switch {
	case n.serves() && own.Outranks(n):
		w.hold(o, false, fmt.Errorf("registry %s serves the same subjects: this one stays, and waits until "+
			"the marks of the other are merged", n.ID))
		w.alarm(n.ID, "registry %v serves the same subjects; this worker rests on %v, which stays: the other one "+
			"yields once its marks are merged into this one; segments wait until then", n, own)
	case n.serves():
		w.hold(o, true, fmt.Errorf("registry %s serves the same subjects, and stays: this one yields", n.ID))
		w.alarm(n.ID, "registry %v serves the same subjects, and stays; this worker rests on %v, which yields and "+
			"serves no more: connect this worker to the NATS that has the other one, or see `natsid registry`", n, own)
		w.decide(ctx, Verdict{Yields: n.ID})
	case own.Is(n.Yields) && !n.Merged:
		w.hold(o, false, fmt.Errorf("the marks of registry %s, which has yielded, are not merged yet", n.ID))
	default:
		w.release(ctx, o)
	}
}

// hold stops segments, and with flakes snowflakes too, until the conflict with another registry is decided.
func (w *Watch) hold(o *other, flakes bool, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.hold, o.flakes = why, flakes
	w.settleLocked()
}

// release ends a hold. What other workers raised while the marks were merged is read first.
func (w *Watch) release(ctx context.Context, o *other) {
	if o.hold == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	if err := w.cfg.Home.Renew(ctx); err != nil {
		w.cfg.Log.Warn("the marks of another registry are merged, but the tags cannot be read; trying again",
			"registry", o.notice.ID, "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o.hold = nil
	w.settleLocked()
	w.cfg.Log.Info("another registry has yielded to this one, and its marks are merged", "registry", o.notice.ID)
}

// decide writes a verdict on the own registry, on top of the one that was read last, and obeys it. If that fails, what
// is held stays held, and the next check tries again.
func (w *Watch) decide(ctx context.Context, v Verdict) {
	_, before := w.mine()
	v.Revision, v.By, v.At = before.Revision, w.cfg.Instance(), time.Now().UTC()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := w.cfg.Home.Decide(ctx, v); err != nil {
		w.cfg.Log.Warn("the decision between two registries was not written; trying again", "error", err)
	}
	if w.reread(ctx, counted) {
		w.announce()
	}
}

// pending tries what is not done yet, and reports whether there was anything.
func (w *Watch) pending(ctx context.Context) (any bool) {
	for _, o := range w.undecided() {
		w.check(ctx, o)
		any = true
	}
	_, verdict := w.mine()
	switch {
	case verdict.Yields != "" && w.mergeDue():
		w.merge(ctx, verdict)
		return true
	case verdict.Yields == "" && w.mustRenew():
		w.renew(ctx)
		return true
	}
	return any
}

// undecided returns the registries because of which something is held, or may have to be.
func (w *Watch) undecided() (all []*other) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.others {
		if o.hold != nil || o.unread > 0 {
			all = append(all, o)
		}
	}
	return all
}

func (w *Watch) mustRenew() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renewing
}

// renewTimeout bounds a listing of all tags.
const renewTimeout = 30 * time.Second

// renew lets a registry that had yielded serve again, once this worker knows what was raised meanwhile.
func (w *Watch) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	if err := w.cfg.Home.Renew(ctx); err != nil {
		w.cfg.Log.Warn("the tags cannot be read, so segments are not served yet; trying again", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewing = false
	w.settleLocked()
}

// alarm reports an event once.
func (w *Watch) alarm(event, format string, args ...any) {
	w.mu.Lock()
	known := w.alarmed[event]
	w.alarmed[event] = true
	w.mu.Unlock()
	if !known {
		w.cfg.Alarm(event, fmt.Sprintf(format, args...))
	}
}
