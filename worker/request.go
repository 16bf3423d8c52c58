package worker

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A request is a message that an endpoint got. Exactly one call of respond, refuse or answerUncounted answers it.
type request struct {
	at     *endpoint
	reply  string
	came   time.Duration // by clock
	parked bool
	within time.Duration // how long it may wait for its answer, from came
}

// began is the start of the process.
var began = time.Now()

// clock returns the time since the process began. It costs half of [time.Now].
func clock() time.Duration { return time.Since(began) }

// park returns the request, marked as one that memory could not serve at once.
func (r request) park() request {
	r.parked = true
	return r
}

// respond answers with a body that holds n IDs.
func (r *request) respond(body []byte, n int) {
	err := r.at.link.conn.Publish(r.reply, body)
	if errors.Is(err, nats.ErrMaxPayload) {
		e := subjects.Errorf(subjects.BadRequest,
			"the reply would have %d bytes, more than this NATS server accepts", len(body))
		if n > 0 {
			e.MaxBatch = wire.BatchThatFits(int(r.at.link.conn.MaxPayload()))
		}
		r.refuse(e)
		return
	}
	r.at.link.sent(err)
	r.close(wire.OK, n)
}

// refuse answers with the code for err, and without IDs.
func (r *request) refuse(err error) {
	e := r.at.link.refusal(err)
	m := &nats.Msg{Subject: r.reply, Header: e.Headers()}
	if r.isRelayed() && errors.Is(err, segment.ErrElsewhere) {
		m.Header.Set(headerNotTaken, "1")
	}
	r.at.link.sent(r.at.link.conn.PublishMsg(m))
	r.at.figures.errors.Add(1)
	r.at.figures.last.Store(e)
	r.close(e.Code, 0)
}

// answerUncounted answers with a header alone, and does not count the message as a request.
func (r *request) answerUncounted(header nats.Header) {
	r.at.link.sent(r.at.link.conn.PublishMsg(&nats.Msg{Subject: r.reply, Header: header}))
	r.at.answered.Add(1)
}

func (r *request) close(code subjects.Code, ids int) {
	took := clock() - r.came
	r.at.link.Observe(Answer{Mode: r.at.mode, Code: code, IDs: ids, Parked: r.parked, Took: took})
	r.at.figures.took.Add(int64(took))
	r.at.figures.requests.Add(1)
	r.at.answered.Add(1)
}

// sent logs the error with which sending a reply ended, if any.
func (l *link) sent(err error) {
	if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		l.Log.Debug("a reply was not sent", "error", err)
	}
}

// A tally has the figures of one endpoint for `nats micro`. It is safe for concurrent use.
type tally struct {
	requests atomic.Int64 // answered ones
	took     atomic.Int64 // sum of the times until the answers, in ns
	errors   atomic.Int64
	last     atomic.Pointer[subjects.Error] // nil if there was no error
}
