package worker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// leaveAhead is how long before the end of its window a worker leaves the queue
// group, so that it refuses hardly any request delivered to it.
const leaveAhead = 200 * time.Millisecond

// refused returns why a mode must not be served at the moment, as it crosses the
// wire, or nil. It allocates nothing unless the mode is refused.
func (cfg *Config) refused(mode Mode) error {
	if cfg.Refused == nil {
		return nil
	}
	if why := cfg.Refused(mode); why != nil {
		return subjects.Errorf(subjects.Unavailable, "%v", why)
	}
	return nil
}

var (
	// errNotBegun is why a mode is not served before the server knows that it is.
	errNotBegun = errors.New("worker: not serving yet")
	errNoAnswer = errors.New("worker: the NATS server does not answer")
	errOverload = errors.New("worker: more requests arrive than it can answer in time; " +
		"callers learn at once that nobody serves them, or reach other workers: start more workers")
)

// A group is the queue subscriptions of one mode. They stand while the mode can
// be served, and only then: callers reach other workers, or learn from NATS at
// once that there are none. What was delivered is still answered. Only the
// goroutine of [Worker.Run] uses it, but for why and late.
type group struct {
	mode      Mode
	cfg       *Config
	ping      *pinger
	rights    *rights
	echo      *echo
	endpoints []*endpoint
	// cannot returns why requests would fail, or nil; up reports whether the group
	// stands. nil: they never would.
	cannot func(up bool) error

	subs     []*nats.Subscription // of the endpoints; nil while down
	left     []*nats.Subscription // drained ones, until they are gone
	known    proof                // that the server knows them
	goes     bool                 // it leaves once there is the proof
	alive    proof                // that the connection is alive, as a leave needs
	said     bool                 // the log says that it serves
	denial   error                // why endpoints are not served, though it stands
	again    again                // of those
	lag      lag
	overload overload
	rate     rate
	granted  int           // credit of new subscriptions; 0: none is needed
	usedUp   time.Duration // when there was none left last, or the group was away for being late
	leaveAt  time.Duration
	joinAt   time.Duration
	seen     int64 // requests that had arrived or waited at the last look
	isBusy   bool  // many came since the look before

	mu      sync.Mutex
	trouble error         // why the mode is not served; nil while it is
	lateBy  time.Duration // the lag
}

// why returns why the mode is not served, or nil while it is. It is safe for
// concurrent use.
func (g *group) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.trouble
}

// late returns how late requests are answered. It is safe for concurrent use.
func (g *group) late() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lateBy
}

// say sets what why and late return.
func (g *group) say(now time.Duration, trouble error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trouble, g.lateBy = trouble, g.ping.waited(g.lag.of(now))
}

func (g *group) isUp() bool { return g.subs != nil }

// isShown reports whether `nats micro` shows the group. One that left since it is late
// comes back soon.
func (g *group) isShown() bool { return g.isUp() || g.overload.on }

// reason returns why the group should be down, or nil.
func (g *group) reason() error {
	if err := g.cfg.refused(g.mode); err != nil {
		return err
	}
	if g.cfg.Away != nil {
		if err := g.cfg.Away(g.mode); err != nil {
			return err
		}
	}
	if g.cannot != nil {
		if err := g.cannot(g.isUp()); err != nil {
			return err
		}
	}
	return g.echo.refusal()
}

// follow joins or leaves the queue group if it is time, and returns why the mode
// is not served, or nil.
func (g *group) follow(now time.Duration) error {
	trouble := g.reason()
	if g.goes = g.goes && trouble != nil; g.isUp() && trouble != nil && !g.goes {
		g.goes, g.alive = true, g.ping.ask()
	}
	leaves := g.goes && g.ping.has(g.alive)
	switch {
	case (leaves || g.isUp() && g.overload.on) && !g.cfg.Conn.IsConnected():
		// It leaves later. Nothing arrives by now, and the client would subscribe again to what it drains.
	case leaves:
		g.goes, g.said = false, false
		g.cfg.Log.Warn("no longer serving", "mode", g.mode, "reason", trouble)
		g.leave()
	case g.isUp() && g.overload.on:
		g.leave() // the messages that arrive show that the connection is alive
	case !g.isUp() && trouble == nil && !g.overload.on:
		if err := g.join(now); err != nil {
			g.cfg.Log.Error("cannot serve yet; trying again, while other workers answer", "mode", g.mode, "error", err)
			return err
		}
	case g.isUp() && g.granted > 0:
		g.refill(now)
	}
	switch {
	case trouble != nil:
		return trouble
	case g.overload.isTrouble(now):
		return errOverload
	case g.ping.has(g.known) && g.rights.areKnown():
		if g.denied() != nil {
			return g.denial
		}
		if !g.said {
			g.said = true
			g.cfg.Log.Info("serving", "mode", g.mode)
		}
		return nil
	case g.ping.hangs(now):
		return errNoAnswer
	case g.denial != nil:
		return g.denial
	}
	return errNotBegun
}

// needs returns the proof that the group waits for; 0 if none.
func (g *group) needs() proof {
	if g.goes {
		return g.alive
	}
	return g.known
}

