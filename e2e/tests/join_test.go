package tests

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// An authority issues certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue writes a certificate and its key to files of the name.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	fail := func(err error) {
		if err != nil {
			a.t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	fail(err)
	secret, err := x509.MarshalECPrivateKey(key)
	fail(err)
	for suffix, block := range map[string]*pem.Block{
		".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		fail(os.WriteFile(a.file(name+suffix), pem.EncodeToMemory(block), 0o600))
	}
	cert, err := x509.ParseCertificate(der)
	fail(err)
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// launch starts a nats-server with TLS and what edit adds; it asks for client certificates if verify is set.
func (a *authority) launch(verify bool, edit func(*server.Options)) *server.Server {
	a.t.Helper()
	o := a.options(verify)
	edit(o)
	return launch(a.t, o)
}

// options are those of a server with a certificate of this authority.
func (a *authority) options(verify bool) *server.Options {
	a.t.Helper()
	a.issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	conf, err := server.GenTLSConfig(&server.TLSConfigOpts{
		CertFile: a.file("server.pem"), KeyFile: a.file("server.key"), CaFile: a.file("ca.pem"), Verify: verify,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return &server.Options{JetStream: true, TLSConfig: conf, TLS: true, TLSVerify: verify, TLSTimeout: 10}
}

// run runs natsid in this process until it ends, and returns its exit code and what it printed.
func run(t *testing.T, ctx context.Context, args ...string) (code int, text string) {
	t.Helper()
	var out natstest.Buffer // a command may log beside what it prints
	code = cli.Main(ctx, args, &out, &out)
	return code, out.String()
}

// started are the flags of a worker of its own.
func started(t *testing.T, args ...string) []string {
	return append([]string{"--http=", "--data=" + t.TempDir(), "--log-level=error"}, args...)
}

func TestAStartWaitsForAnAuthCallout(t *testing.T) {
	t.Parallel()
	// Nobody has its key.
	const issuer = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
	addr := freePort(t)
	s := launchOn(t, addr, &server.Options{
		JetStream: true, AuthTimeout: 2, Users: []*server.User{{Username: "auth", Password: "auth"}},
		AuthCallout: &server.AuthCallout{Issuer: issuer, AuthUsers: []string{"auth"}},
	})
	began := time.Now()
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP = "nats://me:right@"+s.Addr().String(), t.TempDir(), freePort(t)
	var log natstest.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	startWith(t, cfg)
	wait.Until(t, "a refusal", func() bool { return strings.Contains(log.String(), "Authorization Violation") })
	if took := time.Since(began); took < time.Second {
		t.Fatalf("refused after %v: the callout was not waited for", took)
	}
	s.Shutdown()
	s.WaitForShutdown()
	launchOn(t, addr, &server.Options{JetStream: true, Username: "me", Password: "right"})
	wait.Until(t, "a worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
}
