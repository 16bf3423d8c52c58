// Package worker serves IDs over NATS: the endpoints and their queue group,
// and when a worker joins and leaves it. It decides nothing about IDs.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A Mode is what kind of request it is.
type Mode string

// The modes: the two kinds of IDs, and what operators ask about tags.
const (
	Segment   Mode = "segment"
	Snowflake Mode = "snowflake"
	Tags      Mode = "tags"
)

// Config says what a worker serves, and where. All fields but Observe and Log
// must be set.
type Config struct {
	Namespace subjects.Namespace
	// Version is shown by `nats micro ls`; a semantic version.
	Version string
	// Conn is the connection to serve on. The worker drains and closes it, so
	// nothing else may use it.
	Conn *nats.Conn
	// Segments and Store serve the tags.
	Segments *segment.Allocator
	Store    segment.Store
	// Snowflakes issues the snowflakes of Layout.
	Snowflakes *snowflake.Issuer
	Layout     snowflake.Layout
	// Number returns the worker number, whether one is held, and what to
	// answer, as JSON, to whoever asks that number who it is.
	Number func() (number int, held bool, who any)
	// Instance returns the worker's name, which tells whose figures are told.
	Instance func() string
	// MaxBatch is the most IDs one request may ask for.
	MaxBatch int
	// Deadline is by when each request has its answer.
	Deadline time.Duration
	// Observe, if set, is told of every answer. It must not block.
	Observe func(Answer)
	// Log receives what operators should know; nil discards.
	Log *slog.Logger
}

// An Answer is what became of one request.
type Answer struct {
	Mode   Mode
	Code   subjects.Code // OK if it got its IDs
	IDs    int
	Parked bool          // it had to wait,
	Waited time.Duration // so long
}

// A Worker serves the requests of one process.
type Worker struct {
	cfg      Config
	maxFlake int // most snowflakes one request may ask for
	admin    chan struct{}

	// arrived counts the requests, open those not answered yet: a worker that
	// stops waits until both stand still.
	arrived, open atomic.Int64

	stats atomic.Pointer[json.RawMessage] // what $SRV.STATS tells of the tags

	mu      sync.Mutex
	trouble error // why snowflakes are not served; nil while they are
}

// adminLimit bounds the requests about tags that are under way at once.
const adminLimit = 16

// New returns a worker. It serves nothing until it runs.
func New(cfg Config) *Worker {
	if cfg.Observe == nil {
		cfg.Observe = func(Answer) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &Worker{
		cfg: cfg,
		// What takes longer than half the deadline to issue could not be
		// promised to whoever comes behind it.
		maxFlake: int(min(int64(cfg.MaxBatch), cfg.Layout.Yield(cfg.Deadline/2))),
		admin:    make(chan struct{}, adminLimit),
		trouble:  snowflake.ErrNoNumber,
	}
	w.stats.Store(&noData)
	return w
}

// SnowflakeTrouble returns why snowflakes are not served, or nil while they
// are. It is safe for concurrent use.
func (w *Worker) SnowflakeTrouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}

// The worker looks every watchEvery whether it can issue snowflakes, and
// leaves the queue group leaveAhead before its window ends: then hardly a
// request is delivered to it that it must refuse.
const (
	watchEvery = 50 * time.Millisecond
	leaveAhead = 200 * time.Millisecond
)

// Run serves until ctx ends; then it leaves the queue group, answers what has
// been delivered to it, and closes the connection. It returns an error if it
// could not begin to serve.
func (w *Worker) Run(ctx context.Context) error {
	segments, err := w.serveSegments()
	var changes *hearing
	if err == nil {
		changes, err = w.listen()
	}
	if err != nil {
		w.cfg.Conn.Close()
		return err
	}
	var side sync.WaitGroup
	defer side.Wait()
	side.Go(func() { w.keepStats(ctx) })
	flakes := &flakeService{w: w}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		flakes.follow()
		changes.follow()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	changes.stop()
	w.stop(segments, flakes)
	return nil
}