// join subscribes to all endpoints, or to none and returns an error.
func (g *group) join(now time.Duration) error {
	g.granted = g.credit(now)
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
	drain(g.cfg, g.subs)
	g.left, g.subs, g.denial, g.again = append(g.left, g.subs...), nil, nil, again{}
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
	g.rate.note(now, arrived, waiting)
	o := &g.overload
	if o.on {
		g.usedUp = now
	}
	if stillLate := g.granted > 0 && g.ping.waited(g.lag.of(now)) >= g.joinAt; o.on || stillLate {
		o.last = now
	}
	switch {
	case o.on && reached && late < g.joinAt && oldest.set > o.since:
		o.on = false
	case !o.on && g.isUp() && g.granted == 0 && late >= g.leaveAt && isCrowd(late, arrived+waiting-oldest.arrived):
		if o.leave(now) {
			g.cfg.Log.Info("requests are answered late: leaving the queue group meanwhile", "mode", g.mode,
				"lag", late.String())
		}
	}
	alarm, over := g.overload.pass(now)
	if alarm && g.cfg.Overloaded != nil {
		g.cfg.Overloaded(g.mode)
	}
	if over {
		g.cfg.Log.Info("requests are answered in time again", "mode", g.mode)
	}
}

// look decides whether the lag is worth a mark.
func (g *group) look() {
	came := g.arrived() + g.waiting()
	g.isBusy, g.seen = came-g.seen >= busy || g.waiting() >= busy, came
	if !g.isBusy && len(g.lag.marks) == 0 {
		g.lag.last = 0
	}
}

// rests reports whether the group serves, and hardly anything is asked of it.
func (g *group) rests() bool {
	return g.isUp() && g.trouble == nil && !g.isBusy && len(g.left) == 0 && g.overload.times == 0
}

// needsMark reports whether the lag is measured.
func (g *group) needsMark() bool { return (g.isBusy || g.overload.on) && len(g.lag.marks) < maxPings }

// forget forgets what waited in a server that is gone.
func (g *group) forget() {
	g.lag, g.overload.on = lag{}, false
}

// arrived returns how many requests have reached their handlers.
func (g *group) arrived() (n int64) {
	for _, e := range g.endpoints {
		n += e.counts.arrived.Load()
	}
	return n
}

// waiting returns how many messages wait in this process for their handlers, of
// subscriptions that were left, too.
func (g *group) waiting() (n int64) {
	g.left = slices.DeleteFunc(g.left, isGone)
	for _, subs := range [][]*nats.Subscription{g.subs, g.left} {
		for _, sub := range subs {
			if messages, _, err := sub.Pending(); err == nil {
				n += int64(messages)
			}
		}
	}
	return n
}

// drain leaves the subscriptions; what was delivered to them is still handled.
func drain(cfg *Config, subs []*nats.Subscription) {
	corkOf(cfg.Conn).leave(subs)
	for _, sub := range subs {
		err := sub.Drain()
		if err != nil && !isGone(sub) && !errors.Is(err, nats.ErrConnectionClosed) {
			cfg.Log.Warn("a subscription was not left cleanly", "subject", sub.Subject, "error", err)
		}
	}
}

// An again is when a subscription that was refused is tried again: soon, then more
// rarely, since each attempt is an error in the server's log, and nothing says when
// the rights of a user were changed. The zero value stands for none refused.
type again struct {
	at    time.Time
	pause time.Duration
}

const againMin, againMax = 500 * time.Millisecond, 5 * time.Second

// put puts the next attempt off.
func (a *again) put() {
	a.pause = min(max(againMin, 2*a.pause), againMax)
	a.at = time.Now().Add(a.pause)
}

func (a *again) due() bool { return !time.Now().Before(a.at) }

// denied returns why the server routes nothing of some endpoint to this worker, or
// nil. It subscribes to such endpoints again from time to time; the others stand.
func (g *group) denied() error {
	why, first := g.refusal(), g.again == again{}
	switch {
	case why == nil && !first:
		g.cfg.Log.Info("callers reach this worker again", "mode", g.mode)
		g.again = again{}
	case why != nil && first:
		g.cfg.Log.Error("callers do not reach this worker", "mode", g.mode, "reason", why)
		g.again.put()
	case why != nil && g.again.due():
		g.renew(func(e *endpoint) bool { return g.rights.subscription(e.subject) != "" })
		g.again.put()
		g.known = g.ping.ask()
	}
	g.denial = why
	return why
}

// refusal returns the first refusal of a subscription, or nil.
func (g *group) refusal() error {
	for _, e := range g.endpoints {
		if g.rights.subscription(e.subject) != "" {
			return errSubscription(e.subject, subjects.QueueGroup)
		}
	}
	return nil
}

// renew subscribes anew to endpoints, and then leaves the subscriptions of before.
// What was delivered to them is still answered. Without a connection it does nothing, since a dial waits for what is
// left.
func (g *group) renew(which func(*endpoint) bool) {
	if !g.cfg.Conn.IsConnected() {
		return
	}
	for i, e := range g.endpoints {
		if !which(e) {
			continue
		}
		sub, err := g.subscribe(e)
		if err != nil {
			g.cfg.Log.Warn("cannot subscribe anew", "subject", e.subject, "error", err)
			continue
		}
		drain(g.cfg, g.subs[i:i+1])
		g.left = append(g.left, g.subs[i])
		g.subs[i] = sub
	}
}

// anew subscribes to all endpoints anew.
func (g *group) anew() {
	if g.stands() {
		g.renew(func(*endpoint) bool { return true })
	}
}

// stands reports whether the server has taken all subscriptions.
func (g *group) stands() bool { return g.isUp() && g.ping.has(g.known) && g.refusal() == nil }
