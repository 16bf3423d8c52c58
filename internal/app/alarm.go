package app

import (
	"context"
	"encoding/json"
	"time"

	"github.com/natsid/natsid/subjects"
)

// keptAlarms is how many alarms wait at most while NATS is away.
const keptAlarms = 16

// alarm reports an event that an operator must look at: in the log, in the
// metrics, and as a message on NATS. It does not block, and may be called at any
// time, with any lock held: the message is queued, and the oldest one dropped if
// too many wait.
func (p *program) alarm(kind subjects.Alarm, message string) {
	p.cfg.Log.Error("alarm", "kind", kind, "message", message, "do", remedy(kind))
	p.metrics.Alarmed(kind)
	event := subjects.AlarmEvent{Kind: kind, Message: message, Time: time.Now().UTC()}
	for {
		select {
		case p.alarms <- event:
			return
		default:
		}
		select {
		case old := <-p.alarms:
			p.unpublished(old, "too many wait for NATS")
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

func (p *program) unpublished(e subjects.AlarmEvent, why any) {
	p.cfg.Log.Warn("an alarm was not published on NATS; its line in this log remains",
		"kind", e.Kind, "message", e.Message, "reason", why)
}

// publishAlarms publishes alarms until ctx ends and the queue is empty, but no
// longer than a second after that.
func (p *program) publishAlarms(ctx context.Context) error {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })()
	for ctx.Err() == nil || len(p.alarms) > 0 {
		select {
		case e := <-p.alarms:
			p.publishAlarm(late, e)
		case <-ctx.Done():
		}
	}
	return nil
}

// publishAlarm publishes an alarm until a flush shows that the server has it, or
// ctx ends: what is sent on a connection that hangs is lost. Subscribers may
// receive it more than once, with the same time.
func (p *program) publishAlarm(ctx context.Context, e subjects.AlarmEvent) {
	e.Instance = p.keeper.Status().Instance
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot be: strings and a time
	}
	for {
		err := p.tryPublish(ctx, e.Kind, body)
		if err == nil {
			return
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			p.unpublished(e, err)
			return
		}
	}
}

func (p *program) tryPublish(ctx context.Context, kind subjects.Alarm, body []byte) error {
	if err := p.links.control.Publish(p.cfg.Namespace.Alarm(kind), body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return p.links.control.FlushWithContext(ctx)
}
