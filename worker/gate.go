package worker

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/subjects"
)

// A gate counts the requests of a worker in, and their answers out: a worker
// stops only when every request that came in has been answered. It is safe for
// concurrent use.
type gate struct {
	conn    *nats.Conn
	observe func(Answer)
	log     *slog.Logger

	arrived atomic.Int64 // requests that came in
	open    atomic.Int64 // those not answered yet
}

// A request came in through the gate. Exactly one call of respond or refuse
// answers it.
type request struct {
	gate   *gate
	mode   Mode
	reply  string
	inline micro.Request // until its handler returns; nil once detached
	parked time.Time     // when it was parked; zero if it was not
}

// accept counts a request in. It drops a message without a reply subject before
// that costs an ID.
func (g *gate) accept(mode Mode, req micro.Request) (request, bool) {
	if req.Reply() == "" {
		return request{}, false
	}
	g.open.Add(1)
	g.arrived.Add(1)
	return request{gate: g, mode: mode, reply: req.Reply(), inline: req}, true
}

// detach returns the request as one that outlives its handler.
func (r request) detach() request {
	r.inline = nil
	return r
}

// park returns the request as one that outlives its handler and waits from now.
func (r request) park() request {
	r = r.detach()
	r.parked = time.Now()
	return r
}

// respond answers with a body that holds n IDs.
func (r request) respond(body []byte, n int) {
	err := r.gate.conn.Publish(r.reply, body)
	if errors.Is(err, nats.ErrMaxPayload) {
		r.refuse(subjects.Errorf(subjects.BadRequest,
			"the reply would have %d bytes, more than this NATS server accepts: ask for fewer", len(body)))
		return
	}
	r.sent(err)
	r.close(subjects.OK, n)
}

// refuse answers with the code for err, and no ID.
func (r request) refuse(err error) {
	e := wireError(err, r.gate.log)
	if r.inline != nil {
		// So that `nats micro stats` counts the error. The service reads the
		// request after the handler has returned, so only the handler may use it.
		r.sent(r.inline.Error(e.Code.String(), e.Text, nil))
	} else {
		r.sent(r.gate.conn.PublishMsg(&nats.Msg{Subject: r.reply, Header: nats.Header{
			subjects.HeaderErrorCode: {e.Code.String()},
			subjects.HeaderError:     {e.Text},
		}}))
	}
	r.close(e.Code, 0)
}

func (r request) sent(err error) {
	if err != nil {
		r.gate.log.Debug("a reply was not sent", "error", err)
	}
}

func (r request) close(code subjects.Code, ids int) {
	a := Answer{Mode: r.mode, Code: code, IDs: ids}
	if !r.parked.IsZero() {
		a.Parked, a.Waited = true, time.Since(r.parked)
	}
	r.gate.observe(a)
	r.gate.open.Add(-1)
}

// settle waits, for patience at most, until the connection has no subscription
// but the given number of them, and every request is answered. A subscription
// is gone when its last request has left its queue, which is a moment before
// the handler counts that request: hence the counters must stand still for two
// looks.
func (g *gate) settle(subscriptions int, patience time.Duration) {
	const look = 10 * time.Millisecond
	still, before := 0, int64(-1)
	for end := time.Now().Add(patience); still < 2 && time.Now().Before(end); time.Sleep(look) {
		arrived := g.arrived.Load()
		subscribed := g.conn.IsConnected() && g.conn.NumSubscriptions() > subscriptions
		if subscribed || g.open.Load() > 0 || arrived != before {
			still = 0
		} else {
			still++
		}
		before = arrived
	}
}
