package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/worker"
)

// links has the two connections of this process to NATS, which is the embedded server or others. The worker makes the
// serving connection, which carries requests. The control connection carries loads, records, heartbeats and alarms, so
// that these never wait behind requests. It closes after the serving connection, since the worker number is released
// after the last answer. The control connection reconnects every 250 ms without limit, even while a server refuses its
// credentials. More connections would not be faster, since no handler of requests waits.
type links struct {
	*program                 // startServer replaces cfg.Access by that for the embedded server
	where    Where           // only its fields about NATS, which startServer sets
	embedded *natsembed.Host // nil if --nats names servers
	reload   chan os.Signal  // gets SIGHUP: the embedded server reads its configuration again
	control  *nats.Conn
	silent   atomic.Bool // askNATS found that NATS does not answer during the stop
}

// connect opens the control connection, to the embedded server if there is one, and waits until NATS answers.
func (l *links) connect(ctx context.Context) (err error) {
	opts := append(options(l.cfg, l.embedded), nats.Name("natsid control"))
	if l.control, err = dial(ctx, l.cfg, append(opts, kvregistry.Options()...)); err != nil {
		return err
	}
	if most := l.control.MaxPayload(); most < worker.MinPayload {
		l.control.Close()
		return fmt.Errorf("NATS at %s accepts messages of %d bytes, and natsid needs %d: raise its max_payload",
			Redact(l.cfg.NATS), most, worker.MinPayload)
	}
	return nil
}

// dialOnce makes a connection that does not outlive the start.
func (l *links) dialOnce(opts ...nats.Option) (*nats.Conn, error) {
	all := append(options(l.cfg, l.embedded), nats.Name("natsid start"), nats.Timeout(servingTimeout))
	return Join(l.cfg, append(all, opts...))
}

func (l *links) disconnect() { l.control.Close() }

// answers returns the longest time that the worker, when it stops, needs to answer all requests that it took.
func answers(cfg *Config) time.Duration { return cfg.Deadline + 2*time.Second }

// askNATS waits until ctx ends, when the stop begins, and then checks whether NATS answers on the control connection.
// If NATS has not answered by the time at which all requests are answered, askNATS closes the connection: otherwise the
// client reconnects, and meanwhile a call can hang for longer than its context allows.
func (l *links) askNATS(ctx context.Context) {
	<-ctx.Done()
	for end := time.Now().Add(answers(&l.cfg)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if l.control.FlushTimeout(time.Until(end)) == nil {
			return
		}
	}
	l.silent.Store(true)
	l.cfg.Log.Warn("NATS does not answer: the stop does not wait for it any longer")
	l.control.Close()
}

// atStop returns the time limit for a step of the stop that needs NATS: usual, or 100 ms once askNATS got no answer.
func (l *links) atStop(usual time.Duration) time.Duration {
	if l.silent.Load() {
		return 100 * time.Millisecond
	}
	return usual
}

// announceTag tells the other workers of a tag that was created on first use. A worker that misses the announcement
// loads the tag when the first request for the tag comes.
func (l *links) announceTag(tag string) {
	if err := l.control.Publish(wire.TagChanged(l.cfg.Namespace), []byte(tag)); err != nil {
		l.cfg.Log.Debug("a new tag was not announced to the other workers", "tag", tag, "error", err)
	}
}

// dialServing makes the serving connection, to one of the given or announced servers. The timeout for each server can
// be short: a worker that moves to another server keeps the old connection until the new one is made.
func (l *links) dialServing(announced []string, opts ...nats.Option) (*nats.Conn, error) {
	cfg := l.cfg
	cfg.NATS = others(cfg.NATS, announced)
	all := append(options(cfg, l.embedded), nats.Name("natsid"), nats.Timeout(servingTimeout))
	return Join(cfg, append(all, opts...))
}

// servingTimeout bounds an attempt to connect to one server; enough for a round trip of almost a second.
const servingTimeout = 2 * time.Second

// others returns the URLs of the given servers and of those that a server announced. An announced URL names no user, so
// it gets the user of the first given URL.
func others(given string, announced []string) string {
	first, _, _ := strings.Cut(given, ",")
	u, err := url.Parse(first)
	if err != nil || u.User == nil {
		return strings.Join(append([]string{given}, announced...), ",")
	}
	for _, s := range announced {
		if t, err := url.Parse(s); err == nil {
			t.User = u.User
			given += "," + t.String()
		}
	}
	return given
}

