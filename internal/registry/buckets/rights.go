package buckets

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A RightError says that a user of NATS lacks a right, and which.
type RightError struct {
	Subject   string
	Subscribe bool // the right to subscribe, not to publish
}

func (e *RightError) Error() string {
	do := "publish to "
	if e.Subscribe {
		do = "subscribe to "
	}
	return "this user of NATS may not " + do + e.Subject + ": allow it; " +
		"`natsid permissions` prints what each user needs"
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// MissingRight returns the right of which an error of a NATS connection says that it is missing, nil if it says none.
func MissingRight(err error) *RightError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	parts := violation.FindStringSubmatch(err.Error())
	if parts == nil {
		return nil
	}
	return &RightError{Subject: parts[2], Subscribe: strings.EqualFold(parts[1], "subscription")}
}

// errLost is the outcome of a request whose connection was lost before the answer came.
var errLost = errors.New("the connection to NATS was lost before JetStream answered")

// rights ends requests that NATS refused. It says so beside a request and answers nothing, so that each would wait for
// its deadline. So would one whose connection was lost, for an answer that was sent there, though others are answered
// on the next connection by then.
//
// Law: a write that ended so may have landed, or may land later, as one whose time was over.
type rights struct {
	nc      *nats.Conn
	mu      sync.Mutex
	waiting map[*request]struct{}
	inbox   string // what the subjects begin with on which answers arrive

	deaf   *RightError // no answers arrive on this connection: nats.go subscribes once, and NATS refused that
	deafAt time.Time   // when that was noticed, or the connection was last replaced for it
	deafOn uint64      // reconnects until then
}

// deafEvery is how often a connection is replaced on which no answers arrive: an operator may have given the right.
const deafEvery = 5 * time.Second

type request struct {
	subject    string
	reconnects uint64 // of the connection when the request began
	end        context.CancelCauseFunc
}

// rightsOn watches a connection, beside the handlers that it has.
func rightsOn(nc *nats.Conn) *rights {
	r := &rights{nc: nc, waiting: make(map[*request]struct{})}
	r.inbox = cmp.Or(nc.Opts.InboxPrefix, strings.TrimSuffix(nats.InboxPrefix, "."))
	before := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if missing := MissingRight(err); missing != nil {
			inbox := missing.Subscribe && strings.HasPrefix(missing.Subject, r.inbox)
			if inbox {
				r.mu.Lock()
				r.deaf, r.deafAt, r.deafOn = missing, time.Now(), nc.Stats().Reconnects
				r.mu.Unlock()
			}
			r.end(missing, func(q *request) bool { return inbox || q.subject == missing.Subject })
		}
		if before != nil {
			before(nc, sub, err)
		}
	})
	disconnected := nc.DisconnectErrHandler()
	nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
		connected, now := nc.IsConnected(), nc.Stats().Reconnects // this may be called late: later requests continue
		r.end(errLost, func(q *request) bool { return !connected || q.reconnects < now })
		if disconnected != nil {
			disconnected(nc, err)
		}
	})
	return r
}

// whyDeaf returns why no answer can arrive, nil if one can.
func (r *rights) whyDeaf() *RightError {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf == nil || r.deafOn != r.nc.Stats().Reconnects {
		return nil
	}
	if now := time.Now(); now.Sub(r.deafAt) >= deafEvery {
		r.deafAt = now
		go func() { _ = r.nc.ForceReconnect() }() // it fails only on a closed connection
	}
	return r.deaf
}

// end ends some of the requests that wait.
func (r *rights) end(why error, which func(*request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for q := range r.waiting {
		if which(q) {
			q.end(why)
		}
	}
}

// await calls f, which sends a request on a subject and awaits the answer, with a context that also ends if NATS
// refuses the request, or if the connection is lost. The error is one of this package.
func await[T any](ctx context.Context, r *rights, subject string, f func(context.Context) (T, error)) (T, error) {
	if deaf := r.whyDeaf(); deaf != nil {
		var none T
		return none, deaf
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	q := &request{subject, r.nc.Stats().Reconnects, end}
	r.mu.Lock()
	r.waiting[q] = struct{}{}
	r.mu.Unlock()
	v, err := f(ctx)
	r.mu.Lock()
	delete(r.waiting, q)
	r.mu.Unlock()
	cause := context.Cause(ctx)
	if _, refused := errors.AsType[*RightError](cause); err != nil && (refused || errors.Is(cause, errLost)) {
		err = cause
	}
	return v, translate(err)
}