func (w *Worker) serveSegments() (micro.Service, error) {
	ns := w.cfg.Namespace
	svc, err := w.addService(ns.SegmentService(), "IDs of tags, from ranges", w.statsOf)
	if err == nil {
		// One goroutine per subscription, so one taker each.
		err = w.addEndpoint(svc, subjects.SegmentEndpoint, ns.Segments(), (&segmentTaker{w: w}).handle)
	}
	if err == nil {
		err = w.addEndpoint(svc, "tag-create", ns.TagCreate(), w.admins(w.createTag))
	}
	if err == nil {
		err = w.addEndpoint(svc, "tag-update", ns.TagUpdate(), w.admins(w.updateTag))
	}
	if err == nil {
		err = w.addEndpoint(svc, "tag-delete", ns.TagDelete(), w.admins(w.deleteTag))
	}
	if err == nil {
		err = w.addEndpoint(svc, "tag-list", ns.TagList(), w.admins(w.listTags))
	}
	return svc, err
}

func (w *Worker) addService(name, description string, stats micro.StatsHandler) (micro.Service, error) {
	svc, err := micro.AddService(w.cfg.Conn, micro.Config{
		Name: name, Version: w.cfg.Version, Description: description, QueueGroup: subjects.QueueGroup, StatsHandler: stats,
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			w.cfg.Log.Error("the NATS client reports an error", "service", name, "subject", err.Subject, "error", err.Description)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: service %s: %w", name, err)
	}
	return svc, nil
}

func (w *Worker) addEndpoint(svc micro.Service, name, subject string, handle micro.HandlerFunc) error {
	if err := svc.AddEndpoint(name, handle, micro.WithEndpointSubject(subject)); err != nil {
		return fmt.Errorf("worker: endpoint %s: %w", subject, err)
	}
	return nil
}

// A flakeService is the snowflake service as far as it stands at the moment.
// Only the goroutine of Worker.Run uses it.
type flakeService struct {
	w      *Worker
	svc    micro.Service      // nil while down
	known  bool               // the server knows that it is up
	who    *nats.Subscription // on the number's own subject; nil while none
	number int                // that who answers to
}

// follow makes the service stand while snowflakes can be issued, and only
// then: callers go to other workers, or are told by NATS at once that there
// is none.
func (f *flakeService) follow() {
	f.followNumber()
	// Join when the next request need not wait; stay while it need not fail.
	patience := time.Duration(0)
	if f.svc != nil {
		patience = f.w.cfg.Deadline
	}
	trouble := f.w.cfg.Snowflakes.Ready(patience, leaveAhead)
	if up := f.svc != nil; (trouble == nil) != up || up && !f.known {
		trouble = f.change(trouble)
	}
	f.w.mu.Lock()
	f.w.trouble = trouble
	f.w.mu.Unlock()
}

// change puts the service up if there is no trouble, else down, and returns why
// it does not serve.
func (f *flakeService) change(trouble error) error {
	lost := f.w.cfg.Conn.FlushTimeout(flushTimeout)
	switch {
	case lost != nil:
		// The connection is lost, or about to be. Nothing may be changed now: when
		// it is back the NATS client would subscribe anew to what it is about to
		// leave, and then drop what comes. Callers would get no answer.
		if trouble == nil {
			trouble = fmt.Errorf("worker: the NATS server does not answer: %w", lost)
		}
		return trouble
	case trouble != nil:
		f.w.cfg.Log.Warn("no longer serving snowflakes", "reason", trouble)
		f.down()
		return trouble
	case f.svc == nil:
		if err := f.up(); err != nil {
			return err
		}
	}
	f.known = true
	f.w.cfg.Log.Info("serving snowflakes")
	return nil
}

func (f *flakeService) up() error {
	ns := f.w.cfg.Namespace
	svc, err := f.w.addService(ns.SnowflakeService(), "IDs from time, worker number and sequence", nil)
	if err == nil {
		err = f.w.addEndpoint(svc, "snowflake", ns.Snowflake(), (&flakeTaker{w: f.w}).handle)
	}
	if err == nil {
		err = f.w.addEndpoint(svc, "business", ns.Snowflakes(), (&flakeTaker{w: f.w}).handle)
	}
	f.svc, f.known = svc, false
	if err != nil {
		f.w.cfg.Log.Error("cannot serve snowflakes", "error", err)
		f.down()
		return err
	}
	// The server must know the subscriptions, those of segments too, before
	// anyone is told that they are served.
	return f.w.cfg.Conn.FlushTimeout(flushTimeout)
}

// flushTimeout is how long a server may take to answer before the connection
// counts as lost.
const flushTimeout = time.Second

// down leaves the queue group. What has been delivered is still answered.
func (f *flakeService) down() {
	if f.svc != nil {
		f.w.stopService(f.svc)
		f.svc = nil
	}
}

// followNumber answers on the subject of the worker number that is held, so
// that nobody takes the number, whatever the records say.
func (f *flakeService) followNumber() {
	number, held, _ := f.w.cfg.Number()
	if f.who != nil && (!held || number != f.number) {
		// It fails only on a connection that is gone, and the subscription with it.
		_ = f.who.Unsubscribe()
		f.who = nil
	}
	if f.who != nil || !held {
		return
	}
	sub, err := f.w.cfg.Conn.Subscribe(f.w.cfg.Namespace.Worker(number), f.w.answerWho)
	if err != nil {
		f.w.cfg.Log.Error("cannot answer for the worker number", "number", number, "error", err)
		return
	}
	f.who, f.number = sub, number
}

func (w *Worker) answerWho(m *nats.Msg) {
	_, _, who := w.cfg.Number()
	body, err := json.Marshal(who)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		w.cfg.Log.Debug("a reply was not sent", "error", err)
	}
}

