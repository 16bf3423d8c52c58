package cli

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
)

type stampStatusCmd struct{ pipeline }

func (*stampStatusCmd) help() help {
	return help{
		summary: "Show how far a source is copied.",
		detail: `Example:
  natsid stamp status --from ORDERS --to ORDERS_STAMPED`,
	}
}

type stampRepairCmd struct {
	pipeline
	consent
}

func (*stampRepairCmd) help() help {
	return help{
		summary: "Let stages that have stopped over foreign, removed or missed messages continue.",
		detail: `Stages stop if the target got other messages, if copies were removed from it, or if
messages left the source before they were copied. This shows where stages would
continue, and lets them if you agree. If a copy was removed, its message is copied
again, with another ID; a message that left the source is never copied.

Example:
  natsid stamp repair --from ORDERS --to ORDERS_STAMPED`,
	}
}

type stampStatusJSON struct {
	Position uint64 `json:"position"` // sequence in the source up to which messages are copied or passed over
	Behind   uint64 `json:"behind"`   // number of messages in the source after Position
	Foreign  uint64 `json:"foreign"`  // messages at the target's end that no stage wrote
	Gone     uint64 `json:"gone"`     // messages that were removed from the target's end
	Missed   uint64 `json:"missed"`   // messages that left the source before they were copied
	Why      string `json:"why,omitempty"`
}

func (j stampStatusJSON) isSound() bool { return j.Foreign+j.Gone+j.Missed == 0 }

func (j stampStatusJSON) print(out *sheet) {
	out.row("position", j.Position)
	out.row("behind", j.Behind)
	if !j.isSound() {
		out.row("foreign", j.Foreign)
		out.row("gone", j.Gone)
		out.row("missed", j.Missed)
		out.line("stages stop: %s", j.Why)
	}
}

func (c *stampStatusCmd) Run(s *session) error {
	return c.look(s, func(_ *stage.Stream, _ stage.Hint, j stampStatusJSON) error { return s.print(j, j.print) })
}

func (c *stampRepairCmd) Run(s *session) error {
	return c.look(s, func(to *stage.Stream, hint stage.Hint, j stampStatusJSON) error {
		if j.isSound() {
			return s.print(j, func(out *sheet) { out.line("nothing to repair: stages can continue") })
		}
		question := "Is no copy gone, and shall stages continue"
		if j.Missed > 0 {
			question += " without " + numberOf(int(j.Missed), "message")
		}
		return s.change(c.consent, question+"?", j, j.print, func() error {
			if err := to.SetHint(s.ctx, hint); err != nil {
				return err
			}
			j.Why = ""
			return s.print(j, func(out *sheet) {
				out.line("done: stages continue after message %d of %s; start those that stopped", j.Position, c.From)
			})
		})
	})
}

// look calls f with the target stream, the position (hint) that a repair would store, and how far the source is copied.
func (p *pipeline) look(s *session, f func(*stage.Stream, stage.Hint, stampStatusJSON) error) error {
	if err := p.check(); err != nil {
		return usage(err)
	}
	return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
		cfg, to := p.stage(s, js)
		r, err := stage.New(cfg).Status(ctx)
		if err != nil {
			return err
		}
		return f(to, r.Hint, stampStatusJSON{r.Position.Seq, r.Behind, r.Foreign, r.Gone, r.Missed, r.Why})
	})
}
