package worker

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// leaveAhead is how long before the end of its window a worker leaves the queue
// group, so that it refuses hardly any request delivered to it.
const leaveAhead = 200 * time.Millisecond

var (
	// errNotBegun is why a mode is not served before the server knows that it is.
	errNotBegun = errors.New("worker: not serving yet")
	errNoAnswer = errors.New("worker: the NATS server does not answer")
	errOverload = errors.New("worker: more requests arrive than it can answer in time; " +
		"callers learn at once that nobody serves them, or reach other workers: start more workers")
)

// A group is the queue subscriptions of one mode, on the connection of one membership. They stand while there is no
// reason to be out but [Stopped]: callers reach other workers, or learn from NATS at once that there are none. What was
// delivered is still answered. Only the goroutine of the membership uses it, but for its report.
type group struct {
	mode      Mode
	link      *link
	ping      *pinger
	rights    *rights
	endpoints []*endpoint
	// cannot returns why requests would fail, for the reason lack, or nil; up reports whether the group stands.
	cannot func(up bool) error
	lack   Reason
	only   *group // the group stands only while this one does; nil for none

	subs     []*nats.Subscription // of the endpoints; nil while the group is down
	draining []*nats.Subscription // those left before, until their last request is handled
	known    proof                // that the server knows subs
	isLogged bool                 // the log says that the mode is served
	strain

	report atomic.Pointer[report]
}

// A strain is how late a group answers, and what follows from that.
type strain struct {
	lag      lag
	overload overload
	credit   credit
	leaveAt  time.Duration // the lag at which the group leaves
	joinAt   time.Duration // the lag below which it joins again
}

// A report is what others see of a group. It is never changed, but replaced.
type report struct {
	outs    []Out         // why the mode should not be served
	trouble error         // why the mode is not served; nil while it is
	late    time.Duration // the lag
}

// publish reports why the mode is not served, and how late requests are answered.
func (g *group) publish(now time.Duration, trouble error) {
	g.report.Store(&report{g.report.Load().outs, trouble, g.ping.waited(g.lag.of(now))})
}

func (g *group) isUp() bool { return g.subs != nil }

// decide returns all reasons why the mode should not be served: of the process, and of this connection. It is
// the one place that does.
func (g *group) decide() []Out {
	outs, now := g.link.Reasons.Of(g.mode), time.Now()
	if g.only != nil {
		outs = slices.Clone(g.only.report.Load().outs)
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
	before := g.report.Load()
	for i := range outs {
		if at := find(before.outs, outs[i].Reason); at >= 0 {
			outs[i].Since = before.outs[at].Since
		}
	}
	g.report.Store(&report{outs, before.trouble, before.late})
	return outs
}

// isOut reports whether the group should be down for these reasons. While its mode is stopped, a group of callers
// stands also without what it lacks: it needs nothing to answer 503.
func (g *group) isOut(outs []Out) bool {
	if g.mode == Relay || find(outs, Stopped) < 0 {
		return len(outs) > 0
	}
	return slices.ContainsFunc(outs, func(o Out) bool { return o.Reason != Stopped && o.Reason != g.lack })
}

// follow joins or leaves the queue group if it is time, and returns why the mode
// is not served, or nil.
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

// join subscribes to all endpoints, or to none and returns an error.
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

// leave leaves the queue group. What was delivered is still answered.
func (g *group) leave() {
	drain(g.link.Log, g.subs)
	g.draining, g.subs = append(g.draining, g.subs...), nil
}

// measure follows the lag of the group, and decides whether it is late.
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

// isIdle reports whether the group serves, and hardly anything is asked of it.
func (g *group) isIdle() bool {
	return g.isUp() && g.report.Load().trouble == nil && !g.lag.isBusy && len(g.draining) == 0 && g.overload.times == 0
}

// arrived returns how many requests have reached their handlers.
func (g *group) arrived() (n int64) {
	for _, e := range g.endpoints {
		n += e.counts.arrived.Load()
	}
	return n
}

// waiting returns how many messages wait in this process for their handlers, those of
// subscriptions that are drained included.
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

// renew subscribes to endpoints again, and then leaves their former subscriptions. What was delivered to those is still
// answered.
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