func (w *Worker) stopService(svc micro.Service) {
	if err := svc.Stop(); err != nil {
		w.cfg.Log.Warn("a service did not stop cleanly", "service", svc.Info().Name, "error", err)
	}
}

// stop leaves the queue group, and closes the connection once every request
// that has been delivered is answered.
func (w *Worker) stop(segments micro.Service, flakes *flakeService) {
	w.stopService(segments)
	flakes.down()
	// It answers for its number until the last ID is issued: until the drain.
	stays := 0
	if flakes.who != nil {
		stays = 1
	}
	w.settle(stays)
	closed := w.cfg.Conn.StatusChanged(nats.CLOSED)
	if err := w.cfg.Conn.Drain(); err != nil {
		w.cfg.Log.Warn("the connection was not drained", "error", err)
		w.cfg.Conn.Close()
		return
	}
	select {
	case <-closed:
	case <-time.After(drainTimeout): // the server does not answer
		w.cfg.Conn.Close()
	}
}

// drainTimeout bounds the drain of the connection. What was asked is answered
// by then; only the server can hold it up.
const drainTimeout = 2 * time.Second

// settle waits until all subscriptions but the given number are gone and what
// they delivered is answered. A subscription is gone when its last request has been taken off
// its queue, which is a moment before the handler counts it: hence the
// counters must stand still for two looks.
func (w *Worker) settle(stays int) {
	const look = 10 * time.Millisecond
	still, arrived := 0, int64(-1)
	for until := time.Now().Add(w.cfg.Deadline + 2*time.Second); time.Now().Before(until) && still < 2; time.Sleep(look) {
		now := w.arrived.Load()
		if w.cfg.Conn.IsConnected() && w.cfg.Conn.NumSubscriptions() > stays || w.open.Load() > 0 || now != arrived {
			still = 0
		} else {
			still++
		}
		arrived = now
	}
}
