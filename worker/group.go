package worker

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A worker leaves the queue group of snowflakes leaveAhead before its window ends, the time in which it may issue them.
// Otherwise it would have to refuse the last requests that NATS delivers.
const leaveAhead = 200 * time.Millisecond

var (
	// errNotBegun is the trouble of a mode until the NATS server has confirmed the mode's subscriptions.
	errNotBegun = errors.New("worker: not serving yet")
	errNoAnswer = errors.New("worker: the NATS server does not answer")
	errOverload = errors.New("worker: more requests arrive than it can answer in time; " +
		"callers learn at once that nobody serves them, or reach other workers: start more workers")
)

// A group has the queue subscriptions of one mode on one membership's connection. It has none while there is a
// [Reason], other than [Stopped], not to serve the mode: callers then reach other workers, or learn from NATS at once
// that there is none. Delivered requests are still answered. Only the goroutine of that connection uses a group, except
// for the field report.
type group struct {
	mode      Mode
	link      *link
	ping      *pinger
	rights    *rights
	endpoints []*endpoint
	// cannot returns why requests would fail now, nil if they would not; lack is the [Reason] for that. The parameter
	// up says whether the group is subscribed.
	cannot func(up bool) error
	lack   Reason
	only   *group // a group whose reasons count here, too; nil for none

	outs     []Out                // why the mode should not be served, by the last call of decide
	subs     []*nats.Subscription // one per endpoint; nil while the group is out
	draining []*nats.Subscription // former subscriptions, until their last request is handled
	known    proof                // once this ping is answered, the server knows subs
	isLogged bool                 // "serving" was logged
	strain

	report atomic.Pointer[report]
}

// A strain says how late a group answers. It has the overload that this causes, and the credit: how many requests the
// group's next subscriptions may receive.
type strain struct {
	lag      lag
	overload overload
	credit   credit
	leaveAt  time.Duration // the lag at which the group leaves
	joinAt   time.Duration // the lag below which the group joins again
}

// A report is the state of a group for other goroutines. It is replaced, never changed.
type report struct {
	outs    []Out
	trouble error         // why the mode is not served; nil while it is
	late    time.Duration // the lag
}

// publish stores a new report: why the mode is not served (nil if it is), and how late requests are answered.
func (g *group) publish(now time.Duration, trouble error) {
	g.report.Store(&report{g.outs, trouble, g.ping.waited(g.lag.of(now))})
}

func (g *group) isUp() bool { return g.subs != nil }

// decide returns all reasons, of the process and of this connection, why the mode should not be served. Only decide
// combines them.
func (g *group) decide() []Out {
	outs, now := g.link.Reasons.Of(g.mode), time.Now()
	if g.only != nil {
		outs = slices.Clone(g.only.outs)
	}
	if err := g.rights.refusal(g.mode); err != nil {
		outs = add(outs, Out{Rights, err, now})
	}
	if err := g.cannot(g.isUp()); err != nil {
		outs = add(outs, Out{g.lack, err, now})
	}
	if g.overload.on {
		outs = add(outs, Out{Overload, errOverload, now})
	}
	for i := range outs {
		if at := find(g.outs, outs[i].Reason); at >= 0 {
			outs[i].Since = g.outs[at].Since
		}
	}
	g.outs = outs
	return outs
}

// isOut reports whether the group should leave its queue group for the reasons outs. While the registry is stopped
// (until an operator resumes it), the group stays even without the control connection or a worker number (g.lack): to
// relay a request, or to answer 503, needs neither. A group of relays leaves for any reason.
func (g *group) isOut(outs []Out) bool {
	if g.mode == Relay || find(outs, Stopped) < 0 {
		return len(outs) > 0
	}
	return slices.ContainsFunc(outs, func(o Out) bool { return o.Reason != Stopped && o.Reason != g.lack })
}

// follow makes the group join or leave its queue group, as decide says. It returns why the mode is not served, nil if
// it is.
func (g *group) follow(now time.Duration) error {
	outs := g.decide()
	switch isOut := g.isOut(outs); {
	case g.isUp() && isOut:
		g.leave()
	case !g.isUp() && !isOut:
		if err := g.join(now); err != nil {
			g.link.Log.Error("cannot serve yet; trying again, while other workers answer", "mode", g.mode, "error", err)
			return err
		}
	case g.isUp() && g.credit.granted > 0:
		g.refill(now)
	}
	isNotLate := func(r Reason) bool { return r != Overload }
	switch why := join(outs, isNotLate); {
	case why != nil:
		if g.isLogged {
			g.isLogged = false
			g.link.Log.Warn("no longer serving", "mode", g.mode, "reason", why)
		}
		return why
	case g.overload.isTrouble(now):
		return errOverload
	case g.ping.has(g.known):
		if !g.isLogged {
			g.isLogged = true
			g.link.Log.Info("serving", "mode", g.mode)
		}
		return nil
	case g.ping.hangs(now):
		return errNoAnswer
	}
	return errNotBegun
}

