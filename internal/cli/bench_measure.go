package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/measure"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// longestTurn is how long natsid or the echo is measured at a time, so that changes of the machine affect both.
const longestTurn = 500 * time.Millisecond

// bareTimeout is how long a bare request waits: workers refuse before.
const bareTimeout = 2 * time.Second

// A bench is one measurement.
type bench struct {
	benchFlags
	target
	s      *session
	nc     *nats.Conn
	client *client.Client
	handle *client.Handle
	// Copies of the client's requests; the IDs of each may have been used up.
	copies, copiesIDs atomic.Int64

	natsid, echo measure.Figures
	requests     int64     // for natsid's figures
	ratios       []float64 // natsid's calls/s over the echo's, of each turn
	noEcho       error     // why there is no echo
	spent        bool      // the measurement ended since no more IDs may be used up
}

func newBench(f benchFlags, of target, s *session, nc *nats.Conn) *bench {
	b := &bench{benchFlags: f, target: of, s: s, nc: nc}
	b.client = s.clientOn(nc, client.Observe(func(r client.Request) {
		b.copies.Add(int64(r.Copies))
		b.copiesIDs.Add(int64(r.Copies * r.IDs))
	}))
	var opts []client.HandleOption
	if f.Prefetch > 0 {
		// The age is longer than a turn, or IDs would expire and be replaced during the echo's turns.
		opts = append(opts, client.Prefetch(f.Prefetch, time.Minute))
	}
	b.handle = b.client.Segment(of.tag, opts...)
	if of.tag == "" {
		b.handle = b.client.Snowflake(opts...)
	}
	return b
}

// first makes the first call, through the client, whose errors name the remedy.
func (b *bench) first(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, client.DefaultTimeout)
	defer cancel()
	return b.callClient(ctx)
}

func (b *bench) callClient(ctx context.Context) error {
	if b.Batch > 1 {
		_, err := b.handle.NextN(ctx, b.Batch)
		return err
	}
	_, err := b.handle.Next(ctx)
	return err
}

// call returns the function that gets IDs.
func (b *bench) call() func(context.Context) error {
	if b.bare() {
		return bareCall(b.nc, b.subject, b.Batch)
	}
	return b.callClient
}

// repeated returns how many requests the client has repeated.
func (b *bench) repeated() int64 {
	s := b.handle.Stats()
	return s.Hedges + s.Retries
}

// bareCall returns a request for n IDs, without the client.
func bareCall(nc *nats.Conn, subject string, n int) func(context.Context) error {
	var body []byte // an empty body requests one
	if n > 1 {
		body = strconv.AppendInt(nil, int64(n), 10)
	}
	return func(context.Context) error {
		reply, err := nc.Request(subject, body, bareTimeout)
		if err != nil {
			return err
		}
		if refused := subjects.ParseError(reply.Header); refused != nil {
			return refused
		}
		return holds(reply.Data, int64(n))
	}
}

// holds returns an error unless a reply holds n IDs.
func holds(reply []byte, n int64) error {
	runs, err := subjects.ParseRuns(reply)
	for _, r := range runs {
		n -= r.Len()
	}
	if err == nil && n != 0 {
		err = fmt.Errorf("it lacks %d IDs", n)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", client.ErrNotNatsid, err)
	}
	return nil
}

// nameOfError returns the name under which an error is counted: a code, if a worker refused.
func nameOfError(err error) string {
	if refused, ok := errors.AsType[*subjects.Error](err); ok {
		return refused.Code.String()
	}
	for _, e := range []struct {
		err  error
		name string
	}{
		{nats.ErrNoResponders, "no responders"}, {client.ErrNotServed, "no responders"},
		{nats.ErrTimeout, "timeout"}, {context.DeadlineExceeded, "timeout"},
		{client.ErrNotNatsid, "not natsid"}, {client.ErrBusy, "busy"},
		{nats.ErrConnectionClosed, "closed"}, {client.ErrClosed, "closed"},
	} {
		if errors.Is(err, e.err) {
			return e.name
		}
	}
	return "other"
}

