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

// A request was delivered to an endpoint. Exactly one call of respond or refuse
// answers it.
type request struct {
	at     *endpoint
	reply  string
	came   time.Duration // by clock
	parked bool
	within time.Duration // how long it may take
}

// began is when the process began, about.
var began = time.Now()

// clock returns the time since the process began. It costs half of [time.Now].
func clock() time.Duration { return time.Since(began) }

// park returns the request as one that memory could not serve at once.
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

// refuse answers with the code for err, and no ID.
func (r *request) refuse(err error) {
	e := r.at.link.refusal(err)
	m := &nats.Msg{Subject: r.reply, Header: e.Headers()}
	if r.isRelayed() && errors.Is(err, segment.ErrElsewhere) {
		m.Header.Set(headerNotTaken, "1")
	}
	r.at.link.sent(r.at.link.conn.PublishMsg(m))
	r.at.counts.refused(e)
	r.close(e.Code, 0)
}

// answerUncounted answers a message that is no request for IDs, or none that counts, with a header.
func (r *request) answerUncounted(header nats.Header) {
	r.at.link.sent(r.at.link.conn.PublishMsg(&nats.Msg{Subject: r.reply, Header: header}))
	r.at.counts.none.Add(1)
	r.at.counts.answered.Add(1)
}

func (r *request) close(code subjects.Code, ids int) {
	took := clock() - r.came
	r.at.link.Observe(Answer{Mode: r.at.mode, Code: code, IDs: ids, Parked: r.parked, Took: took})
	r.at.counts.took.Add(int64(took))
	r.at.counts.answered.Add(1)
}

// sent takes note of how the sending of a reply ended.
func (l *link) sent(err error) {
	if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		l.Log.Debug("a reply was not sent", "error", err)
	}
}

// A tally counts the requests of one endpoint in, and their answers out. It is
// safe for concurrent use.
type tally struct {
	arrived  atomic.Int64
	wakesAt  atomic.Int64 // with which arrival the worker is woken; 0: none
	answered atomic.Int64
	none     atomic.Int64 // of those, the ones that were no requests
	took     atomic.Int64 // ns, of all that are answered together
	errors   atomic.Int64
	last     atomic.Pointer[subjects.Error] // nil if there was no error
}

func (t *tally) refused(e *subjects.Error) {
	t.errors.Add(1)
	t.last.Store(e)
}

// open returns how many requests have arrived that are not answered yet.
func (t *tally) open() int64 {
	answered := t.answered.Load() // first, so that open is never too small
	return t.arrived.Load() - answered
}

// add adds the counts of another tally, but for those by which requests that are open are counted.
func (t *tally) add(o *tally) {
	t.answered.Add(o.answered.Load())
	t.none.Add(o.none.Load())
	t.took.Add(o.took.Load())
	t.errors.Add(o.errors.Load())
	if e := o.last.Load(); e != nil {
		t.last.Store(e)
	}
}
