package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/stamp"
)

type stampCmd struct {
	From      string `required:""`
	To        string `required:""`
	Tag       string
	Snowflake bool
	Subject   string `default:">"`
	Into      string `default:"stamped.>"`
	Create    bool
	Existing  string `default:"stop" enum:"stop,keep,replace"`
	KeepMsgID bool   `name:"keep-msg-id"`
	Once      bool
	HTTP      string `name:"http" placeholder:"HOST:PORT"`
}

func (*stampCmd) help() help {
	return help{
		summary: "Copy a stream to another, each message with an ID, exactly once.",
		detail: `Each message is published with its headers, but for those of NATS, with its
ID in Natsid-Id, and with Natsid-Source: its stream, when that was made, and its
sequence. The position is the target's last message. So every message of the source
is in the target once and in order, however often the command is killed, and
however many run: of two, one copies, and the other takes over within 5 s.

Examples:
  natsid stamp --from ORDERS --to ORDERS_STAMPED --tag order --create
  natsid stamp --from ORDERS --to ORDERS_STAMPED --snowflake --once
  natsid stamp --from EVENTS --to IDS --tag event --subject 'events.>' --into 'ids.>'`,
		values: map[string]string{
			"from":      "The stream to copy. It must have limits retention.",
			"to":        "The stream to copy to. Nothing else may publish to it.",
			"tag":       tagForm,
			"snowflake": "Use snowflakes as IDs, instead of those of a tag.",
			"subject":   "The subjects of the source: one that ends with >, or > alone.",
			"into":      "What the copies' subjects begin with, in place of --subject.",
			"create":    "Create the target if there is none, and let it take atomic batches.",
			"existing": "What becomes of a message that has a Natsid-Id already: stop at it, keep the ID, " +
				"or replace it. With keep, its producer answers for its uniqueness.",
			"keep-msg-id": "Copy Nats-Msg-Id, as Natsid-Msg-Id.",
			"once":        "Stop when all that the source holds is copied.",
			"http":        "Serve /healthz, /readyz and /metrics here.",
		},
	}
}

// stampJSON is what a stage has done.
type stampJSON struct {
	Copied   uint64 `json:"copied"`   // by this process
	Position uint64 `json:"position"` // the last message of the source that is in the target
	Behind   uint64 `json:"behind"`   // messages of the source that are not
}

// Run implements the command.
func (c *stampCmd) Run(s *session) error {
	if err := c.check(); err != nil {
		return usage(err)
	}
	l, err := c.listen()
	if err != nil {
		return err
	}
	if l != nil {
		defer l.Close()
	}
	nc, err := s.connect(nats.MaxReconnects(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := s.jetStream(nc)
	if err != nil {
		return err
	}
	line := newStatusLine(s.stderr)
	log := slog.New(slog.NewTextHandler(line, nil))
	ids := client.New(nc, client.Namespace(s.namespace()), client.Log(log))
	defer ids.Close()
	handle := ids.Snowflake()
	if c.Tag != "" {
		handle = ids.Segment(c.Tag)
	}
	to := stage.TargetOn(js, c.To, string(s.namespace())+"_stamp")
	if c.Create {
		if err := c.create(s, to, log); err != nil {
			return err
		}
	}
	st := stage.New(stage.Config{
		Source: stage.SourceOn(js, c.From), SourceName: c.From, Target: to, Largest: to.Largest,
		Stamp: stamp.New(handle).Msgs, Subject: c.mapped, Existing: stage.Existing(c.Existing),
		KeepMsgID: c.KeepMsgID, Once: c.Once, Log: log,
	})
	end := c.watch(s, l, line, log, st.Progress)
	err = st.Run(s.ctx)
	end()
	if err != nil {
		return err
	}
	p := st.Progress()
	return s.print(stampJSON{p.Copied, p.Position, p.Behind}, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "%d messages copied, up to message %d of %s\n", p.Copied, p.Position, c.From)
		return err
	})
}

// create makes the target, however long JetStream is away.
func (c *stampCmd) create(s *session, to *stage.Stream, log *slog.Logger) error {
	for {
		err := to.Create(s.ctx, []string{c.Into})
		if err == nil || isA[*stage.Stop](err) || s.ctx.Err() != nil {
			return err
		}
		log.Warn("the target cannot be made yet", "error", err)
		tick(s.ctx, time.Second)
	}
}

func (c *stampCmd) check() error {
	if (c.Tag == "") == !c.Snowflake {
		return errors.New("want either --tag or --snowflake")
	}
	if c.Tag != "" {
		if err := checkTag(c.Tag); err != nil {
			return err
		}
	}
	for flag, pattern := range map[string]string{"subject": c.Subject, "into": c.Into} {
		prefix, ok := strings.CutSuffix(pattern, ">")
		if !ok || strings.ContainsAny(prefix, "*> \t\r\n") || prefix != "" && !strings.HasSuffix(prefix, ".") {
			return fmt.Errorf("--%s %q: want a subject that ends with >, without other wildcards", flag, pattern)
		}
	}
	if c.From == c.To {
		return fmt.Errorf("--to %s is --from: copy to another stream", c.To)
	}
	return nil
}

// mapped returns the subject of a copy; "" if the subject is not one of --subject.
func (c *stampCmd) mapped(subject string) string {
	rest, ok := strings.CutPrefix(subject, strings.TrimSuffix(c.Subject, ">"))
	if !ok {
		return ""
	}
	return strings.TrimSuffix(c.Into, ">") + rest
}
