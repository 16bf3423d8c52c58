package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/loglimit"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// unpublishedAlarms is how many alarms wait at most while NATS is out of reach.
const unpublishedAlarms = 16

// alarmedOf is how many objects, such as tags, can each have an alarm of one kind within a minute. Further alarms are
// held back: they are counted, and the last one about an object is raised when its minute ends.
const alarmedOf = 10

// alarms reports events that an operator must look at: in the log, in the metrics, and as messages on NATS.
type alarms struct {
	log   *slog.Logger
	count func(wire.Alarm)     // called for each alarm raised
	held  func(wire.Alarm)     // called for each alarm held back
	queue chan wire.AlarmEvent // alarms not published yet

	// Used by publish, and set before it runs.
	conn      *nats.Conn
	namespace subjects.Namespace
	instance  func() string

	limits map[wire.Alarm]*loglimit.Limiter[string, wire.AlarmEvent] // by object

	mu   sync.Mutex
	open map[wire.Alarm]openAlarm // the last alarm of each kind, also if it is over
}

// An openAlarm is an alarm, and the object that it is about; "" if there is none.
type openAlarm struct {
	wire.OpenAlarm
	about string
}

// openFor is how long an alarm stays open after it was last raised: as long as its alert in Prometheus fires.
const openFor = 15 * time.Minute

func newAlarms(log *slog.Logger, count, held func(wire.Alarm)) *alarms {
	a := &alarms{
		log: log, count: count, held: held, queue: make(chan wire.AlarmEvent, unpublishedAlarms),
		limits: make(map[wire.Alarm]*loglimit.Limiter[string, wire.AlarmEvent]),
		open:   make(map[wire.Alarm]openAlarm),
	}
	for _, info := range wire.Alarms() {
		a.limits[info.Kind] = loglimit.NewLimiter[string](alarmedOf, func(last wire.AlarmEvent, left int) {
			last.HeldBack = left
			a.report(last)
		})
	}
	return a
}

// raise reports an event in the log, and queues a message on NATS; if too many wait, the oldest is dropped. It does not
// block, and may be called at any time, with any lock held.
func (a *alarms) raise(kind wire.Alarm, message string) { a.raiseAbout(kind, "", message) }

// raiseAbout is raise for a kind that may concern many objects, such as tags. Each object has its own minute in which
// further alarms about it are held back.
func (a *alarms) raiseAbout(kind wire.Alarm, about, message string) {
	event := wire.AlarmEvent{Kind: kind, Message: message, Time: time.Now().UTC()}
	a.keepOpen(about, event)
	if a.limits[kind].Hold(about, event) {
		a.held(kind)
		return
	}
	a.report(event)
}

// keepOpen records an alarm as open, whether or not it is held back.
func (a *alarms) keepOpen(about string, e wire.AlarmEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := e.Time
	if before, ok := a.open[e.Kind]; ok && e.Time.Sub(before.Last) < openFor {
		since = before.Since
	}
	a.open[e.Kind] = openAlarm{wire.OpenAlarm{Kind: e.Kind, Since: since, Last: e.Time, Message: e.Message}, about}
}

// end ends the alarm of a kind if its last one was about that object.
func (a *alarms) end(kind wire.Alarm, about string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[kind].about == about {
		delete(a.open, kind)
	}
}

// nowOpen returns the open alarms, the latest first.
func (a *alarms) nowOpen() []wire.OpenAlarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []wire.OpenAlarm
	for _, o := range a.open {
		if time.Since(o.Last) < openFor {
			all = append(all, o.OpenAlarm)
		}
	}
	slices.SortFunc(all, func(x, y wire.OpenAlarm) int { return y.Last.Compare(x.Last) })
	return all
}

// overloaded raises the alarm for a mode that gets more requests than it can answer.
func (a *alarms) overloaded(mode worker.Mode) {
	a.raise(wire.AlarmOverload, fmt.Sprintf(
		"requests of the mode %s arrive faster than this worker answers them, for a second or longer", mode))
}

// releaseHeld reports the alarms that are held back.
func (a *alarms) releaseHeld() {
	for _, limit := range a.limits {
		limit.Flush(func(a, b wire.AlarmEvent) int { return a.Time.Compare(b.Time) })
	}
}

// report logs and counts an event, and queues it.
func (a *alarms) report(event wire.AlarmEvent) {
	attrs := []any{"kind", event.Kind, "message", event.Message, "do", event.Kind.Remedy()}
	if event.HeldBack > 0 {
		attrs = append(attrs, "held_back", event.HeldBack)
	}
	a.log.Error("alarm", attrs...)
	a.count(event.Kind)
	for {
		select {
		case a.queue <- event:
			return
		default:
		}
		select {
		case old := <-a.queue:
			a.unpublished(old, "too many wait for NATS")
		default:
		}
	}
}

func (a *alarms) unpublished(e wire.AlarmEvent, why any) {
	a.log.Warn("an alarm was not published on NATS; its line in this log remains",
		"kind", e.Kind, "message", e.Message, "reason", why)
}

// publish publishes alarms until ctx ends. Then it publishes those that wait or were held back, for at most a second.
func (a *alarms) publish(ctx context.Context) error {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })()
	for ctx.Err() == nil {
		select {
		case e := <-a.queue:
			a.publishOne(late, e)
		case <-ctx.Done():
		}
	}
	a.releaseHeld()
	for len(a.queue) > 0 {
		a.publishOne(late, <-a.queue)
	}
	return nil
}

// publishOne publishes an alarm again and again until a flush proves that the server has it, or ctx ends. Subscribers
// may receive it more than once, with the same time.
func (a *alarms) publishOne(ctx context.Context, e wire.AlarmEvent) {
	e.Instance = a.instance()
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot be: strings and a time
	}
	for {
		err := a.tryPublish(ctx, e.Kind, body)
		if err == nil {
			return
		}
		if jitter.Sleep(ctx, 250*time.Millisecond) != nil {
			a.unpublished(e, err)
			return
		}
	}
}

func (a *alarms) tryPublish(ctx context.Context, kind wire.Alarm, body []byte) error {
	if err := a.conn.Publish(wire.AlarmSubject(a.namespace, kind), body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return a.conn.FlushWithContext(ctx)
}
