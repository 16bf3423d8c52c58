package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
)

// dial connects, and retries until NATS answers. It returns an error at once if a retry cannot help.
func dial(ctx context.Context, cfg Config, opts []nats.Option) (*nats.Conn, error) {
	attempt := func() (*nats.Conn, error) {
		nc, err := Join(cfg, append(opts, nats.Timeout(joinTimeout)))
		if refused, ok := errors.AsType[*JoinError](err); ok && !refused.Passing {
			err = backoff.Permanent(err)
		}
		return nc, err
	}
	return retry(ctx, cfg.Log, "NATS at "+Redact(cfg.NATS)+" does not answer yet", attempt)
}

// writeTimeout is how long a write may wait until the server reads. The client's default is a minute: meanwhile calls
// block beyond the ends of their contexts, and pings cannot detect that the server hangs. After writeTimeout the client
// replaces the connection, because the data that it could not write is lost, perhaps with a subscription in it.
const writeTimeout = 3 * time.Second

// joinTimeout bounds an attempt to connect; enough for a round trip of a second.
const joinTimeout = 5 * time.Second

// A JoinError is returned if NATS answers and refuses this program, or if the settings cannot be used. Its text says
// what to change.
type JoinError struct {
	URL     string // redacted
	Passing bool   // the cause may pass: a retry with the same settings may succeed
	why     string
	cause   error
}

func (e *JoinError) Error() string { return fmt.Sprintf("cannot join NATS at %s: %s", e.URL, e.why) }

// Unwrap returns the error of the NATS client.
func (e *JoinError) Unwrap() error { return e.cause }

// Join connects to NATS once, with the credentials and certificates of cfg. The error is a [JoinError], or another
// error if NATS did not answer.
func Join(cfg Config, opts []nats.Option) (*nats.Conn, error) {
	mine, err := credentialsOf(cfg)
	if err != nil {
		return nil, &JoinError{URL: Redact(cfg.NATS), why: err.Error(), cause: err}
	}
	writes := []nats.Option{nats.FlusherTimeout(writeTimeout), nats.ReconnectOnFlusherError()}
	opts = slices.Concat(writes, opts, mine.options)
	var nc *nats.Conn
	var began time.Time
	for range 3 {
		began = time.Now()
		nc, err = nats.Connect(cfg.NATS, opts...)
		// A server that reloads its configuration refuses, once, clients that connect at that moment.
		refused := errors.Is(err, nats.ErrAuthorization) && time.Since(began) < decided
		if !hungUp(err) && !refused {
			break
		}
	}
	if err == nil {
		mine.conn.Store(nc)
		return nc, nil
	}
	why, passing := whyRefused(cfg, err, time.Since(began))
	if why == "" {
		return nil, cfg.hinted(err)
	}
	return nil, &JoinError{URL: Redact(cfg.NATS), Passing: passing, why: why, cause: err}
}

// decided is the longest time in which a server by itself refuses a user. A later refusal means that the server's auth
// callout did not answer within its timeout (2 s by default). It may just be starting, so a retry may help.
const decided = 500 * time.Millisecond

// whyRefused returns why NATS could not be joined, and what to change; "" if NATS did not answer, or if the kind of the
// error is unknown. passing reports whether a retry may help.
func whyRefused(cfg Config, err error, took time.Duration) (why string, passing bool) {
	var clock x509.CertificateInvalidError
	switch {
	case isA[*url.Error](err):
		return WithoutURL(err).Error(), false
	case errors.Is(err, io.ErrClosedPipe): // the connection to the embedded server, refused after 10 s
		return "the embedded server refuses this user: check " + cfg.shown(), false
	case errors.Is(err, nats.ErrAuthorization):
		return "it refuses this user: check " + cfg.shown() + " (" + err.Error() + ")", took >= decided
	case errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		return "the credentials of this user are not valid any more: give new ones with " + cfg.shown() +
			" (" + err.Error() + ")", false
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return err.Error() + "; name a file that can be read", false
	case isA[x509.UnknownAuthorityError](err):
		return "nobody known vouches for its certificate: give the certificate of its authority with --tlsca " +
			"(" + err.Error() + ")", false
	case isA[x509.HostnameError](err):
		return "its certificate is another host's: name the server in --nats as its certificate does " +
			"(" + err.Error() + ")", false
	case errors.As(err, &clock):
		return "its certificate is not valid: renew it, or correct the clock (" + err.Error() + ")",
			clock.Reason == x509.Expired // x509.Expired also means "not valid yet", as before this clock is set
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "it offers no TLS: remove tls:// and the certificates, or configure TLS there", false
	case errors.Is(err, nats.ErrTLS) && hungUp(err):
		return "it hung up, as a server can that refuses this user: check " + cfg.shown() +
			" (" + err.Error() + ")", true
	case isRemote(err):
		return "it refuses the client certificate, or misses one: give one that it accepts with --tlscert and " +
			"--tlskey (" + err.Error() + ")", false
	}
	return "", true
}

// hungUp reports whether the server closed the connection before this program could read the reason. A server may do so
// after it refused a user.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// hinted adds a possible cause to a time-out: a server that expects TLS at once sends nothing before it.
func (c *Config) hinted(err error) error {
	secure := strings.Contains(c.NATS, "tls://") || c.NATSCA != "" || c.NATSCert != ""
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() && secure {
		return fmt.Errorf("%w (if it wants TLS first, set handshake_first: auto there)", err)
	}
	return err
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isRemote reports whether the server ended the TLS handshake by an alert.
func isRemote(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}
