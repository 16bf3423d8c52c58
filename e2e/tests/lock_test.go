package tests

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A locked is a natsid whose embedded server demands TLS and users.
type locked struct {
	t    *testing.T
	a    *authority
	cfg  app.Config
	log  natstest.Buffer
	url  string
	stop func() error
}

// certify writes a certificate of the embedded server.
func (a *authority) certify() *big.Int {
	cert, _ := a.issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return cert.SerialNumber
}

// newLocked returns the settings of one beyond loopback.
func newLocked(t *testing.T) *locked {
	l := &locked{t: t, a: newAuthority(t), cfg: configOn(t, "", filepath.Join(t.TempDir(), "data"))}
	l.a.certify()
	inNoHurry(0, &l.cfg)
	l.cfg.Listen, l.cfg.Log = "0.0.0.0:0", slog.New(slog.NewTextHandler(&l.log, nil))
	l.lock()
	return l
}

func (l *locked) lock() {
	l.cfg.ListenCert, l.cfg.ListenKey = l.a.file("server.pem"), l.a.file("server.key")
}
func (l *locked) unlock() { l.cfg.ListenCert, l.cfg.ListenKey, l.cfg.Listen = "", "", "127.0.0.1:0" }

// start starts it, and returns once it is ready.
func (l *locked) start() (w app.Where) {
	l.t.Helper()
	ready := make(chan app.Where, 1)
	l.cfg.Ready = func(w app.Where) { ready <- w }
	l.stop = startWith(l.t, l.cfg)
	select {
	case w = <-ready:
	case <-time.After(2 * patience):
		l.t.Fatalf("not ready: %s", &l.log)
	}
	l.url = w.URL
	return w
}

// key returns the file with the key of a user.
func (l *locked) key(user string) string { return filepath.Join(l.cfg.Data, "users", user+".nk") }

// context returns the file with the context of a user.
func (l *locked) context(user string) string { return filepath.Join(l.cfg.Data, "users", user+".json") }

// as returns the arguments of a command that a user runs.
func (l *locked) as(user string, args ...string) []string {
	return append(args, "--context="+l.context(user), "--tlsca="+l.a.file("ca.pem"))
}

// connect connects with the key of a file, "" for none.
func (l *locked) connect(key string, opts ...nats.Option) (*nats.Conn, error) {
	l.t.Helper()
	opts = append(opts, nats.Timeout(patience))
	if strings.HasPrefix(l.url, "tls") {
		opts = append(opts, nats.RootCAs(l.a.file("ca.pem")))
	}
	if key != "" {
		signed, err := nats.NkeyOptionFromSeed(key)
		if err != nil {
			l.t.Fatal(err)
		}
		opts = append(opts, signed)
	}
	nc, err := nats.Connect(l.url, opts...)
	if err == nil {
		l.t.Cleanup(nc.Close)
	}
	return nc, err
}

func (l *locked) mustConnect(key string, opts ...nats.Option) *nats.Conn {
	l.t.Helper()
	nc, err := l.connect(key, opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	return nc
}

func TestALockedServerServesItsUsersAlone(t *testing.T) {
	t.Parallel()
	l := newLocked(t)
	w := l.start()
	if w.Context != l.context("caller") || !strings.HasPrefix(w.URL, "tls://127.0.0.1:") {
		t.Errorf("callers are sent to %+v", w)
	}
	t.Run("its users do their work", func(t *testing.T) {
		operator := l.mustConnect(l.key("operator"), nats.CustomInboxPrefix("_INBOX_operator"))
		useAll(t, l.mustConnect(l.key("caller")), operator)
		l.join(t)
		if log := l.log.String(); strings.Contains(log, "Violation") {
			t.Errorf("rights are missing: %s", log)
		}
	})
	t.Run("nobody else is let in", func(t *testing.T) {
		if _, err := l.connect(""); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("without a key: %v", err)
		}
		if _, err := nats.Connect(l.url, nats.Timeout(patience)); !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Errorf("a client that does not know the authority: %v", err)
		}
		other, err := natsembed.OpenKey(filepath.Join(t.TempDir(), "other.nk"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.connect(other.File); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("with another key: %v", err)
		}
	})
	t.Run("a caller gets IDs and nothing else", func(t *testing.T) { l.confine(t) })
	t.Run("the keys are their owner's", func(t *testing.T) {
		for name, want := range map[string]fs.FileMode{
			l.key("caller"): 0o600, l.key("operator"): 0o600, l.key("worker"): 0o600, l.context("caller"): 0o600,
			filepath.Dir(l.key("caller")): fs.ModeDir | 0o700,
		} {
			if info, err := os.Stat(name); err != nil || info.Mode() != want {
				t.Errorf("%s: %v, %v, want mode %v", name, info, err, want)
			}
		}
	})
	t.Run("a renewed certificate is taken up", l.renew)
}

// join starts another worker, and runs commands, each by the context of its user.
func (l *locked) join(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if code, text := run(t, ctx, l.as("worker", started(t, "--name=second", "--deadline=15s")...)...); code != 0 {
			t.Errorf("the second worker ended with %d: %s", code, text)
		}
	})
	waitFor(t, "two workers serve", func() bool {
		code, text := run(t, ctx, l.as("operator", "status")...)
		return code == 0 && strings.Count(text, "serving") == 2
	})
	for _, args := range [][]string{
		l.as("caller", "get", "segment", "order", "-n", "100"), l.as("caller", "get", "snowflake"),
		l.as("operator", "tag", "create", "by-operator"), l.as("operator", "tag", "list", "--stats"),
		l.as("operator", "tag", "update", "by-operator", "--step=20"), l.as("operator", "tag", "delete", "by-operator"),
		l.as("operator", "workers"), l.as("operator", "resume"),
	} {
		code, text := noAnswer, ""
		waitFor(t, "an answer to natsid "+args[0], func() bool {
			code, text = run(t, patient(t), args...)
			return code != noAnswer && !strings.Contains(text, "it hung up") // after 2 s, on a busy machine
		})
		if code != 0 {
			t.Errorf("natsid %s ended with %d: %s", strings.Join(args, " "), code, text)
		}
	}
}

