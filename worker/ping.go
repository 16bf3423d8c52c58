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
}

// A proof is a ping by its number: when it was answered, the server had read what was
// sent before it.
type proof uint64

// A pong is how a ping ended.
type pong struct {
	ping proof
	err  error
}

const (
	// pingTimeout ends a ping on a connection that hangs. Under load an answer may
	// take long, so the connection counts as hanging after slowPing already, unless
	// messages arrive.
	pingTimeout = 10 * time.Second
	slowPing    = time.Second
	// maxPings is how many are under way at most.
	maxPings = 16
)

func newPinger(conn *nats.Conn) *pinger { return &pinger{conn: conn, back: make(chan pong, maxPings)} }

// send sends a ping, unless too many are under way.
func (p *pinger) send(now time.Duration) bool {
	if p.out == maxPings {
		return false
	}
	if p.out == 0 {
		p.asked = now
	}
	p.out++
	p.sent++
	ping := p.sent
	go func() { p.back <- pong{ping, p.conn.FlushTimeout(pingTimeout)} }()
	return true
}

// end notes how a ping ended.
func (p *pinger) end(now time.Duration, q pong) {
	p.out--
	p.asked, p.lost = now, q.err
	if q.err == nil {
		p.answered = max(p.answered, q.ping)
	}
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

// hangs reports whether the server does not answer.
func (p *pinger) hangs(now time.Duration) bool {
	return p.lost != nil || p.out > 0 && now-p.asked >= slowPing
}
