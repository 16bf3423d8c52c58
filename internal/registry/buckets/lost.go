package buckets

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// lost ends requests whose connection was lost. Their answers were sent to the old connection, so on the new one each
// would wait until its deadline.
//
// Law: a write that lost ends may have landed, or may land later, like one that timed out.
type lost struct {
	nc      *nats.Conn
	mu      sync.Mutex
	waiting map[*request]struct{}
}

// errLost is the outcome of a request whose connection was lost before the answer came.
var errLost = errors.New("the connection to NATS was lost before JetStream answered")

type request struct {
	reconnects uint64 // how often the connection had reconnected at the request
	end        context.CancelCauseFunc
}

// lostOn watches a connection. Its present handler of disconnections is still called.
func lostOn(nc *nats.Conn) *lost {
	l := &lost{nc: nc, waiting: make(map[*request]struct{})}
	disconnected := nc.DisconnectErrHandler()
	nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
		connected, now := nc.IsConnected(), nc.Stats().Reconnects // a late call leaves later requests alone
		l.mu.Lock()
		for q := range l.waiting {
			if !connected || q.reconnects < now {
				q.end(errLost)
			}
		}
		l.mu.Unlock()
		if disconnected != nil {
			disconnected(nc, err)
		}
	})
	return l
}

// await calls f, which sends a request and awaits the answer, with a context that also ends if the connection is lost.
// Errors are translated into those of this package.
func await[T any](ctx context.Context, l *lost, f func(context.Context) (T, error)) (T, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	q := &request{l.nc.Stats().Reconnects, end}
	l.mu.Lock()
	l.waiting[q] = struct{}{}
	l.mu.Unlock()
	v, err := f(ctx)
	l.mu.Lock()
	delete(l.waiting, q)
	l.mu.Unlock()
	if err != nil && errors.Is(context.Cause(ctx), errLost) {
		err = errLost
	}
	if isSilence(err) && errors.Is(l.nc.LastError(), nats.ErrMaxSubscriptionsExceeded) {
		err = fmt.Errorf("%w (%w)", errNoSubscription, err)
	}
	return v, translate(err)
}

// errNoSubscription says that no answer can arrive, since NATS has refused the subscription to it. NATS reports that
// only once.
var errNoSubscription = named{"NATS refuses subscriptions: raise max_subscriptions of its server or of the account",
	nats.ErrMaxSubscriptionsExceeded}