// used returns how many IDs may have been used up.
func (b *bench) used() int64 {
	n := b.copiesIDs.Load()
	if b.bare() {
		n += b.natsid.Made * int64(b.Batch)
	}
	return n
}

// turns returns how many turns natsid has, and the length of each.
func (f *benchFlags) turns() (n int, each time.Duration) {
	n = max(5, int(f.Duration/longestTurn))
	each = f.Duration / time.Duration(n)
	if f.Rate > 0 { // a whole number of calls falls due in each turn, or the rate would be wrong
		each = time.Duration(min(float64(f.Duration), math.Ceil(f.Rate*each.Seconds())/f.Rate*1e9))
		n = max(1, int(f.Duration/each))
	}
	return n, each
}

// measure measures natsid and the echo in turns, until the time is over, no more IDs may be used up, or ctx ends.
func (b *bench) measure(ctx context.Context) {
	turns, each := b.turns()
	echo, err := startEcho(ctx, b.s, b.Batch)
	if err != nil {
		b.noEcho = err
	} else {
		defer echo.close()
	}
	b.announce()
	call, line := b.call(), time.Now()
	for i := range turns {
		left := (b.maxIDs - b.used() - b.ahead()) / int64(b.Batch)
		if b.spent = left < 1; b.spent || ctx.Err() != nil {
			return
		}
		before := b.copies.Load()
		load := b.load(left)
		n := load.Run(ctx, each, call)
		b.natsid.Add(n)
		b.requests += b.copies.Load() - before
		if b.bare() {
			b.requests += n.Made
		}
		e := echo.turn(ctx, b.load(0), each)
		b.echo.Add(e)
		if ctx.Err() == nil && e.Calls > 0 {
			b.ratios = append(b.ratios, n.PerSecond()/e.PerSecond())
		}
		if time.Since(line) >= min(b.Duration/10, 10*time.Second) || i == turns-1 {
			line = time.Now()
			b.progress(n, e)
		}
	}
}

// load returns how calls are made, at most limit; 0 means any number.
func (b *bench) load(limit int64) measure.Load {
	l := measure.Load{Callers: b.Callers, Rate: b.Rate, Limit: limit, Name: nameOfError}
	if b.Prefetch > 0 {
		l.Sample = 61 // a prime, so that effects at each n-th call are sampled
	}
	return l
}

// An echo is a responder for comparison with natsid. A nil one is never called.
type echo struct {
	ask, answer *nats.Conn
	call        func(context.Context) error
}

// startEcho starts a responder on a connection of its own, and returns once another connection has got an answer: the
// rights to do so may be missing.
func startEcho(ctx context.Context, s *session, batch int) (*echo, error) {
	ctx, stop := context.WithTimeout(ctx, bareTimeout)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	refused := func(missing *buckets.RightError) { end(missing) }
	e := new(echo)
	var err error
	if e.ask, err = s.dial(refused); err != nil {
		return nil, err
	}
	if e.answer, err = s.dial(refused); err != nil {
		e.ask.Close()
		return nil, err
	}
	reply := []byte(subjects.Run{First: 1_000_001, Last: 1_000_000 + int64(batch)}.String())
	subject := e.answer.NewInbox()
	_, err = e.answer.QueueSubscribe(subject, subjects.QueueGroup, func(m *nats.Msg) { _ = m.Respond(reply) })
	if err == nil {
		err = e.answer.FlushWithContext(ctx)
	}
	if err == nil {
		_, err = e.ask.RequestWithContext(ctx, subject, nil)
	}
	if err != nil {
		e.close()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	e.call = bareCall(e.ask, subject, batch)
	return e, nil
}

func (e *echo) turn(ctx context.Context, load measure.Load, length time.Duration) *measure.Figures {
	if e == nil || ctx.Err() != nil {
		return new(measure.Figures)
	}
	return load.Run(ctx, length, e.call)
}

func (e *echo) close() {
	e.ask.Close()
	e.answer.Close()
}
