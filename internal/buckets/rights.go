package buckets

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"

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
}

type request struct {
	subject    string // or what it begins with, if it ends with a dot
	reconnects uint64 // of the connection when the request began
	end        context.CancelCauseFunc
}

// isListing reports whether the request is a listing, which goes on after a reconnect.
func (q *request) isListing() bool { return strings.HasSuffix(q.subject, ".") }

// rightsOn watches a connection, beside the handlers that it has.
func rightsOn(nc *nats.Conn) *rights {
	r := &rights{nc: nc, waiting: make(map[*request]struct{}), inbox: nc.Opts.InboxPrefix}
	if r.inbox == "" {
		r.inbox = strings.TrimSuffix(nats.InboxPrefix, ".")
	}
	before := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if missing := MissingRight(err); missing != nil {
			r.refused(missing)
		}
		if before != nil {
			before(nc, sub, err)
		}
	})
	disconnected := nc.DisconnectErrHandler()
	nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
		r.lost()
		if disconnected != nil {
			disconnected(nc, err)
		}
	})
	return r
}

// lost ends the requests of a connection that was lost. It may be called late: those of the next one go on.
func (r *rights) lost() {
	connected, now := r.nc.IsConnected(), r.nc.Stats().Reconnects
	r.mu.Lock()
	defer r.mu.Unlock()
	for q := range r.waiting {
		if !q.isListing() && (!connected || q.reconnects < now) {
			q.end(errLost)
		}
	}
}

// refused ends the requests on a subject, or all that wait for an answer that cannot arrive.
func (r *rights) refused(why *RightError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for q := range r.waiting {
		if q.subject == why.Subject || why.Subscribe && strings.HasPrefix(why.Subject, r.inbox) ||
			q.isListing() && strings.HasPrefix(why.Subject, q.subject) {
			q.end(why)
		}
	}
}

// await returns a context for a request on a subject, which ends if NATS refuses it, or if the connection is lost.
// ended must be called with the outcome of the request, and returns it.
func (r *rights) await(ctx context.Context, subject string) (_ context.Context, ended func(error) error) {
	ctx, end := context.WithCancelCause(ctx)
	q := &request{subject, r.nc.Stats().Reconnects, end}
	r.mu.Lock()
	r.waiting[q] = struct{}{}
	r.mu.Unlock()
	return ctx, func(err error) error {
		r.mu.Lock()
		delete(r.waiting, q)
		r.mu.Unlock()
		cause := context.Cause(ctx)
		if missing, ok := errors.AsType[*RightError](cause); err != nil && ok {
			err = missing
		}
		if err != nil && errors.Is(cause, errLost) {
			err = errLost
		}
		end(nil)
		return err
	}
}
