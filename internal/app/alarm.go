package app

import (
	"context"
	"encoding/json"
	"time"

	"github.com/natsid/natsid/subjects"
)

// keptAlarms is how many alarms wait at most while NATS is away.
const keptAlarms = 16

// alarm tells operators of an event that needs a look: in the log, in the
// metrics, and as a message for whoever listens on NATS. kind is one of
// [subjects.Alarms]. It does not block, and may be called at any time, with any
// lock held.
func (p *program) alarm(kind subjects.Alarm, message string) {
	p.cfg.Log.Error("alarm", "kind", kind, "message", message)
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

func (p *program) unpublished(e subjects.AlarmEvent, why any) {
	p.cfg.Log.Warn("an alarm was not published", "kind", e.Kind, "message", e.Message, "reason", why)
}

// publishAlarms publishes alarms until ctx ends and none is left, but not for
// more than a second after that.
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

// publishAlarm publishes an alarm, again and again until the server has it or
// ctx ends: what is sent on a connection that hangs is lost.
func (p *program) publishAlarm(ctx context.Context, e subjects.AlarmEvent) {
	e.Instance = p.keeper.Status().Instance
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot be: strings and a time
	}
	for {
		if err = p.tryPublish(ctx, e.Kind, body); err == nil {
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