// join subscribes to all endpoints. If one subscription fails, it leaves the others and returns the error.
func (g *group) join(now time.Duration) error {
	g.credit.grant(now, g.link.conn, &g.overload)
	for _, e := range g.endpoints {
		sub, err := g.subscribe(e)
		if err != nil {
			g.leave()
			return err
		}
		g.subs = append(g.subs, sub)
	}
	g.known = g.ping.ask()
	g.leaveAt, g.joinAt = jittered(leaveAt), jittered(joinAt)
	return nil
}

// leave leaves the queue group. Requests that were delivered are still answered.
func (g *group) leave() {
	drain(g.link.Log, g.subs)
	g.draining, g.subs = append(g.draining, g.subs...), nil
}

// measure updates the lag of the group (how long its requests wait), and begins or ends its overload.
func (g *group) measure(now time.Duration) {
	arrived, waiting := g.arrived(), g.waiting()
	oldest, reached := g.lag.see(now, g.ping.answered, arrived, waiting)
	var late time.Duration
	switch {
	case reached:
		late = g.ping.waited(g.lag.last)
	case len(g.lag.marks) > 0:
		oldest = g.lag.marks[0]
		late = g.ping.waited(now - oldest.set)
	}
	g.credit.rate.note(now, arrived, waiting)
	o := &g.overload
	if o.on {
		g.credit.usedUp = now
	}
	if stillLate := g.credit.granted > 0 && g.ping.waited(g.lag.of(now)) >= g.joinAt; o.on || stillLate {
		o.last = now
	}
	switch {
	case o.on && reached && late < g.joinAt && oldest.set > o.since:
		o.on = false
	case !o.on && g.isUp() && g.credit.granted == 0 && late >= g.leaveAt &&
		isCrowd(late, arrived+waiting-oldest.arrived):
		if o.leave(now) {
			g.link.Log.Info("requests are answered late: leaving the queue group for moments", "mode", g.mode,
				"lag", late.String())
		}
	}
	alarm, over := g.overload.pass(now)
	if alarm {
		g.link.Overloaded(g.mode)
	}
	if over {
		g.link.Log.Info("requests are answered in time again", "mode", g.mode)
	}
}

// arrived returns how many requests have reached their handlers.
func (g *group) arrived() (n int64) {
	for _, e := range g.endpoints {
		n += e.arrived.Load()
	}
	return n
}

// waiting returns how many delivered messages wait for their handlers, draining subscriptions included.
func (g *group) waiting() (n int64) {
	g.draining = slices.DeleteFunc(g.draining, isGone)
	for _, subs := range [][]*nats.Subscription{g.subs, g.draining} {
		for _, sub := range subs {
			if messages, _, err := sub.Pending(); err == nil {
				n += int64(messages)
			}
		}
	}
	return n
}

func isGone(sub *nats.Subscription) bool { return !sub.IsValid() }

// drain leaves the subscriptions; requests that were delivered to them are still handled.
func drain(log *slog.Logger, subs []*nats.Subscription) {
	for _, sub := range subs {
		err := sub.Drain()
		if err != nil && !isGone(sub) && !errors.Is(err, nats.ErrConnectionClosed) {
			log.Warn("a subscription was not left cleanly", "subject", sub.Subject, "error", err)
		}
	}
}

// renew replaces the subscriptions of the endpoints for which the function which returns true: it subscribes again, and
// then drains the former subscription.
func (g *group) renew(which func(*endpoint) bool) {
	for i, e := range g.endpoints {
		if !which(e) {
			continue
		}
		sub, err := g.subscribe(e)
		if err != nil {
			g.link.Log.Warn("cannot subscribe again", "subject", e.subject, "error", err)
			continue
		}
		drain(g.link.Log, g.subs[i:i+1])
		g.draining = append(g.draining, g.subs[i])
		g.subs[i] = sub
	}
}
