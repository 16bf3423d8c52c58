package tests

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// A hosted is a natsid whose embedded server has a configuration.
type hosted struct {
	t    *testing.T
	cfg  app.Config
	log  natstest.Buffer
	stop func() error
}

func newHosted(t *testing.T) *hosted {
	h := &hosted{t: t, cfg: configOn(t, "", filepath.Join(t.TempDir(), "data"))}
	inNoHurry(0, &h.cfg)
	h.cfg.Listen = "127.0.0.1:0"
	h.cfg.Log = slog.New(slog.NewTextHandler(&h.log, nil))
	return h
}

// start starts it with a file, "" for none, and returns once it is ready.
func (h *hosted) start(conf string) app.Where {
	h.t.Helper()
	h.cfg.ListenConf = conf
	ready := make(chan app.Where, 1)
	h.cfg.Ready = func(w app.Where) { ready <- w }
	ended, stop := watchWith(h.t, h.cfg)
	h.stop = stop
	select {
	case w := <-ready:
		return w
	case <-ended:
		h.t.Fatalf("it ended: %v: %s", stop(), &h.log)
		panic("unreachable")
	case <-time.After(2 * patience):
		h.t.Fatalf("not ready: %s", &h.log)
		panic("unreachable")
	}
}

func (h *hosted) connect(url string, opts ...nats.Option) (*nats.Conn, error) {
	h.t.Helper()
	nc, err := nats.Connect(url, append(opts, nats.Timeout(patience))...)
	if err == nil {
		h.t.Cleanup(nc.Close)
	}
	return nc, err
}

// gets requests an ID on a connection.
func (h *hosted) gets(url string, opts ...nats.Option) (id subjects.ID) {
	h.t.Helper()
	nc, err := h.connect(url, opts...)
	if err != nil {
		h.t.Fatal(err)
	}
	runs, err := request(nc, "id.segment.order", 1, patience)
	if err != nil {
		h.t.Fatal(err)
	}
	return runs[0].First
}

// hangUp sends the signal to this process.
func hangUp(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// withUsers is a server for other machines: TLS, a user for natsid and one for callers, and another account.
func withUsers(a *authority) string {
	a.t.Helper()
	for _, role := range []string{"caller", "worker"} {
		rewrite(a.t, a.file(role+".conf"), printed(a.t, role, "--make-buckets"))
	}
	return fmt.Sprintf(`
listen: "0.0.0.0:-1"
tls { cert_file: %q, key_file: %q }
accounts {
  IDS { jetstream: enabled, users: [
    { user: natsid, password: right, include worker.conf }
    { user: shop, password: right, include caller.conf }
  ] }
  OTHER { users: [ { user: stranger, password: right } ] }
}`, a.file("server.pem"), a.file("server.key"))
}

// certify writes a certificate of the server.
func (a *authority) certify() *big.Int {
	cert, _ := a.issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return cert.SerialNumber
}

// It does not run beside others: its signal reaches each server of this process.
func TestAFileGivesTheEmbeddedServerTLSUsersAndAccounts(t *testing.T) {
	h, a := newHosted(t), newAuthority(t)
	before := a.certify()
	h.cfg.NATSUser, h.cfg.NATSPassword, h.cfg.NATSCA = "natsid", "right", a.file("ca.pem")
	conf := a.file("nats.conf")
	rewrite(t, conf, withUsers(a))
	w := h.start(conf)
	u, err := url.Parse(w.URL)
	if err != nil || u.Scheme != "tls" {
		t.Fatalf("callers are sent to %s, %v", w.URL, err)
	}
	at, trust := "tls://127.0.0.1:"+u.Port(), nats.RootCAs(a.file("ca.pem"))
	as := func(user string) nats.Option { return nats.UserInfo(user, "right") }
	h.gets(at, trust, as("shop"))
	if _, err := h.connect(at, trust); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := h.connect(at); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("a client that does not know the authority: %v", err)
	}
	if nc, err := h.connect(at, trust, as("stranger")); err != nil {
		t.Error(err)
	} else if _, err := nc.Request("id.segment.order", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("in another account: %v", err)
	}
	refused := make(chan error, 1)
	if nc, err := h.connect(at, trust, as("shop"), nats.ErrorHandler(
		func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })); err != nil {
		t.Error(err)
	} else if err := nc.Publish("$KV.id_segments.order", nil); err != nil {
		t.Error(err)
	}
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("a caller may write marks")
	}

	shown := func() (serial *big.Int, err error) {
		nc, err := h.connect(at, as("shop"), trust, nats.Secure(&tls.Config{
			VerifyConnection: func(s tls.ConnectionState) error {
				serial = s.PeerCertificates[0].SerialNumber
				return nil
			}}))
		if err == nil {
			nc.Close()
		}
		return serial, err
	}
	rewrite(t, a.file("server.pem"), "half a certificate")
	hangUp(t)
	wait.Until(t, "the log says that the certificate cannot be used", func() bool {
		return strings.Contains(h.log.String(), "it stays as it was")
	})
	if now, err := shown(); err != nil || now.Cmp(before) != 0 {
		t.Errorf("certificate %v is shown, %v, want %v still", now, err, before)
	}
	after := a.certify()
	hangUp(t)
	wait.Until(t, "the renewed certificate is shown", func() bool {
		now, err := shown()
		return err == nil && now.Cmp(after) == 0 // while it reads its file, the server refuses whoever is connecting
	})
	h.gets(at, trust, as("shop"))
}

func TestAFileGivesTheEmbeddedServerLeafNodesWebSocketsAndLimits(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	leaf, web := must[string](t)(freeport.Get()), must[string](t)(freeport.Get())
	w := h.start(file(t, "nats.conf", fmt.Sprintf(`
max_payload: 100KB
leafnodes { listen: %q }
websocket { listen: %q, no_tls: true }`, leaf, web)))
	if !strings.HasPrefix(w.URL, "nats://127.0.0.1:") {
		t.Errorf("it listens at %s, want the address of --listen", w.URL)
	}
	if nc, err := h.connect(w.URL); err != nil || nc.MaxPayload() != 100<<10 {
		t.Errorf("messages may have %d bytes, %v", nc.MaxPayload(), err)
	}
	h.gets("ws://" + web)
	remote, err := url.Parse("nats-leaf://" + leaf)
	if err != nil {
		t.Fatal(err)
	}
	beyond := launch(t, &server.Options{LeafNode: server.LeafNodeOpts{
		Remotes: []*server.RemoteLeafOpts{{URLs: []*url.URL{remote}}},
	}})
	nc, err := h.connect(beyond.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "an ID through a leaf node", func() bool {
		_, err := request(nc, "id.segment.order", 1, patience)
		return err == nil
	})
}
