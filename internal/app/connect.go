package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/kvregistry"
)

// links is how this process reaches NATS: one connection that serves
// requests, and one for JetStream, so that neither waits behind the other and
// the first can be drained while the second still gives the number back.
type links struct {
	serve   servingConn
	control *nats.Conn
}

// A servingConn is a connection that requests come over.
type servingConn struct {
	*nats.Conn
	leaving chan struct{} // its server is about to stop (lame duck mode)
}

// connect makes both connections, to the embedded server if there is one, and
// waits until NATS is there.
func (p *program) connect(ctx context.Context) (err error) {
	l := &p.links
	l.serve.leaving = make(chan struct{}, 1)
	if l.serve.Conn, err = dial(ctx, p.cfg, servingOptions(p.cfg, p.embedded, l.serve.leaving)); err != nil {
		return err
	}
	if l.control, err = dial(ctx, p.cfg, controlOptions(p.cfg, p.embedded)); err != nil {
		l.serve.Close()
	}
	return err
}

// disconnect closes both. The serving connection is drained by then, unless a
// step above it could not start.
func (p *program) disconnect() error {
	p.links.serve.Close()
	p.links.control.Close()
	return nil
}

func controlOptions(cfg Config, embedded *natsembed.Server) []nats.Option {
	opts := append(options(cfg, embedded), nats.Name("natsid control"))
	return append(opts, kvregistry.Options()...)
}

func servingOptions(cfg Config, embedded *natsembed.Server, leaving chan<- struct{}) []nats.Option {
	return append(options(cfg, embedded), nats.Name("natsid"), nats.PingInterval(5*time.Second),
		nats.LameDuckModeHandler(func(*nats.Conn) {
			select {
			case leaving <- struct{}{}:
			default: // told already
			}
		}))
}

func options(cfg Config, embedded *natsembed.Server) []nats.Option {
	log := cfg.Log
	opts := []nats.Option{
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials that are wrong for a while must not end it
		nats.ReconnectWait(250 * time.Millisecond),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected from NATS; trying again until it is back", "connection", nc.Opts.Name, "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("connected to NATS again", "connection", nc.Opts.Name, "server", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
			attrs := []any{"connection", nc.Opts.Name, "error", err}
			if sub != nil {
				attrs = append(attrs, "subject", sub.Subject)
			}
			log.Error("NATS reports an error", attrs...)
		}),
	}
	if embedded != nil {
		opts = append(opts, nats.InProcessServer(embedded))
	}
	if cfg.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(cfg.NATSCreds))
	}
	return opts
}

// dial connects, trying again while NATS is not there. What trying again
// cannot mend is returned at once.
func dial(ctx context.Context, cfg Config, opts []nats.Option) (*nats.Conn, error) {
	attempt := func() (*nats.Conn, error) {
		nc, err := nats.Connect(cfg.NATS, opts...)
		if hopeless(err) {
			err = backoff.Permanent(fmt.Errorf("cannot join NATS at %s: %w", Redact(cfg.NATS), WithoutURL(err)))
		}
		return nc, err
	}
	return retry(ctx, cfg.Log, "NATS at "+Redact(cfg.NATS)+" is not there yet", attempt)
}

// hopeless reports whether connecting failed for a reason that stays.
func hopeless(err error) bool {
	if err == nil {
		return false
	}
	_, malformed := errors.AsType[*url.Error](err)
	return malformed || errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// retry calls f until it succeeds, ctx ends, or the error is permanent, and
// says each time what it waits for.
func retry[T any](ctx context.Context, log *slog.Logger, what string, f func() (T, error)) (T, error) {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0))
	return backoff.RetryNotifyWithData(f, backoff.WithContext(pauses, ctx), func(err error, pause time.Duration) {
		log.Warn(what+"; trying again", "error", err, "in", pause.Round(time.Millisecond))
	})
}

// WithoutURL returns err, but not what a parser quotes of a malformed URL, which
// may be a password.
func WithoutURL(err error) error {
	if _, malformed := errors.AsType[*url.Error](err); malformed {
		return errors.New("the URL is malformed; in a password, characters such as / and # must be written as %2F and %23")
	}
	return err
}

// Redact hides the password in a list of URLs.
func Redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, u := range list {
		// A host without scheme parses as a path, and a bad URL not at all:
		// what stands before an @ is a secret in any case, and so may be what
		// is no URL, such as half a password that holds a comma.
		full := u
		if !strings.Contains(u, "://") {
			full = "nats://" + u
		}
		if _, err := url.Parse(full); err != nil {
			list[i] = "xxxxx"
		}
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			scheme, _, ok := strings.Cut(u[:at], "://")
			if !ok {
				scheme = "nats"
			}
			list[i] = scheme + "://xxxxx@" + u[at+1:]
		}
	}
	return strings.Join(list, ",")
}

// replicas returns how many replicas new buckets get.
func replicas(cfg Config, nc *nats.Conn) int {
	switch {
	case cfg.Replicas > 0:
		return cfg.Replicas
	case nc.ConnectedClusterName() != "":
		return 3
	}
	return 1
}

// warnOfStreams says so if a JetStream stream listens on our subjects: its
// acknowledgement would reach callers before any ID.
func warnOfStreams(ctx context.Context, js jetstream.JetStream, cfg Config) {
	for _, subject := range cfg.Namespace.Requests() {
		names := js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
		for name := range names.Name() {
			cfg.Log.Error("a JetStream stream listens on natsid's subject and answers requests before any worker: delete it, or choose another --namespace",
				"stream", name, "subject", subject)
		}
	}
}
