// Package client draws IDs from natsid over NATS.
//
//	ids, err := client.New(nc, client.Config{}) // nc is a *nats.Conn
//	order, err := ids.Segment("order", client.SegmentConfig{})
//	id, err := order.Next(ctx)
//
// A [Handle] draws the IDs of one tag, or snowflakes. Keep it and share it: overlapping calls share requests. A call
// repeats its request while that can help. It ends with its context, or after [DefaultTimeout] if the context has no
// deadline. A repetition is safe: no two calls return the same ID. IDs that no call returns are holes.
//
//	mode         a call costs            holes           age of an ID
//	Next         a round trip, shared    few             younger than its call
//	NextN        a round trip or more    few             younger than its call
//	Prefetch n   0.2 µs                  up to 2n        up to MaxAge
//
// Without Prefetch, a call that begins after another has ended gets an ID that was issued later. The IDs of one worker
// rise; those of several workers interleave. IDs of a strict tag rise over all workers, so strict tags have no
// Prefetch. Snowflakes rise with the clocks of the workers.
//
// errors.Is finds the sentinels, such as [ErrNotServed], and errors.As a [*subjects.Error] where a worker refused. When
// ctx ends first, the error is that of ctx, and wraps the reason for the wait if there is one.
//
// The caller owns the connection. These options notice within two seconds that a server hangs, and reconnect for ever:
//
//	nats.Connect(urls, nats.MaxReconnects(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1))
//
// docs/client-laws.md states when calls share a request, and when a copy is sent. Programs that take a [Source] are
// tested with package clienttest, from memory, or with package e2e.
package client
