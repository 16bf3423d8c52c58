package mysqlstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/internal/configfile"
)

// A Login is the address and the credentials of a database. Files are read again for each new connection, so renewed
// files need no restart.
type Login struct {
	// DSN is user:password@tcp(host:port)/database, or user:password@unix(/path/of/socket)/database.
	DSN string
	// File is a file with the DSN; "" is none. Only user and password are read again: the marks that this process has
	// seen, up to which IDs are taken, belong to one database, so another database needs a restart.
	File string
	// CA, Cert and Key are PEM files: the authorities that vouch for the server, the client certificate, and its key.
	// CA or Cert demands TLS. Without CA the system's authorities vouch; without Cert no certificate is shown.
	CA, Cert, Key string
}

// secure reports whether the files demand TLS, whatever the DSN says.
func (l Login) secure() bool { return l.CA != "" || l.Cert != "" }

// check returns an error for a login that Open could not use, for example one with a missing file.
func (l Login) check(cfg *mysql.Config) error {
	if !l.secure() {
		return nil
	}
	if c := cfg.TLSConfig; c != "" && c != "true" {
		return fmt.Errorf("%w: the DSN says tls=%s, where files for TLS demand it: remove that", ErrRefused, c)
	}
	if _, err := l.tls(cfg.Addr); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

// renew sets the credentials of a new connection from the files. If the file with the DSN cannot be read, user and
// password stay the same.
func (l Login) renew(_ context.Context, cfg *mysql.Config) error {
	if text, err := configfile.Secret(l.File); err == nil {
		if now, err := parse(strings.TrimSpace(text)); err == nil {
			cfg.User, cfg.Passwd = now.User, now.Passwd
		}
	}
	if !l.secure() {
		return nil
	}
	var err error
	if cfg.TLS, err = l.tls(cfg.Addr); err != nil {
		return &net.OpError{Op: "dial", Net: "tls", Err: err} // classified then knows that no statement was sent
	}
	return nil
}

func (l Login) tls(addr string) (*tls.Config, error) {
	host, _, _ := net.SplitHostPort(addr)
	c := &tls.Config{ServerName: cmp.Or(host, addr)}
	if l.CA != "" {
		pem, err := os.ReadFile(l.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", l.CA)
		}
	}
	if l.Cert != "" {
		cert, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		if err != nil {
			return nil, fmt.Errorf("%s with its key: %w", l.Cert, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

// lacksTLS reports whether a server has no TLS, or a certificate of another host or of an unknown authority. It
// returns false for an expired certificate, which may be renewed.
func lacksTLS(err error) bool {
	_, wrong := errors.AsType[*tls.CertificateVerificationError](err)
	_, clock := errors.AsType[x509.CertificateInvalidError](err)
	return wrong && !clock || errors.Is(err, mysql.ErrNoTLS)
}
