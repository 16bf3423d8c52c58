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

// dial connects, and retries while NATS does not answer. An error that a retry cannot fix is returned at once.
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

// writeTimeout is how long a connection waits for its server to take written data. By default it is a minute, during
// which calls on that connection wait whatever their contexts say, and pings cannot detect that the server hangs. A
// server that takes nothing for this long has failed more pings than it may. Data that could not be written is lost,
// so the connection is replaced: a subscription may be in that data.
const writeTimeout = 3 * time.Second

// joinTimeout is enough for a server a second away.
const joinTimeout = 5 * time.Second

// A JoinError is why this program could not or did not join NATS although NATS answers, with the remedy.
type JoinError struct {
	URL     string // redacted
	Passing bool   // it may pass without an action of this program's operator
	why     string
	cause   error
}

func (e *JoinError) Error() string { return fmt.Sprintf("cannot join NATS at %s: %s", e.URL, e.why) }

// Unwrap returns the error of the NATS client.
func (e *JoinError) Unwrap() error { return e.cause }

// Join connects to NATS once, with the credentials and certificates of the settings. The error is a [JoinError] unless
// NATS did not answer.
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
		// A server that reads its configuration again refuses, once, whoever is connecting at that moment.
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

// decided is the longest time in which a server refuses a user by itself. A server whose auth callout does not
// answer, for example while that starts, refuses only when its time-out is over, 2 s by default.
const decided = 500 * time.Millisecond

// whyRefused returns why NATS could not be joined and the remedy, "" if NATS did not answer; passing means that
// waiting may help. Errors are classified by kind; after an unknown error the program waits.
func whyRefused(cfg Config, err error, took time.Duration) (why string, passing bool) {
	var clock x509.CertificateInvalidError
	switch {
	case isA[*url.Error](err):
		return WithoutURL(err).Error(), false
	case errors.Is(err, io.ErrClosedPipe): // of a connection inside the process, after the server has waited for 10 s
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
			clock.Reason == x509.Expired // also before it begins, as on a clock that is not set yet
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

// hungUp reports whether a server closed the connection before its reason was read, as may happen while it refuses a
// user.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// hinted adds a possible cause to an error that NATS did not answer: a server that waits for TLS is silent.
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
