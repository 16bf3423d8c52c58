package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/subjects"
)

// checkCore returns the fault of the flags of a stage without JetStream. It sets the flags that follow from --core.
func (c *stampCmd) checkCore() error {
	for flag, given := range map[string]bool{
		"from": c.From != "", "to": c.To != "", "subject": c.Subject != ">", "tag-from": c.TagFrom.tag != nil,
		"filter": len(c.Filter) > 0, "dead-letter": c.DeadLetter != "", "keep-ttl": c.KeepTTL,
		"since": !c.Since.IsZero(), "create": c.Create, "once": c.Once,
		"repair": c.Repair, "status": c.Status,
	} {
		if given {
			return fmt.Errorf("--%s is for streams, and --core copies without: leave one out", flag)
		}
	}
	if c.Existing == stage.BuryID {
		return errors.New("--existing dead-letter is for streams: with --core, stop drops such messages")
	}
	if stage.Overlap(c.Core, c.Into) {
		return fmt.Errorf("--into %s has subjects of --core %s: copies would be copied again", c.Into, c.Core)
	}
	c.From, c.To, c.Subject = c.Core, c.Into, c.Core
	return nil
}

// runCore copies without JetStream.
func (c *stampCmd) runCore(s *session, nc *nats.Conn, l net.Listener, log *slog.Logger,
	ids *client.Client) error {
	stampAs := c.stamp(ids)
	core := stage.NewCore(stage.CoreConfig{
		Conn: nc, From: c.Core, Queue: subjects.StampQueue(c.Into), Subject: c.mapped,
		Stamp:    func(ctx context.Context, msgs []*nats.Msg) error { return stampAs(ctx, "", msgs) },
		Existing: c.Existing, Log: log,
	})
	end := c.watch(s, nc, l, log, core.Progress)
	err := core.Run(s.ctx)
	end()
	if missing := s.missing(); missing != nil {
		return missing
	}
	if err != nil {
		return err
	}
	p := core.Progress()
	return s.print(stampJSON{Copied: p.Copied, Dropped: p.Dropped}, func(out io.Writer) {
		fmt.Fprintf(out, "%d messages copied from %s, %d dropped\n", p.Copied, c.Core, p.Dropped)
	})
}