func options(cfg Config, embedded *natsembed.Host) []nats.Option {
	opts := []nats.Option{
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // the client would give up after two refusals of the credentials
		nats.ReconnectWait(250 * time.Millisecond),
	}
	opts = append(opts, logged(cfg.Log)...)
	if embedded != nil {
		// The timeout is long: the embedded server reads nothing only while this process is paused. No reconnect helps.
		opts = append(opts, nats.InProcessServer(embedded), nats.FlusherTimeout(nats.DefaultFlusherTimeout))
	}
	return opts
}

// logged returns the options that log events of a connection.
func logged(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected from NATS; reconnecting", "connection", nc.Opts.Name, "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("reconnected to NATS", "connection", nc.Opts.Name, "server", Redact(nc.ConnectedUrl()))
		}),
		nats.ErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
			if _, broken := errors.AsType[*net.OpError](err); broken {
				return // DisconnectErrHandler logs it
			}
			attrs := []any{"connection", nc.Opts.Name, "error", err}
			if sub != nil {
				attrs = append(attrs, "subject", sub.Subject)
			}
			log.Error(kindOf(err), attrs...)
		}),
	}
}

// kindOf returns the log message for an error of NATS. The log writes each message at most once a minute. So each kind
// of missing right has a message of its own, lest one hide another.
func kindOf(err error) string {
	switch missing := buckets.MissingRight(err); {
	case missing == nil:
		return "NATS reports an error"
	case missing.Subscribe:
		return "NATS refuses a subscription"
	case strings.HasPrefix(missing.Subject, "$JS.") || strings.HasPrefix(missing.Subject, "$KV."):
		return "NATS refuses a request to JetStream"
	case strings.HasPrefix(missing.Subject, "_"):
		return "NATS refuses a reply, so its caller waits in vain: allow this user to publish to the inboxes of " +
			"callers, as `natsid permissions worker --inbox` prints, or set allow_responses with a max above the " +
			"number of requests that share a reply subject"
	}
	return "NATS refuses a message"
}

// retry calls f until it succeeds, ctx ends, or f returns a [backoff.PermanentError]. It logs each failure.
func retry[T any](ctx context.Context, log *slog.Logger, what string, f func() (T, error)) (T, error) {
	pauses := jitter.NewBackoff(100*time.Millisecond, 5*time.Second)
	return backoff.RetryNotifyWithData(f, backoff.WithContext(pauses, ctx), func(err error, pause time.Duration) {
		log.Warn(what+"; trying again", "error", err, "in", pause.Round(time.Millisecond))
	})
}

// WithoutURL returns err, or another error if err quotes a malformed URL: the quoted part may be a password.
func WithoutURL(err error) error {
	if _, malformed := errors.AsType[*url.Error](err); malformed {
		return errors.New("the URL is malformed; " +
			"in a password, characters such as / and # must be written as %2F and %23")
	}
	return err
}

// userOfURL matches the user and password of a URL in a list, with the scheme, if any. A password may contain a comma,
// so all text before the @, back to the last ://, counts as the user. The alternatives match text without ://.
var userOfURL = regexp.MustCompile(`(\w+://)?(?:[^:]|:[^/]|:/[^/])*(?::/?)?@`)

// Redact returns a list of URLs in which xxxxx stands for users and passwords. A part of the list that is no URL also
// becomes xxxxx: it may be half of a password that contains a comma.
func Redact(urls string) string {
	list := strings.Split(userOfURL.ReplaceAllStringFunc(urls, func(user string) string {
		scheme, _, ok := strings.Cut(user, "://")
		if !ok {
			scheme = "nats"
		}
		return scheme + "://xxxxx@"
	}), ",")
	for i, u := range list {
		if !strings.Contains(u, "://") {
			u = "nats://" + u // otherwise url.Parse would take the host for a path
		}
		if _, err := url.Parse(u); err != nil {
			list[i] = "xxxxx"
		}
	}
	return strings.Join(list, ",")
}
