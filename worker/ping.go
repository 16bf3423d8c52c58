package worker

import (
	"time"

	"github.com/nats-io/nats.go"
)

// A pinger pings the server of a connection, with one ping under way at most. The
// server's answer comes behind all messages that it had queued for the connection.
// Only the goroutine of [Worker.Run] uses it.
type pinger struct {
	conn *nats.Conn
	back chan error // the outcome of the ping that is out

	sent     uint64 // pings so far
	answered uint64 // the last one that was answered
	out      bool   // one is under way
	at       time.Duration
	lost     error // why the last one that ended was not answered; nil if it was
}

func newPinger(conn *nats.Conn) *pinger { return &pinger{conn: conn, back: make(chan error, 1)} }

// pingTimeout ends a ping on a connection that hangs. Under load an answer may take
// long, so the connection counts as hanging after slowPing already, unless messages
// arrive.
const (
	pingTimeout = 10 * time.Second
	slowPing    = time.Second
)

// send sends a ping unless one is under way.
func (p *pinger) send(now time.Duration) {
	if p.out {
		return
	}
	p.out, p.at = true, now
	p.sent++
	go func() { p.back <- p.conn.FlushTimeout(pingTimeout) }()
}

// end notes how the ping ended.
func (p *pinger) end(err error) {
	p.out, p.lost = false, err
	if err == nil {
		p.answered = p.sent
	}
}

// stop waits for the ping that is under way, on a connection that is closed.
func (p *pinger) stop() {
	if p.out {
		p.end(<-p.back)
	}
}

// A proof is that the server has read what was sent on the connection before: it
// answered a ping sent after.
type proof uint64 // number of that ping

// ask returns a proof of all that was sent so far.
func (p *pinger) ask() proof { return proof(p.sent + 1) }

// has reports whether the proof is there.
func (p *pinger) has(q proof) bool { return p.answered >= uint64(q) }

// hangs reports whether the server does not answer.
func (p *pinger) hangs(now time.Duration) bool { return p.lost != nil || p.out && now-p.at >= slowPing }
