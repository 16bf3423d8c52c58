package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
)

// rights knows for which modes the user of a connection lacks a right. It asks the server when the connection is made,
// after each refusal by the server, and every 10 s while a right is missing. Until the first question has ended no
// group joins its queue group. If the server does not answer it, all groups join, since callers may be served.
type rights struct {
	ask     func(context.Context, *nats.Conn) (map[Mode]error, error)
	conn    *nats.Conn
	refused chan struct{} // a message means: the server refused something; has room for one
	full    atomic.Bool   // the server has refused some subscription, since there are too many
	lacks   atomic.Pointer[map[Mode]error]
}

const (
	// rightsTimeout bounds the wait for the answer: if the user may not ask, the server answers nothing.
	rightsTimeout = time.Second
	// rightsEvery is the interval, roughly, at which the server is asked while a right is missing: a server does not
	// announce that it granted a right.
	rightsEvery = 10 * time.Second
)

var errFull = errors.New("worker: NATS refuses subscriptions: raise max_subscriptions of its server or of the account")

var errRightsUnknown = errors.New("worker: NATS has not said yet what this user may do")

// newRights returns the rights of a connection. The parameter before has those of the former connection, which count
// until the server has listed the new ones; nil for none.
func newRights(l *link, before *rights) *rights {
	r := &rights{ask: l.Rights, conn: l.conn, refused: make(chan struct{}, 1)}
	if before != nil {
		r.lacks.Store(before.lacks.Load())
	}
	next := l.conn.ErrorHandler()
	l.conn.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if r.isFull() || errors.Is(err, nats.ErrPermissionViolation) {
			signal(r.refused)
		}
		if next != nil {
			next(nc, sub, err)
		}
	})
	return r
}

// gains reports whether some mode lacked a right before, and lacks none now.
func gains(before, now map[Mode]error) bool {
	for mode := range before {
		if now[mode] == nil {
			return true
		}
	}
	return false
}

// isFull reports whether the server refused a subscription because the account or connection has too many. A refusal
// arrives before the answer to a ping that was sent after the subscription, so after that answer the result is certain.
func (r *rights) isFull() bool {
	if errors.Is(r.conn.LastError(), nats.ErrMaxSubscriptionsExceeded) {
		r.full.Store(true)
	}
	return r.full.Load()
}

// refusal returns why a mode must not join its queue group, or nil.
func (r *rights) refusal(mode Mode) error {
	if r.isFull() {
		return errFull
	}
	lacks := r.lacks.Load()
	if lacks == nil {
		return errRightsUnknown
	}
	return (*lacks)[mode]
}

// run keeps the rights up to date until ctx ends. It calls changed after each answer, with true if a missing right
// may have been granted: then refused subscriptions should be tried again.
func (r *rights) run(ctx context.Context, changed func(given bool)) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, rightsTimeout)
		lacks, err := r.ask(limited, r.conn)
		cancel()
		select {
		case <-r.refused: // the question itself may have been refused
		default:
		}
		if before := r.lacks.Load(); before == nil {
			r.lacks.Store(&lacks)
			changed(false)
		} else if err == nil {
			r.lacks.Store(&lacks)
			changed(gains(*before, lacks))
		}
		var again <-chan time.Time
		if len(*r.lacks.Load()) > 0 || r.isFull() {
			again = time.After(jitter.Around(rightsEvery))
		}
		select {
		case <-again:
			if r.isFull() {
				changed(true)
			}
		case <-r.refused:
			changed(false)
			_ = jitter.Sleep(ctx, time.Second/4) // so that a flood of refusals costs little
		case <-ctx.Done():
		}
	}
}
