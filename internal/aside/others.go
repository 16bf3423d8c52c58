package aside

import (
	"encoding/json"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// Others is what is known of the other workers, and what was promised to them.
type others struct {
	until time.Time // the last report counts until then
	by    string    // the process that sent it; "" if it took it back
	name  string    // of its worker
	wrote time.Time // when a reported write began: a probe from after it that fails shows that the own store is worse
	since time.Time // a report of a write that began before does not count

	ask     time.Time // when to ask next; zero if there is nothing to ask
	retries *jitter.Backoff

	asked time.Time // when another worker asked
	owes  time.Time // when a report is due; zero if none is
	again time.Time // when another one asked after that; zero if none did
	stays time.Time // this worker has promised to stay until then

	crowd crowd
}

// A crowd is workers that speak at once although each waits for a moment to hear another: messages are late, as where
// hundreds of workers start on a busy machine. Each message goes to all, and each probe is a write, so the moments grow
// until few speak, and few probe.
type crowd struct {
	began time.Time // of the second in which messages are counted
	heard int       // messages in it
	last  time.Time // when there were too many
	width int       // of the moments, in powers of 2
}

const (
	crowded  = 8                // messages in a second are too many
	calmsIn  = 10 * time.Second // the moments shrink to half in this time
	maxWidth = 6
	// A worker whose probe failed is not ready until the next one.
	widestProbe = 2
)

// hear counts a message.
func (c *crowd) hear(now time.Time) {
	if now.Sub(c.began) >= time.Second {
		c.began, c.heard = now, 0
	}
	if c.heard++; c.heard == crowded {
		c.width, c.last = min(c.widthAt(now)+1, maxWidth), now
	}
}

func (c *crowd) widthAt(now time.Time) int { return max(0, c.width-int(now.Sub(c.last)/calmsIn)) }

// moment returns the time d among few workers, and longer in a crowd, by so many powers of 2 at most.
func (w *Watch) moment(d time.Duration, now time.Time, most int) time.Duration {
	return d << min(w.others.crowd.widthAt(now), most)
}

// wonders reports whether it is time to ask the others: the store cannot be written, or half of that time has passed.
func (w *Watch) wonders(now time.Time) bool {
	return w.unable(now) != nil || w.hangs(now, w.store.patience()/2)
}

// ask asks the others while there is a reason to. Of workers in trouble, the first to ask spares the others.
func (w *Watch) ask(now time.Time) {
	o := &w.others
	switch {
	case !w.wonders(now):
		o.ask, o.retries = time.Time{}, nil
	case o.ask.IsZero():
		o.ask = now.Add(w.cfg.Jitter(w.moment(spread, now, maxWidth)))
		o.since, o.until = now, time.Time{} // a write from before shows nothing now
	case !now.Before(o.ask):
		w.say(message{Says: asks, To: o.by})
		if o.retries == nil {
			o.retries = jitter.NewBackoff(askEvery, askSeldom)
		}
		o.ask = now.Add(o.retries.NextBackOff())
	}
}

// take takes in what another worker said.
func (w *Watch) take(m message, now time.Time) {
	o := &w.others
	o.crowd.hear(now)
	switch m.Says {
	case asks:
		if !o.ask.IsZero() && o.ask.Before(now.Add(askEvery/2)) {
			o.ask = now.Add(w.pause(now)) // this worker hears the answer, too
		}
		switch {
		case o.owes.IsZero():
			o.asked, o.owes = now, now.Add(w.delay(m, now))
		case now.Before(o.owes):
			o.asked = now // one report answers both
		default:
			o.again = now
		}
	case can:
		began := m.began(now)
		if began.Before(o.since) {
			return
		}
		// A probe may take longer to fail than the next report takes to arrive, so the write of this one replaces the
		// write of the one before only once a probe has followed that.
		if !now.Before(o.until) || w.probe.tried.After(o.wrote) {
			o.wrote = began
		}
		o.until, o.by, o.name = now.Add(relyFor), m.Process, m.Instance
		o.retries = nil
		if !began.Before(o.asked) {
			w.answered(began, now) // one report is enough
		}
		if !o.ask.IsZero() {
			o.ask = now.Add(w.pause(now))
		}
	case goes:
		if m.Process == o.by {
			o.by = ""
			if gone := now.Add(goneAfter); gone.Before(o.until) {
				o.until = gone
			}
			o.ask = now
		}
	}
}

// pause returns the time between two questions.
func (w *Watch) pause(now time.Time) time.Duration {
	return askEvery*3/4 + w.cfg.Jitter(w.moment(askEvery/2, now, maxWidth))
}

// delay returns how long a worker waits before it answers a question, so that it may hear another answer. The worker
// that reported last does not wait.
func (w *Watch) delay(m message, now time.Time) time.Duration {
	switch m.To {
	case w.cfg.Process:
		return 0
	case "":
		return w.cfg.Jitter(w.moment(2*spread, now, maxWidth))
	}
	return 3*spread + w.cfg.Jitter(w.moment(2*spread, now, maxWidth))
}

// owesProof reports whether a report is due for which this worker must write first.
func (w *Watch) owesProof(now time.Time) bool {
	o := &w.others
	return !o.owes.IsZero() && !now.Before(o.owes) && !w.store.provedSince(o.asked)
}

// report answers a question that is due, and takes the promise back if the worker leaves for another reason.
func (w *Watch) report(now time.Time) {
	o, serves := &w.others, w.state == Serving && w.cfg.Serves()
	if !serves {
		w.takeBack()
	}
	switch {
	case o.owes.IsZero() || now.Before(o.owes):
	case !serves || w.unable(now) != nil || now.Sub(o.owes) > relyFor:
		o.owes, o.again = time.Time{}, time.Time{}
	case w.store.provedSince(o.asked):
		o.stays = now.Add(stayFor)
		age := w.store.age(now)
		w.say(message{Says: can, Age: uint32((age + time.Millisecond - 1) / time.Millisecond)})
		w.answered(now.Add(-age), now)
	}
}

// answered notes that a write which began then was reported. Who asked after that is owed another report.
func (w *Watch) answered(began, now time.Time) {
	o := &w.others
	o.owes = time.Time{}
	if began.Before(o.again) {
		o.asked, o.owes = o.again, now
	}
	o.again = time.Time{}
}

// takeBack takes the promise back.
func (w *Watch) takeBack() {
	if time.Now().Before(w.others.stays) {
		w.others.stays = time.Time{}
		w.say(message{Says: goes})
	}
}

// say tells all workers a message.
func (w *Watch) say(m message) {
	m.Version, m.Registry, m.Kind = version, w.cfg.Registry(), w.cfg.Kind
	m.Process, m.Instance = w.cfg.Process, w.cfg.Name()
	body, err := json.Marshal(m)
	if err == nil {
		err = w.cfg.Announce(body)
	}
	if err != nil {
		w.cfg.Log.Debug("the other workers were not told", "what", m.Says, "error", err)
	}
}
