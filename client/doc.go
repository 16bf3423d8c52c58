// Package client draws IDs from natsid over NATS.
//
//	ids, err := client.New(nc, client.Config{}) // nc is a *nats.Conn
//	…
//	order, err := ids.Segment("order", client.SegmentConfig{})
//	…
//	id, err := order.Next(ctx)
//
// A [Handle] draws the IDs of one tag, or snowflakes. Keep it and share it: overlapping calls share requests. A call
// asks again while that can help: after a refusal that another worker may not repeat, after silence, after a lost
// connection. It ends with its context, or after [DefaultTimeout] if the context has no deadline. Asking again is
// safe: no two calls return the same ID, and unused IDs are holes.
//
// # Which mode for which need
//
//	need                                      use
//	an ID for a row                           Next
//	IDs for n rows                            NextN(n)
//	an ID faster than a round trip, or        Prefetch: n in the config
//	while natsid is away for a moment
//	a number as people write it               Next, and package format
//
//	mode            a call costs              order        holes             age of an ID
//	Next            a round trip, shared      as issued    few               younger than its call
//	NextN           a round trip or more      as issued    few               younger than its call
//	Prefetch        an addition in memory     as issued    2n at a time      up to MaxAge
//
// As issued means: of two calls, one of which began after the other had ended, the later call gets the ID that was
// issued later. Segment IDs of one worker rise; those of several workers interleave, as each has a range of its own.
// IDs of a strict tag rise over all workers: the later call gets the higher ID, in any process. A strict tag has no
// Prefetch. Snowflakes rise with the clocks of the workers.
//
// A hole is an ID that no call gets. Each mode leaves some: the answer to a copy of a request, and an answer to a
// request that was sent before the call gave up. IDs held in advance, at most 2n, become a hole when they are too old
// or the process ends.
//
// A segment ID that is held in advance may be below a max_id that was raised since, and the time in a snowflake is as
// old as the ID: MaxAge bounds both.
//
// # Errors
//
// errors.Is finds the sentinels of this package, and errors.As a [*subjects.Error] where a worker refused: its text
// names the reason. When ctx ends first, the error is that of ctx, and wraps the reason for the wait if there is one,
// such as [ErrNotServed].
//
// # Laws
//
// docs/client-laws.md states what clients do in any language: when calls share a request, when a copy is sent and how
// many, and which IDs may be held. Comments of this package say how, and why.
//
// # The connection
//
// The caller owns the connection. By default nats.go gives up after 60 attempts to reconnect, and notices only after
// minutes that a NATS server hangs. A service should connect so that it notices within two seconds, and never gives
// up:
//
//	nats.Connect(urls, nats.MaxReconnects(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1))
//
// # Metrics, traces and tests
//
// [Handle.Stats] has the counts of a handle. [Config].ObserveCall is called at the end of each call, with the context
// of the caller, although calls share requests: the parent of a span is the caller's.
//
// Programs that take a [Source] are tested with the package clienttest, from memory, or with the package e2e.
package client
