package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/stamp"
)

type stampCmd struct {
	Run    stampRunCmd    `cmd:"" default:"withargs"`
	Status stampStatusCmd `cmd:""`
	Repair stampRepairCmd `cmd:""`
}

func (*stampCmd) help() help {
	return help{summary: "Copy streams to others, each message with an ID."}
}

// pipeline has the flags of all `natsid stamp` commands: which streams a stage copies from and to.
type pipeline struct {
	From   string   `required:"" placeholder:"STREAM"`
	To     string   `required:"" placeholder:"STREAM"`
	Filter []string `sep:"none" placeholder:"SUBJECT"`
}

type stampRunCmd struct {
	pipeline
	Tag       tagName `xor:"ids"`
	Snowflake bool    `xor:"ids"`
	Subject   string  `default:">"`
	Into      string  `default:"stamped.>"`
	Create    bool
	Existing  stage.Existing `default:"stop" enum:"stop,keep,dead-letter"`

	DeadLetter string `name:"dead-letter" placeholder:"SUBJECT"`
	Since      since
	Once       bool
	HTTP       string `name:"http" placeholder:"HOST:PORT"`
}

func (*stampRunCmd) help() help {
	return help{
		summary: "Copy each message of a stream to another once, with an ID; the default of stamp.",
		detail: `A copy has the headers of its message, except those of NATS; an ID in Natsid-Id;
and in Natsid-Source the stream, when the stream was created, the sequence, and the
time of the message. The target's last message says where to continue. So every
message of the source is in the target once and in order, however often the command
is killed, and however many run: of two, one copies, and the other takes over within
5 s.

Examples:
  natsid stamp --from ORDERS --to ORDERS_STAMPED --tag order --create
  natsid stamp --from ORDERS --to ORDERS_STAMPED --snowflake --once
  natsid stamp --from EVENTS --to IDS --tag event --subject 'events.>' --into 'ids.>'
  natsid stamp status --from ORDERS --to ORDERS_STAMPED`,
		values: map[string]string{
			"snowflake": "Use snowflakes as IDs, instead of those of a tag.",
			"subject":   "The subjects of the source: one that ends with >, or > alone.",
			"into":      "What the copies' subjects begin with, in place of --subject.",
			"create":    "Create the target for the subjects of the copies, and let it take atomic batches.",
			"existing": "What becomes of a message that has a Natsid-Id already: stop at it, keep the ID, or " +
				"dead-letter the message. With keep, the producer of the message must see to unique IDs.",
			"dead-letter": "The subject for messages that cannot be copied, such as one that is too large with " +
				"an ID. A stream must take it. Each is sent there at least once. Without it, such a message stops " +
				"the stage.",
			"since": "Begin with the messages since a time, such as 2026-01-31T12:00:00Z, or of an age, such as 90m. " +
				"It has an effect only if nothing was copied yet.",
			"once": "Stop when all that the source holds is copied.",
			"http": "Serve /healthz, /readyz and /metrics here.",
		},
	}
}

// stampJSON is the result of a stage, which copies messages from a source stream to a target.
type stampJSON struct {
	Copied      uint64 `json:"copied"`       // messages that this process copied
	DeadLetters uint64 `json:"dead_letters"` // messages that this process sent to --dead-letter
	Position    uint64 `json:"position"`     // sequence in the source up to which messages are copied or passed over
	Behind      uint64 `json:"behind"`       // number of messages in the source after Position
}

func (c *stampRunCmd) Run(s *session) error {
	if err := c.check(); err != nil {
		return usage(err)
	}
	s.drains(false)
	var l net.Listener
	if c.HTTP != "" {
		var err error
		if l, err = listen("--http", c.HTTP); err != nil {
			return err
		}
		defer l.Close()
	}
	nc, err := s.connect(nats.MaxReconnects(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		return err
	}
	defer nc.Close()
	log := slog.New(slog.NewTextHandler(s.stderr, nil))
	handle, err := s.handle(nc, client.Config{Log: log}, string(c.Tag), 0)
	if err != nil {
		return err
	}
	js, err := s.jetStream(nc)
	if err != nil {
		return err
	}
	cfg, to := c.stage(s, js)
	cfg.Stamp, cfg.Subject, cfg.Existing = stamp.New(handle).Msgs, c.mapped, c.Existing
	cfg.Since, cfg.Once, cfg.Log = c.Since.Time, c.Once, log
	if nc.ConnectedClusterName() != "" || js.Options().Domain != "" {
		cfg.Settle = 10 * time.Second // a leader that lost its followers steps down within 20 s
	}
	if c.DeadLetter != "" {
		cfg.DeadLetters = stage.DeadLettersOn(js, c.DeadLetter, c.From, c.To)
	}
	st := stage.New(cfg)
	if c.Create {
		if err := c.create(s, to, st, log); err != nil {
			return err
		}
	}
	end := c.watch(s, nc, l, log, st.Progress)
	err = st.Run(s.ctx)
	end()
	if err = cmp.Or(err, s.missing()); err != nil {
		return err
	}
	p := st.Progress()
	return s.print(stampJSON{p.Copied, p.DeadLetters, p.Position, p.Behind}, func(out *sheet) {
		letters := ""
		if p.DeadLetters > 0 {
			letters = fmt.Sprintf(", %s made", numberOf(int(p.DeadLetters), "dead letter"))
		}
		copied := numberOf(int(p.Copied), "message")
		out.line("%s copied%s, up to message %d of %s", copied, letters, p.Position, c.From)
	})
}

// stage returns the target stream, and those settings of a stage that name its streams.
func (p *pipeline) stage(s *session, js jetstream.JetStream) (stage.Config, *stage.Stream) {
	to := stage.TargetOn(js, p.To, wire.StampBucket(s.namespace()))
	return stage.Config{
		Source: stage.SourceOn(js, p.From, p.Filter...), SourceName: p.From, Target: to, Fits: to.Fits,
	}, to
}

// create creates the target stream once natsid gives IDs. While natsid or JetStream is out of reach, it tries again.
func (c *stampRunCmd) create(s *session, to *stage.Stream, st *stage.Stage, log *slog.Logger) error {
	for {
		subjects, err := to.Copied(s.ctx, c.From, c.mapped, c.Into)
		if err == nil {
			err = to.Create(s.ctx, subjects, st.Draw)
		}
		if err == nil || isA[*stage.Stop](err) || s.ctx.Err() != nil {
			return err
		}
		log.Warn("the target cannot be made yet", "error", err)
		_ = jitter.Sleep(s.ctx, time.Second)
	}
}
