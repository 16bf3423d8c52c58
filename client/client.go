package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// DefaultTimeout bounds a call whose context has no deadline. Workers answer within 1.5 s unless configured
// otherwise, so a call has time to ask another worker.
const DefaultTimeout = 5 * time.Second

// MaxIDs is the most IDs that one call of NextN can request. It bounds how many IDs a mistyped count wastes.
const MaxIDs = 10_000_000

// A Config is the settings of a [Client]. The zero value means the defaults.
type Config struct {
	// Namespace is the namespace of the workers; "" means [subjects.DefaultNamespace].
	Namespace subjects.Namespace
	// Timeout bounds calls whose context has no deadline; 0 means [DefaultTimeout].
	Timeout time.Duration
	// FailFast makes calls for IDs fail with [ErrNotServed] as soon as no worker serves them. By default calls ask
	// again until their context ends, since the only worker may be restarting.
	FailFast bool
	// Log receives messages for an operator; nil discards them. The only message is the first [ErrNotNatsid]: the
	// operator should stop the program that answers in natsid's place.
	Log *slog.Logger
	// ObserveCall is called at the end of each call with the caller's context, for example to record metrics, or a span
	// as a child of the caller's; nil means no observer. It must not block, and may be called concurrently. It is not
	// called for a call that gets a prefetched ID, or whose context had ended before the call.
	ObserveCall func(context.Context, Call)
}

// A Client requests IDs from the workers of one namespace. It is safe for concurrent use.
type Client struct {
	nc      *nats.Conn
	cfg     Config    // with defaults filled in
	foreign sync.Once // logs the first ErrNotNatsid
	inbox   inbox
	wall    func() time.Time // the wall clock

	mu      sync.Mutex
	handles map[settings]*Handle
}

// New returns a client on a connection, which the caller closes. It sends nothing. The error names the argument that is
// wrong.
func New(nc *nats.Conn, cfg Config) (*Client, error) {
	cfg.Namespace = cmp.Or(cfg.Namespace, subjects.DefaultNamespace)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	switch err := cfg.Namespace.Check(); {
	case nc == nil:
		return nil, errors.New("client: no connection: did nats.Connect return an error?")
	case err != nil:
		return nil, fmt.Errorf("client: %w", err)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("client: Timeout is %v, want 0 for %v, or more", cfg.Timeout, DefaultTimeout)
	}
	c := &Client{nc: nc, cfg: cfg, wall: wallClock, handles: make(map[settings]*Handle)}
	c.inbox.nc = nc
	return c, nil
}

func wallClock() time.Time { return time.Now().Round(0) }

// Must returns v, and panics if err is not nil. It is for calls with constant arguments:
//
//	order := client.Must(ids.Segment("order", client.SegmentConfig{}))
func Must[T *Client | *Handle](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Close ends the client's subscription to replies. Calls for IDs, under way or later, fail with [ErrClosed], but
// prefetched IDs are given out until they are used up or too old. The connection stays open. A caller that closes the
// connection need not close the client.
func (c *Client) Close() { c.inbox.close() }
