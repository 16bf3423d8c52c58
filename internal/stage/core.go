package stage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
)

// CoreConfig is the settings of a [Core]. All fields but Log must be set.
type CoreConfig struct {
	Conn  *nats.Conn
	From  string // the pattern of subjects to subscribe to
	Queue string // the queue group: each message goes to one of its members
	// Stamp gives the messages of a batch IDs: [stamp.Stamper.Msgs].
	Stamp    func(context.Context, []*nats.Msg) error
	Subject  func(string) string // the subject of a copy
	Existing Existing            // BuryID and StopAtID: the message is dropped
	Log      *slog.Logger
}

// A Core publishes each message that it receives with an ID, without JetStream: at most once. Messages that it holds
// are lost if it is killed; messages beyond its bounds are dropped and counted. No two messages have the same ID:
// each copy gets an ID of its own from package client, and is published once. Its methods are safe for concurrent
// use; Run is called once.
type Core struct {
	cfg    CoreConfig
	missed uint64 // messages that the subscription dropped, at the last count
	noted
}

// NewCore returns a Core that is not running yet.
func NewCore(cfg CoreConfig) *Core {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Core{cfg: cfg}
}

// Bounds of the messages that wait for IDs, and of the time for them when the Core stops.
const (
	coreMessages = 65_536
	coreBytes    = 64 << 20
	coreStop     = 5 * time.Second
)

// Run copies until ctx ends. Then it leaves the queue group, and copies the messages received before, for 5 s at
// most. The error is a [Stop].
func (c *Core) Run(ctx context.Context) error {
	sub, err := c.cfg.Conn.QueueSubscribeSync(c.cfg.From, c.cfg.Queue)
	if err == nil {
		err = sub.SetPendingLimits(coreMessages, coreBytes)
	}
	if err == nil {
		err = c.cfg.Conn.FlushTimeout(answersWithin)
	}
	if err != nil {
		return stop("%s cannot be heard: %v", c.cfg.From, err)
	}
	c.note(func(p *Progress) { p.Role = Copying })
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() {
		_ = sub.Drain() // it fails on a closed connection, where no message can arrive
		time.AfterFunc(coreStop, cancel)
	})
	for {
		m, err := sub.NextMsgWithContext(last)
		if errors.Is(err, nats.ErrSlowConsumer) {
			c.cfg.Log.Error("messages come faster than they can be stamped, and some are dropped: " +
				"run more stages, which share the work")
			continue
		}
		if err != nil && ctx.Err() == nil {
			return stop("%s is not heard any more: %v", c.cfg.From, err)
		}
		if err != nil {
			return c.cfg.Conn.FlushTimeout(coreStop)
		}
		if err := c.pass(last, c.batch(m, sub), sub); err != nil {
			return err
		}
	}
}

// batch returns copies of a message and of the messages that wait after it.
func (c *Core) batch(m *nats.Msg, sub *nats.Subscription) []*nats.Msg {
	var msgs []*nats.Msg
	waiting, _, _ := sub.Pending() // 0 once it is closed
	for {
		if copied, err := c.copyOf(m); err == nil {
			msgs = append(msgs, copied)
		} else {
			c.cfg.Log.Warn("a message is dropped", "subject", m.Subject, "error", err)
			c.note(func(p *Progress) { p.Dropped++ })
		}
		waiting--
		var err error
		if waiting < 0 || len(msgs) == batchMessages {
			return msgs
		}
		if m, err = sub.NextMsg(time.Millisecond); err != nil {
			return msgs
		}
	}
}

// copyOf returns the copy of a message, without its ID. The copy keeps the subject for replies.
func (c *Core) copyOf(m *nats.Msg) (*nats.Msg, error) {
	to := &nats.Msg{Subject: c.cfg.Subject(m.Subject), Reply: m.Reply, Data: m.Data, Header: own(m.Header, 2)}
	if err := c.cfg.Existing.treat(to); err != nil {
		return nil, err
	}
	if size, most := to.Size()+idBytes, int(c.cfg.Conn.MaxPayload()); size > most {
		return nil, fmt.Errorf("it has %d bytes with its ID, and the server accepts %d", size, most)
	}
	return to, nil
}

// pass gives messages IDs and publishes them. It waits for IDs until ctx ends: messages that arrive in that time wait
// in the subscription.
func (c *Core) pass(ctx context.Context, msgs []*nats.Msg, sub *nats.Subscription) error {
	pauses := jitter.NewBackoff(100*time.Millisecond, 2*time.Second)
	for {
		err := unlessRefused(c.cfg.Stamp(ctx, msgs))
		if err == nil {
			break
		}
		if _, refused := errors.AsType[*Stop](err); refused {
			return err
		}
		if ctx.Err() != nil {
			c.note(func(p *Progress) { p.Dropped += uint64(len(msgs)) })
			return stop("%d messages were dropped: natsid gave no IDs before the stop: %v", len(msgs), err)
		}
		pause := pauses.NextBackOff()
		c.cfg.Log.Warn("natsid gives no IDs; messages wait", "error", err, "in", pause)
		c.note(func(p *Progress) {
			p.Role, p.Why, p.Since, p.Retries = Retrying, err.Error(), time.Now(), p.Retries+1
		})
		sleep(ctx, pause)
	}
	for _, m := range msgs {
		if err := c.cfg.Conn.PublishMsg(m); err != nil {
			return stop("copies cannot be published: %v", err)
		}
	}
	waiting, _, _ := sub.Pending()
	dropped := c.missed
	if n, err := sub.Dropped(); err == nil { // it is -1 once a drained subscription is closed
		dropped = uint64(n)
	}
	c.note(func(p *Progress) {
		p.Role, p.Why, p.Behind = Copying, "", uint64(waiting)
		p.Copied += uint64(len(msgs))
		p.Batches++
		p.Dropped += dropped - c.missed
	})
	c.missed = dropped
	return nil
}
