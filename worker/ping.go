package worker

import (
	"time"

	"github.com/nats-io/nats.go"
)

// A pinger pings the server of a connection. The server answers after it has read all that was sent before the ping,
// and behind all messages that it has queued for the connection. Only the goroutine of the worker's connection uses a
// pinger.
type pinger struct {
	conn *nats.Conn
	back chan pong

	sent     proof         // the last ping
	answered proof         // the last ping that was answered
	out      int           // how many pings are under way
	asked    time.Duration // since when an answer is awaited, if out > 0
	lost     error         // why the last ping that ended got no answer; nil if it was answered

	// The shortest round trips of the current period, and of the previous period; 0 if none was measured.
	shortest, before time.Duration
	stretch          time.Duration // when the current period began
}

// A proof is the number of a ping. Its answer proves that the server has read all that was sent before the ping.
type proof uint64

// A pong is how a ping ended.
type pong struct {
	ping    proof
	took    time.Duration
	arrived int64 // messages that had arrived when the ping was sent
	err     error
}

const (
	// pingTimeout is how long a ping waits for its answer, which may take long under load. The connection counts as
	// hanging after slowPing already.
	pingTimeout = 10 * time.Second
	slowPing    = 2 * time.Second
	// maxPings is how many pings may be under way at once.
	maxPings = 16
)

func newPinger(conn *nats.Conn) *pinger { return &pinger{conn: conn, back: make(chan pong, maxPings)} }

// send sends a ping, and reports whether it did: at most maxPings may be under way. arrived is the number of messages
// received so far.
func (p *pinger) send(now time.Duration, arrived int64) bool {
	if p.out == maxPings {
		return false
	}
	if p.out == 0 {
		p.asked = now
	}
	p.out++
	p.sent++
	q := pong{ping: p.sent, arrived: arrived}
	go func() {
		began := clock()
		q.err = p.conn.FlushTimeout(pingTimeout)
		q.took = clock() - began
		p.back <- q
	}()
	return true
}

// end records the end of a ping. arrived is the number of messages received so far.
func (p *pinger) end(now time.Duration, q pong, arrived int64) {
	p.out--
	p.asked, p.lost = now, q.err
	if q.err != nil {
		return
	}
	p.answered = max(p.answered, q.ping)
	if arrived == q.arrived { // the answer waited behind no message
		p.shortest, p.before, p.stretch = q.took, 0, now
		return
	}
	if now-p.stretch >= stretch {
		p.shortest, p.before, p.stretch = 0, p.shortest, now
	}
	if p.shortest == 0 || q.took < p.shortest {
		p.shortest = q.took
	}
}

// stretch is the length of a period in which the shortest round trip is measured. The result counts in the next period,
// too.
const stretch = 10 * time.Second

// way returns the round trip to the server, without the time that messages queue; 0 if unknown.
func (p *pinger) way() time.Duration {
	if p.shortest == 0 || p.before == 0 {
		return max(p.shortest, p.before)
	}
	return min(p.shortest, p.before)
}

// stop waits for the pings that are under way, on a connection that is closed.
func (p *pinger) stop() {
	for ; p.out > 0; p.out-- {
		<-p.back
	}
}

// ask returns the number of the next ping: once that ping is answered, the server has read all that was sent so far.
func (p *pinger) ask() proof { return p.sent + 1 }

// has reports whether the ping q, or a later one, was answered.
func (p *pinger) has(q proof) bool { return p.answered >= q }

// owes reports whether a ping must be sent to get proof q: ping q was not sent, or it failed and no ping is under
// way.
func (p *pinger) owes(q proof) bool { return p.sent < q || p.out == 0 && !p.has(q) }

// hangs reports whether the server does not answer pings.
func (p *pinger) hangs(now time.Duration) bool {
	return p.lost != nil || p.out > 0 && now-p.asked >= slowPing
}

// waited returns how long requests wait, given the measured lag. The lag includes the round trip of a ping, so waited
// subtracts 1.5 round trips, since they vary. It returns 0 while the round trip is unknown.
func (p *pinger) waited(lag time.Duration) time.Duration {
	if p.way() == 0 {
		return 0
	}
	return max(0, lag-p.way()*3/2)
}
