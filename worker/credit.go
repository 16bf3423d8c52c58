package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/internal/wire"
)

// When a worker rejoins its queue group while the other workers are away, it gets all their requests: far more than it
// can answer, and it leaves too late. So during an overload it joins with a credit: the server ends a subscription
// after that many messages, as many as the worker answers within creditFor. A new subscription follows when half of the
// credit is left, which is enough for a look and a short pause of the machine: a worker below its capacity must not use
// a credit up.
//
// A worker that has used no credit up for a while is below its capacity, and gets larger credits (creditBelow): where
// CPU time is limited to 1 ms in 20, Go's collector takes 140 to 280 ms.
//
// In a cluster a request is lost if another server has routed it here when the credit is used up: this server discards
// it. So credits last longer there (creditInCluster).
const (
	creditFor       = 200 * time.Millisecond
	creditBelow     = 2 * creditFor
	creditInCluster = 3 * creditFor
)

// limitless is the highest count of messages that the NATS protocol accepts: more than ever arrive.
const limitless = 999_999_999

// A rate is how many requests per second a group can answer, measured while some wait. The zero value is an unknown
// rate.
type rate struct {
	perSecond float64
	known     time.Duration // perSecond is the mean over this time, rateLeast to rateMost
	since     time.Duration
	arrived   int64
	idle      bool // no request waited at some moment after the time in since
}

// The measurement covers several slices: a process with limited CPU time runs in slices of 100 ms usually.
const (
	rateLeast = 3 * markEvery
	rateMost  = 15 * markEvery
)

// note updates the rate with the number of requests that have arrived, and that wait. While nothing waits, the group
// could answer more than arrives, so the rate only rises: it must not fall because a worker has little to do, or its
// credits would get smaller and smaller.
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

// grant sets the credit of the next subscriptions on conn.
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

// subscribe subscribes to an endpoint.
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

// subscribeFor subscribes to an endpoint for granted requests. The server may read that limit a moment later, and
// deliver more until then, which the client would drop. So one request before the limit the handler leaves, and then
// lifts the limit: the server reads that after it has ended the subscription. Requests that were delivered are handled.
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
