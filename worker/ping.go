package worker

import (
	"time"

	"github.com/nats-io/nats.go"
)

// A pinger pings the server of a connection. The server answers behind all messages
// that it has queued for the connection, and after it has read all that was sent
// before. Only the goroutine of [Worker.Run] uses it.
type pinger struct {
	conn *nats.Conn
	back chan pong

	sent     proof         // the last ping
	answered proof         // the last one that was answered
	out      int           // how many are under way
	asked    time.Duration // when the first ping was sent since the last answer
	lost     error         // why the last one that ended was not answered; nil if it was

	// The shortest round trips of this stretch of time and of the one before; 0 if
	// none was measured.
	shortest, before time.Duration
	stretch          time.Duration // when this one began
}

// A proof is a ping by its number: when it was answered, the server had read all that was
// sent before it.
type proof uint64

// A pong is how a ping ended.
type pong struct {
	ping    proof
	took    time.Duration
	arrived int64 // messages, when it was sent
	err     error
}

const (
	// pingTimeout ends a ping on a connection that hangs. Under load an answer may
	// take long, so the connection counts as hanging after slowPing already, unless
	// messages arrive.
	pingTimeout = 10 * time.Second
	slowPing    = 2 * time.Second
	// maxPings is how many are under way at most.
	maxPings = 16
)

func newPinger(conn *nats.Conn) *pinger { return &pinger{conn: conn, back: make(chan pong, maxPings)} }

// send sends a ping, unless too many are under way; so many messages had arrived.
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

// end notes how a ping ended; so many messages have arrived.
func (p *pinger) end(now time.Duration, q pong, arrived int64) {
	p.out--
	p.asked, p.lost = now, q.err
	if q.err != nil {
		return
	}
	p.answered = max(p.answered, q.ping)
	if arrived == q.arrived { // it waited behind nothing
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

// stretch is for how long a shortest round trip counts, once or twice as long.
const stretch = 10 * time.Second

// way returns the round trip to the server, without the messages that wait there; 0
// if that is not known.
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

// ask returns the proof that the server has read all that was sent so far.
func (p *pinger) ask() proof { return p.sent + 1 }

// has reports whether the proof is there.
func (p *pinger) has(q proof) bool { return p.answered >= q }

// owes reports whether a ping must be sent for the proof: none was, or all that were sent are lost, as with a
// connection.
func (p *pinger) owes(q proof) bool { return p.sent < q || p.out == 0 && !p.has(q) }

// hangs reports whether the server does not answer.
func (p *pinger) hangs(now time.Duration) bool {
	return p.lost != nil || p.out > 0 && now-p.asked >= slowPing
}

// waited returns a lag without the round trip to the server, and
// without half as much again, by which ways vary. Before the way is known nothing is.
func (p *pinger) waited(lag time.Duration) time.Duration {
	if p.way() == 0 {
		return 0
	}
	return max(0, lag-p.way()*3/2)
}
