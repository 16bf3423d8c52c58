package worker

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A changes follows what workers tell all others. Messages about changed tags let
// a change made by any worker reach this one within milliseconds; a worker that
// misses one sees the change at its next load or poll. Only the goroutine of
// [Worker.Run] uses it.
type changes struct {
	cfg        *Config
	subs       []*nats.Subscription
	reconnects uint64 // of the connection, as of the last call of follow
}

// listen subscribes to the messages.
func listen(cfg *Config) (*changes, error) {
	c := &changes{cfg: cfg, reconnects: cfg.Conn.Stats().Reconnects}
	hears := map[string]nats.MsgHandler{cfg.Namespace.TagChanged(): c.hear}
	if cfg.Hear != nil {
		hears[cfg.Namespace.RegistryStore()] = func(m *nats.Msg) { cfg.Hear(m.Data) }
	}
	for subject, hear := range hears {
		sub, err := cfg.Conn.Subscribe(subject, hear)
		if err != nil {
			return nil, fmt.Errorf("worker: %s: %w", subject, err)
		}
		c.subs = append(c.subs, sub)
	}
	return c, nil
}

// hear looks up the tag that a message names.
func (c *changes) hear(m *nats.Msg) {
	tag := string(m.Data)
	if err := subjects.CheckTag(tag); err != nil {
		c.cfg.Log.Debug("a message names no tag", "subject", m.Subject, "error", err)
		return
	}
	c.cfg.Segments.Changed(tag)
}

// follow looks up all tags after a time without connection, in which messages
// were missed.
func (c *changes) follow() {
	if n := c.cfg.Conn.Stats().Reconnects; n != c.reconnects {
		c.reconnects = n
		c.cfg.Segments.Refresh()
	}
}

func (c *changes) stop() {
	for _, sub := range c.subs {
		// It fails only on a connection that is gone, and the subscription with it.
		_ = sub.Unsubscribe()
	}
}
