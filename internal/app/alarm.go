package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/subjects"
)

// keptAlarms is how many alarms wait at most while NATS is away.
const keptAlarms = 16

// alarms reports events that an operator must look at: in the log, in the
// metrics, and as messages on NATS.
type alarms struct {
	log   *slog.Logger
	count func(subjects.Alarm)
	queue chan subjects.AlarmEvent // not published yet

	// What publish needs, set before it runs.
	conn      *nats.Conn
	namespace subjects.Namespace
	instance  func() string
}

func newAlarms(log *slog.Logger, count func(subjects.Alarm)) *alarms {
	return &alarms{log: log, count: count, queue: make(chan subjects.AlarmEvent, keptAlarms)}
}

// raise reports an event. It does not block, and may be called at any time, with
// any lock held: the message is queued, and the oldest one dropped if too many
// wait.
func (a *alarms) raise(kind subjects.Alarm, message string) {
	a.log.Error("alarm", "kind", kind, "message", message, "do", remedy(kind))
	a.count(kind)
	event := subjects.AlarmEvent{Kind: kind, Message: message, Time: time.Now().UTC()}
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

// remedy returns what an operator does about a kind of alarm.
func remedy(kind subjects.Alarm) string {
	for _, a := range subjects.Alarms() {
		if a.Kind == kind {
			return a.Do
		}
	}
	return ""
}

func (a *alarms) unpublished(e subjects.AlarmEvent, why any) {
	a.log.Warn("an alarm was not published on NATS; its line in this log remains",
		"kind", e.Kind, "message", e.Message, "reason", why)
}

// publish publishes alarms until ctx ends and the queue is empty, but no
// longer than a second after that.
func (a *alarms) publish(ctx context.Context) error {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })()
	for ctx.Err() == nil || len(a.queue) > 0 {
		select {
		case e := <-a.queue:
			a.publishOne(late, e)
		case <-ctx.Done():
		}
	}
	return nil
}

// publishOne publishes an alarm until a flush shows that the server has it, or
// ctx ends: what is sent on a connection that hangs is lost. Subscribers may
// receive it more than once, with the same time.
func (a *alarms) publishOne(ctx context.Context, e subjects.AlarmEvent) {
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
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			a.unpublished(e, err)
			return
		}
	}
}

func (a *alarms) tryPublish(ctx context.Context, kind subjects.Alarm, body []byte) error {
	if err := a.conn.Publish(a.namespace.Alarm(kind), body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return a.conn.FlushWithContext(ctx)
}
