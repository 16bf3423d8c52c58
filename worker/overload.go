package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/wire"
)

// A worker that gets more requests than it can answer would answer all of them late. So it leaves the queue group
// when its lag, the time that requests wait, reaches leaveAt. It joins again below joinAt, before it runs out of
// requests. Both times are lengthened at random by up to a quarter, so that the workers of a fleet neither leave nor
// join together.
//
// Requests wait in the server and in this process. A mark is a place in this queue. To set a mark, the worker sends a
// ping, whose answer comes behind the requests that wait in the server; then it counts the requests that wait in this
// process. The lag is the time from the ping until the last of all these requests is handled.
const (
	leaveAt = 120 * time.Millisecond
	joinAt  = 40 * time.Millisecond
	// After a pause of the machine requests are late, too, but then the worker need not leave. So a group leaves only
	// if enough requests wait (few), and if their number times the lag is at least crowd.
	few   = 32
	crowd = 256 * 100 * time.Millisecond
	// The lag is measured only under load: while enough requests (busy) wait, or arrive within markEvery.
	busy      = 16
	markEvery = 20 * time.Millisecond
)

// A lag measures how late the requests of a group are answered. Only the goroutine of the worker's connection uses it.
type lag struct {
	marks []mark        // not reached yet, the oldest first
	last  time.Duration // the time from setting the last reached mark until it was reached

	seen   int64 // requests that had arrived or waited at the last look
	isBusy bool  // the load is high: see busy
}

// look updates isBusy, given how many requests have arrived at their handlers, and how many wait for a handler.
func (l *lag) look(arrived, waiting int64) {
	came := arrived + waiting
	l.isBusy, l.seen = came-l.seen >= busy || waiting >= busy, came
	if !l.isBusy && len(l.marks) == 0 {
		l.last = 0
	}
}

// A mark is a place in the queue of requests, behind all requests that had come when it was set.
type mark struct {
	ping    proof         // its answer comes behind the requests that wait in the server
	set     time.Duration // when the mark was set
	arrived int64         // requests of the group that had arrived when the mark was set
	until   int64         // the mark is reached when so many have arrived; -1 until the ping is answered
}

// mark sets a mark, a place in the queue of requests, with a ping that has just been sent.
func (l *lag) mark(now time.Duration, ping proof, arrived int64) {
	l.marks = append(l.marks, mark{ping: ping, set: now, arrived: arrived, until: -1})
}

// see removes the marks (places in the queue of requests) that were reached, and returns the last of them. The
// parameter answered is the last ping that got an answer; arrived is how many requests have reached their handlers, and
// waiting how many wait in this process.
func (l *lag) see(now time.Duration, answered proof, arrived, waiting int64) (reached mark, any bool) {
	n := 0
	for i := range l.marks {
		m := &l.marks[i]
		if m.ping > answered {
			break
		}
		if m.until < 0 {
			m.until = arrived + waiting
		}
		if waiting == 0 || arrived >= m.until {
			n = i + 1
		}
	}
	if n == 0 {
		return mark{}, false
	}
	reached = l.marks[n-1]
	l.marks, l.last = slices.Delete(l.marks, 0, n), now-reached.set
	return reached, true
}

// isCrowd reports whether requests are late because too many wait, not because the machine paused.
func isCrowd(late time.Duration, waiting int64) bool {
	return waiting >= few && late*time.Duration(waiting) >= crowd
}

// of returns the lag, how long requests wait: the age of the oldest mark that is not reached, or the time until the
// last one was reached if that is longer.
func (l *lag) of(now time.Duration) time.Duration {
	if len(l.marks) > 0 {
		return max(l.last, now-l.marks[0].set)
	}
	return l.last
}

// An overload is a period in which a group is out of its queue group, or leaves it again and again, because it
// answers late. The zero value is no overload.
type overload struct {
	on          bool // the group is away now
	since       time.Duration
	first, last time.Duration // when the group first left, and was last away
	times       int           // how often the group left; 0 while there is no overload
	raised      bool          // the alarm was raised
}

const (
	// calm is the time without absence from the queue group after which the group's overload ends.
	calm = 10 * time.Second
	// lasting has two uses: an overload of this length raises the alarm, and for so long after the group's last
	// absence its mode still reports the overload as trouble.
	lasting = time.Second
)

// leave records that the group leaves, and reports whether an overload begins.
func (o *overload) leave(now time.Duration) (begins bool) {
	begins = o.times == 0
	if begins {
		o.first = now
	}
	o.on, o.since, o.last = true, now, now
	o.times++
	return begins
}

func (o *overload) isTrouble(now time.Duration) bool { return o.times > 0 && now-o.last < lasting }

// pass updates the overload. It reports whether the alarm must be raised now, and whether the overload is over.
func (o *overload) pass(now time.Duration) (alarm, over bool) {
	if o.times == 0 {
		return false, false
	}
	if o.on {
		o.last = now
	}
	alarm = !o.raised && o.last-o.first >= lasting
	o.raised = o.raised || alarm
	if over = now-o.last >= calm; over {
		*o = overload{}
	}
	return alarm, over
}

// jittered returns a random time from d to 1.25 d.
func jittered(d time.Duration) time.Duration { return d + jitter.UpTo(d/4) }

