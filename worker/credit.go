package worker

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/internal/wire"
)

// A worker that comes back to its queue group while the others are away gets what all
// would get, many times what it can answer, and leaves too late. So during an overload
// it joins with a credit: the server itself ends a subscription after so many messages,
// as many as are answered within creditFor. A new one follows when half of it is left,
// which outlasts a look and a short pause of the machine: below its capacity a worker
// must not use a credit up.
//
// One that used none up for a while is below its capacity, and its credits last longer:
// where CPU time is limited to 1 ms in 20, Go's collector takes 140 to 280 ms.
//
// In a cluster, what is on its way from another server when the last credit is used up
// is lost: that server has routed it, and this one discards it. So credits last longer.
const (
	creditFor       = 200 * time.Millisecond
	creditBelow     = 2 * creditFor
	creditInCluster = 3 * creditFor
)

// limitless is more than ever arrives, and the most that the protocol knows.
const limitless = 999_999_999

// A rate is how many requests a group can answer per second: so many as it answers while
// some wait. The zero value knows nothing yet.
type rate struct {
	perSecond float64
	known     time.Duration // how much time it is the mean of, from rateLeast to rateMost
	since     time.Duration
	arrived   int64
	idle      bool // nothing waited at some time since
}

// A process whose CPU time is limited runs in slices, of 100 ms usually. A mean over less
// than some of them would be that of a slice or of none.
const (
	rateLeast = 3 * markEvery
	rateMost  = 15 * markEvery
)

// note notes how many requests have arrived, and how many wait. A time in which nothing
// waited shows only that the group can answer as many as it did: a worker that is back
// below its capacity would otherwise give itself ever smaller credits, and use them up.
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

// A credit is how many requests each new subscription of a group may get.
type credit struct {
	granted int // 0: any number
	rate    rate
	usedUp  time.Duration // when the last credit was used up, or the group was away for being late
}

// grant sets the credit, on a connection.
func (c *credit) grant(now time.Duration, conn *nats.Conn, o *overload) {
	if c.granted = 0; corkOf(conn) == nil || !o.isTrouble(now) {
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

// subscribeFor subscribes to an endpoint for so many requests, or some more: the server
// may read the number late. The client would drop those, so the subscription is drained
// one request before.
func (g *group) subscribeFor(e *endpoint, granted int) (sub *nats.Subscription, err error) {
	cork, handle, came := corkOf(g.link.conn), e.receive(), 0
	var opened atomic.Pointer[nats.Subscription]
	cork.together(g.link.conn, func() {
		sub, err = g.link.conn.QueueSubscribe(e.subject, wire.QueueGroup, func(m *nats.Msg) {
			if came++; came >= granted-1 {
				if s := opened.Swap(nil); s != nil {
					cork.together(g.link.conn, func() { end(s) })
				}
			}
			handle(m)
		})
		if err == nil {
			opened.Store(sub)
			err = sub.AutoUnsubscribe(granted)
		}
	})
	return sub, err
}

// end leaves a subscription that had a credit, and keeps all that it got. The server
// must read both at once.
func end(sub *nats.Subscription) {
	_ = sub.AutoUnsubscribe(limitless) // fails if it is gone
	_ = sub.Drain()
}

// refill subscribes anew to the endpoints half of whose credit is handled; to all, without
// credit, once the overload is over.
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

// used returns how much of the credit of an endpoint is handled, and how much waits for its handler.
func (g *group) used(e *endpoint) (handled, waiting int) {
	sub := g.subs[slices.Index(g.endpoints, e)]
	delivered, gone := sub.Delivered()
	if gone != nil {
		return e.granted, 0
	}
	waiting, _, _ = sub.Pending()
	return int(delivered), waiting
}
