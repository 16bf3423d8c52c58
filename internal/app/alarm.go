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

// unpublishedAlarms is how many alarms may wait while NATS cannot be reached. A further alarm displaces the oldest.
const unpublishedAlarms = 16

// alarmedOf is how many objects, such as tags, have a limit of their own for each kind of alarm: the first alarm about
// an object in a minute is reported at once, and the last of the others when the minute ends. All further objects share
// one limit.
const alarmedOf = 10

// alarms reports events that an operator must look at: in the log, in the metrics, and as messages on NATS.
type alarms struct {
	log   *slog.Logger
	count func(wire.Alarm)     // called for each alarm raised
	held  func(wire.Alarm)     // called for each alarm held back
	queue chan wire.AlarmEvent // alarms that are not published yet

	limits map[wire.Alarm]*loglimit.Limiter[string, wire.AlarmEvent] // each limits by object

	mu   sync.Mutex
	open map[wire.Alarm]openAlarm // the last alarm of each kind; it is not open if older than openFor
}

// An openAlarm is an alarm and the object that it is about; "" if it is about none.
type openAlarm struct {
	wire.OpenAlarm
	about string
}

// openFor is how long an alarm stays open after it was last raised. Its alert in Prometheus fires as long.
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

// raise reports an event in the log, and queues its message for NATS. If too many messages wait, the oldest is dropped.
// raise does not block, and the caller may hold any lock.
func (a *alarms) raise(kind wire.Alarm, message string) { a.raiseAbout(kind, "", message) }

// raiseAbout is raise for an alarm about one of many objects, such as tags: see alarmedOf.
func (a *alarms) raiseAbout(kind wire.Alarm, about, message string) {
	event := wire.AlarmEvent{Kind: kind, Message: message, Time: time.Now().UTC()}
	a.keepOpen(about, event)
	if a.limits[kind].Hold(about, event) {
		a.held(kind)
		return
	}
	a.report(event)
}

// keepOpen records an alarm as open, even if the limit of its object holds back the report.
func (a *alarms) keepOpen(about string, e wire.AlarmEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := e.Time
	if before, ok := a.open[e.Kind]; ok && e.Time.Sub(before.Last) < openFor {
		since = before.Since
	}
	a.open[e.Kind] = openAlarm{wire.OpenAlarm{Kind: e.Kind, Since: since, Last: e.Time, Message: e.Message}, about}
}

// end closes the open alarm of a kind, if the alarm is about this object.
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

// releaseHeld reports the alarms that the limits hold back.
func (a *alarms) releaseHeld() {
	for _, limit := range a.limits {
		limit.Flush(func(a, b wire.AlarmEvent) int { return a.Time.Compare(b.Time) })
	}
}

// report logs and counts an event, and queues its message for NATS.
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

// publish publishes the alarms of this worker until ctx ends. Then, for at most a second, it publishes the alarms that
// still wait and those that the limits held back.
func (a *alarms) publish(ctx context.Context, nc *nats.Conn, ns subjects.Namespace, instance string) {
	send := func(ctx context.Context, e wire.AlarmEvent) {
		e.Instance = instance
		if err := publishOne(ctx, nc, ns, e); err != nil {
			a.unpublished(e, err)
		}
	}
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })()
	for ctx.Err() == nil {
		select {
		case e := <-a.queue:
			send(late, e)
		case <-ctx.Done():
		}
	}
	a.releaseHeld()
	for len(a.queue) > 0 {
		send(late, <-a.queue)
	}
}

// publishOne publishes an alarm, and repeats it until a flush proves that the server has it. It returns an error if ctx
// ends first. Subscribers may receive the alarm more than once, with the same time.
func publishOne(ctx context.Context, nc *nats.Conn, ns subjects.Namespace, e wire.AlarmEvent) error {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot happen: the event has only strings, a number and a time
	}
	for {
		if err = nc.Publish(wire.AlarmSubject(ns, e.Kind), body); err == nil {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			err = nc.FlushWithContext(attempt)
			cancel()
		}
		if err == nil || jitter.Sleep(ctx, 250*time.Millisecond) != nil {
			return err
		}
	}
}