// When a worker rejoins its queue group while the other workers are away, it gets all their requests: far more than
// it can answer before it notices and leaves. So during an overload it joins with a credit, a number of messages
// after which the server ends the subscription: as many as the worker answers within creditFor. The worker subscribes
// again when half of the credit is left. That half is enough for a look and a short pause of the machine, so that a
// worker below its capacity never uses a credit up.
//
// A worker that has used no credit up for a while is below its capacity, and gets larger credits (creditBelow), since a
// pause may be long: where CPU time is limited to 1 ms in 20, Go's garbage collector takes 140 to 280 ms.
//
// In a cluster another server may route a request to this worker's server when the credit is just used up. That server
// discards the request, which is lost. So credits last longer in a cluster (creditInCluster).
const (
	creditFor       = 200 * time.Millisecond
	creditBelow     = 2 * creditFor
	creditInCluster = 3 * creditFor
)

// limitless is the highest count of messages that the NATS protocol accepts: more than ever arrive.
const limitless = 999_999_999

// A rate is how many requests per second a group can answer, measured while requests wait. The zero value is an unknown
// rate.
type rate struct {
	perSecond float64
	known     time.Duration // perSecond is the mean over this time, rateLeast to rateMost
	since     time.Duration
	arrived   int64
	idle      bool // no request waited at some moment after the time in since
}

// A process with limited CPU time usually gets it in slices of 100 ms, so the measurement covers several of them.
const (
	rateLeast = 3 * markEvery
	rateMost  = 15 * markEvery
)

// note updates the rate. arrived is how many requests have reached their handlers, waiting how many wait for a
// handler. If no request waited at some moment, the group could have answered more than arrived. Then the rate may
// only rise: a worker with few requests would otherwise get smaller and smaller credits.
func (r *rate) note(now time.Duration, arrived, waiting int64) {
	r.idle = r.idle || waiting == 0
	took := now - r.since
	if took < markEvery {
		return
	}
	answered := float64(arrived-r.arrived) / took.Seconds()
	if r.idle {
		answered, r.known = max(answered, r.perSecond), r.known-took
	}
	if r.known = min(max(r.known, rateLeast), rateMost); r.perSecond > 0 {
		answered = r.perSecond + (answered-r.perSecond)*float64(took)/float64(r.known+took)
	}
	*r = rate{answered, r.known + took, now, arrived, waiting == 0}
}

// A credit is how many requests each new subscription of a group may receive.
type credit struct {
	granted int // 0: any number
	rate    rate
	usedUp  time.Duration // when a credit was last used up, or the group last left because it was late
}

// grant sets the credit of the next subscriptions on conn: how many requests each may receive.
func (c *credit) grant(now time.Duration, conn *nats.Conn, o *overload) {
	if c.granted = 0; !o.isTrouble(now) {
		return
	}
	lasts := creditFor
	switch {
	case conn.ConnectedClusterName() != "":
		lasts = creditInCluster
	case now-c.usedUp >= lasting:
		lasts = creditBelow
	}
	c.granted = max(few, int(c.rate.perSecond*lasts.Seconds()))
}

// subscribe subscribes to an endpoint, for as many requests as the group's credit allows.
func (g *group) subscribe(e *endpoint) (sub *nats.Subscription, err error) {
	if e.granted = g.credit.granted; e.granted == 0 {
		sub, err = g.link.conn.QueueSubscribe(e.subject, wire.QueueGroup, e.receive())
	} else {
		sub, err = g.subscribeFor(e, e.granted)
	}
	if err != nil {
		return nil, fmt.Errorf("worker: %s: %w", e.subject, err)
	}
	return sub, nil
}

// subscribeFor subscribes to an endpoint for granted requests. The server may read that limit late, and deliver more
// requests until then, which the client library would drop. So one request before the limit the handler drains the
// subscription, and then lifts the limit, which the server reads after it has ended the subscription. All delivered
// requests are handled.
func (g *group) subscribeFor(e *endpoint, granted int) (sub *nats.Subscription, err error) {
	handle, came, limited := e.receive(), 0, make(chan struct{})
	defer close(limited)
	sub, err = g.link.conn.QueueSubscribe(e.subject, wire.QueueGroup, func(m *nats.Msg) {
		<-limited
		if came++; came == granted-1 {
			_ = m.Sub.Drain()
			_ = m.Sub.AutoUnsubscribe(limitless) // fails only if the connection is gone, as Drain does
		}
		handle(m)
	})
	if err == nil {
		err = sub.AutoUnsubscribe(granted)
	}
	return sub, err
}

// refill subscribes again to each endpoint that has used half of its credit. Once the overload is over, it subscribes
// to all endpoints again, without credit.
func (g *group) refill(now time.Duration) {
	for _, e := range g.endpoints {
		if handled, waiting := g.used(e); e.granted > 0 && handled+waiting >= e.granted-1 {
			g.credit.usedUp = now
		}
	}
	g.credit.grant(now, g.link.conn, &g.overload)
	g.renew(func(e *endpoint) bool {
		if e.granted == 0 || g.credit.granted == 0 {
			return e.granted != g.credit.granted
		}
		handled, _ := g.used(e)
		return 2*handled >= e.granted-2
	})
}

// used returns how many requests of an endpoint's credit are handled, and how many wait for the handler.
func (g *group) used(e *endpoint) (handled, waiting int) {
	sub := g.subs[slices.Index(g.endpoints, e)]
	delivered, gone := sub.Delivered()
	if gone != nil {
		return e.granted, 0
	}
	waiting, _, _ = sub.Pending()
	return int(delivered), waiting
}
