package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// defaultURL is where every command but serve expects NATS, unless --nats or a setting names a server.
const defaultURL = "nats://127.0.0.1:4222"

// connect connects to NATS for one command. If NATS refuses a right that the command needs, s.ctx ends, which ends
// the command.
func (s *session) connect(more ...nats.Option) (*nats.Conn, error) {
	var end context.CancelCauseFunc
	s.ctx, end = context.WithCancelCause(s.ctx)
	return s.dial(func(missing *buckets.RightError) {
		if !canDoWithout(s.namespace(), missing.Subject) {
			end(missing)
		}
	}, more...)
}

// dial connects to NATS. The function refused is called with each right that NATS then refuses to this user.
func (s *session) dial(refused func(*buckets.RightError), more ...nats.Option) (*nats.Conn, error) {
	cfg, err := s.validConfig()
	if err != nil {
		return nil, err
	}
	for _, sentence := range s.said {
		fmt.Fprintf(s.stderr, "natsid: %s\n", sentence)
	}
	cfg.NATS = cmp.Or(cfg.NATS, defaultURL)
	onError := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if missing := buckets.MissingRight(err); missing != nil {
			refused(missing)
		}
	})
	nc, err := app.Join(cfg, append([]nats.Option{
		nats.Name("natsid command"), nats.Timeout(client.DefaultTimeout), onError}, more...))
	if _, refused := errors.AsType[*app.JoinError](err); err == nil || refused {
		return nc, err
	}
	return nil, fmt.Errorf(
		"cannot reach NATS at %s: %w; start natsid, or name another server with --nats URL", app.Redact(cfg.NATS), err)
}

// canDoWithout reports whether a command succeeds without the right to publish to a subject. These requests may
// fail: to delete a consumer (JetStream deletes idle ones), to change a bucket's settings, to show a stage on the
// page, to use a stage's hints (positions that only matter once all its copies have expired), to record grants (no
// ID needs that).
func canDoWithout(ns subjects.Namespace, subject string) bool {
	hints, grants := wire.StampBucket(ns), "$KV."+wire.GrantsBucket(ns)
	consumer := strings.Contains(subject, ".CONSUMER.")
	return subject == wire.Stage(ns) ||
		strings.Contains(subject, ".CONSUMER.DELETE.") || strings.Contains(subject, ".STREAM.UPDATE.KV_") ||
		strings.HasSuffix(subject, ".INFO") || strings.Contains(subject, grants) && !consumer ||
		strings.Contains(subject, "KV_"+hints) || strings.Contains(subject, "$KV."+hints)
}

// isRepair reports whether an operator may publish to a subject only with the rights of `permissions operator
// --repairs`.
func isRepair(ns subjects.Namespace, subject string) bool {
	return subject == wire.RegistryAnnounce(ns) || strings.Contains(subject, "$KV."+wire.SegmentBucket(ns)+".")
}

func (s *session) jetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	cfg, err := s.validConfig()
	if err != nil {
		return nil, err
	}
	return buckets.Connect(nc, cfg.JSDomain, cfg.JSPrefix)
}

func (s *session) withNATS(f func(*nats.Conn) error) error {
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	return f(nc)
}

// request sends a request of an operator. It repeats the request only if a worker answers that it is busy, and so
// has changed nothing. It does not after silence: if the first request succeeded, a second one could fail.
func request[T any](s *session, nc *nats.Conn, subject string, body any) (answer T, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, client.DefaultTimeout)
	defer cancel()
	var m *nats.Msg
	for {
		m, err = nc.RequestWithContext(ctx, subject, data)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return answer, fmt.Errorf("no worker answers on %s: check --nats and --namespace", subject)
		case err != nil:
			return answer, fmt.Errorf("no answer on %s; look whether it was done before you ask again: %w",
				subject, err)
		}
		refused := subjects.ParseError(m.Header)
		if refused == nil {
			break
		}
		if refused.Code != subjects.TooMany || jitter.Sleep(ctx, jitter.Around(100*time.Millisecond)) != nil {
			return answer, refused
		}
	}
	var stored struct{ Stream string } // set if a JetStream stream answers instead of a worker
	if err := errors.Join(json.Unmarshal(m.Data, &answer), json.Unmarshal(m.Data, &stored)); err != nil {
		return answer, fmt.Errorf("another program answers on %s: stop it (%w)", subject, err)
	}
	if stored.Stream != "" {
		return answer, fmt.Errorf("the JetStream stream %s answers on %s: take that subject from it",
			stored.Stream, subject)
	}
	return answer, nil
}

// client returns a client of the command's namespace. Without cfg.Log it is silent: commands print errors
// themselves.
func (s *session) client(nc *nats.Conn, cfg client.Config) (*client.Client, error) {
	cfg.Namespace, cfg.Log = s.namespace(), cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return client.New(nc, cfg)
}

// handle returns the client's handle of a tag or, if tag is "", of the snowflakes of a business.
func (s *session) handle(nc *nats.Conn, cfg client.Config, tag string, business int64) (*client.Handle, error) {
	c, err := s.client(nc, cfg)
	switch {
	case err != nil:
		return nil, err
	case tag == "":
		return c.Snowflake(client.SnowflakeConfig{Business: business})
	}
	return c.Segment(tag, client.SegmentConfig{})
}

func (s *session) openTable(ctx context.Context) (*mysqlstore.Table, error) {
	cfg, err := s.validConfig()
	if err != nil {
		return nil, err
	}
	if !cfg.OnMySQL() {
		return nil, errNoMySQL
	}
	login, err := cfg.Database()
	if err != nil {
		return nil, err
	}
	return app.OpenTable(ctx, login)
}

var errNoMySQL = usage(errors.New("--mysql is missing: where the table is"))

// A tagName is a tag on the command line. A malformed one is refused before anything is sent: a tag is a part of a NATS
// subject, which a space would make invalid.
type tagName string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *tagName) UnmarshalText(text []byte) error {
	*t = tagName(text)
	if e, ok := errors.AsType[*subjects.Error](subjects.CheckTag(string(text))); ok {
		return usage(fmt.Errorf("tag %q: %s", text, e.Text))
	}
	return nil
}