// confine tries what a caller must not do.
func (l *locked) confine(t *testing.T) {
	refused := make(chan error, 100)
	nc := l.mustConnect(l.key("caller"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		refused <- err
	}))
	want := func(what string) {
		t.Helper()
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+what+`"`) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s is not refused", what)
		}
	}
	for _, subject := range []string{
		"id.tag.create", "id.tag.update", "id.tag.delete", "id.tag.changed", "id.alarm.overload",
		"id.worker.1", "id.registry.announce", "$KV.id_segments.order", "_INBOX_worker.x",
		"$JS.API.STREAM.MSG.GET.KV_id_segments", "$JS.API.DIRECT.GET.KV_id_history",
		"$SRV.PING",
	} {
		if err := nc.PublishRequest(subject, nc.NewInbox(), nil); err != nil {
			t.Fatal(err)
		}
		want(subject)
	}
	for _, subject := range []string{
		">", "*.>", "id.segment.>", "id.tag.changed", "id.worker.1", "_INBOX_worker.>", "_INBOX_operator.>", "$KV.>",
	} {
		if _, err := nc.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		want(subject)
	}
	code, text := run(t, patient(t), l.as("caller", "tag", "list")...)
	if code != 1 || !strings.Contains(text, "id.tag.list") {
		t.Errorf("a caller who lists tags: %d, %s", code, text)
	}
}

// renew puts a certificate on disk that cannot be used, and then another one.
func (l *locked) renew(t *testing.T) {
	before := l.shown()
	if err := os.WriteFile(l.a.file("server.pem"), []byte("half a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the log says that the certificate cannot be used", func() bool {
		return strings.Contains(l.log.String(), "the last one stays")
	})
	if now := l.shown(); now.Cmp(before) != 0 {
		t.Errorf("certificate %v is shown, want %v still", now, before)
	}
	after := l.a.certify()
	waitFor(t, "the renewed certificate is shown", func() bool { return l.shown().Cmp(after) == 0 })
	if _, err := request(l.mustConnect(l.key("caller")), "id.snowflake", 1, patience); err != nil {
		t.Error(err)
	}
}

// shown returns the serial number of the certificate that the server shows now.
func (l *locked) shown() *big.Int {
	l.t.Helper()
	var serial *big.Int
	l.mustConnect(l.key("caller"), nats.Secure(&tls.Config{VerifyConnection: func(s tls.ConnectionState) error {
		serial = s.PeerCertificates[0].SerialNumber
		return nil
	}})).Close()
	return serial
}

// The marks and records are the same with a lock and without: no ID is given twice.
func TestALockChangesNoMarkAndNoKey(t *testing.T) {
	t.Parallel()
	l := newLocked(t)
	l.unlock()
	var last int64
	number, public := -1, ""
	for life, name := range []string{"open", "locked", "locked again", "open again"} {
		if name == "locked" {
			l.lock()
		} else if name == "open again" {
			l.unlock()
		}
		w := l.start()
		if life > 0 && w.Number != number && !diskStood(&l.log) {
			t.Errorf("%s: worker number %d, before it was %d", name, w.Number, number)
		}
		number = w.Number
		key := ""
		if w.Context != "" {
			key = l.key("caller")
			text, err := os.ReadFile(key)
			if err != nil || public != "" && public != string(text) {
				t.Errorf("%s: another key was made, %v", name, err)
			}
			public = string(text)
		}
		runs, err := request(l.mustConnect(key), "id.segment.order", 5, patience)
		if err != nil || runs[0].First <= last {
			t.Fatalf("%s: %v after %d, %v", name, runs, last, err)
		}
		last = runs[0].Last
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestACertificateOrKeyThatCannotBeUsedEndsTheStart(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.certify()
	damaged := t.TempDir()
	if err := os.Mkdir(filepath.Join(damaged, "users"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "users", "operator.nk"), []byte("SUA"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := "--listen-cert="+a.file("server.pem"), "--listen-key="+a.file("server.key")
	for name, c := range map[string]struct {
		args  []string
		words []string
	}{
		"no such file":  {[]string{cert, "--listen-key=none.key"}, []string{"none.key", "of --listen-cert and --"}},
		"another's key": {[]string{cert, "--listen-key=" + a.file("ca.key")}, []string{"PEM that belong together"}},
		"a damaged key": {[]string{cert, key, "--data=" + damaged}, []string{"operator.nk", "remove it"}},
	} {
		code, text := run(t, patient(t), append(started(t, "--listen=127.0.0.1:0"), c.args...)...)
		if code != 1 {
			t.Errorf("%s: ended with %d", name, code)
		}
		for _, word := range c.words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: does not say %q: %s", name, word, text)
			}
		}
	}
}

func TestTheReadyLineNamesAHostOfTheCertificate(t *testing.T) {
	t.Parallel()
	l := newLocked(t)
	l.a.issue("server", &x509.Certificate{
		DNSNames: []string{"*.example.com", "ids.example.com"}, NotAfter: time.Now().Add(-time.Minute),
	})
	w := l.start()
	if u, err := url.Parse(w.URL); err != nil || u.Hostname() != "ids.example.com" {
		t.Errorf("callers are sent to %s, %v", w.URL, err)
	}
	waitFor(t, "the log says that the certificate has expired", func() bool {
		return strings.Contains(l.log.String(), "has expired")
	})
}
