package natsembed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

// start starts a server. It is stopped by stop, at the latest when the test ends.
func start(t *testing.T, cfg natsembed.Config) (srv *natsembed.Server, stop func()) {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	srv, err := natsembed.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { srv.Shutdown(); srv.WaitForShutdown() })
	t.Cleanup(stop)
	return srv, stop
}

// connect connects to a server until the test ends.
func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, url, append(opts, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))...)
}

// bucket opens the bucket b, which it makes if there is none.
func bucket(t *testing.T, nc *nats.Conn) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// host runs a host until the test ends, and tends it once tend is called.
func host(t *testing.T, dir string) (h *natsembed.Host, tend func()) {
	t.Helper()
	h, err := natsembed.Run(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Stop)
	return h, func() {
		ctx, cancel := context.WithCancel(context.Background())
		var tending sync.WaitGroup
		t.Cleanup(func() { cancel(); tending.Wait() })
		tending.Go(func() { h.Tend(ctx, nil) })
	}
}

func TestAcknowledgedWritesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	srv, stop := start(t, natsembed.Config{StoreDir: dir})
	if cfg := srv.JetStreamConfig(); cfg == nil || !cfg.SyncAlways || !strings.HasPrefix(cfg.StoreDir, dir) {
		t.Errorf("JetStream is %+v, want it in %s, each write synced before it is acknowledged", cfg, dir)
	}
	revision, err := bucket(t, connect(t, srv.ClientURL())).PutString(t.Context(), "k", "v")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	again, _ := start(t, natsembed.Config{StoreDir: dir})
	kve, err := bucket(t, connect(t, again.ClientURL())).Get(t.Context(), "k")
	if err != nil || string(kve.Value()) != "v" || kve.Revision() != revision {
		t.Errorf("after a restart: %v, %v", kve, err)
	}
}

func TestAnAddressInUseIsATakenError(t *testing.T) {
	first, stop := start(t, natsembed.Config{StoreDir: t.TempDir()})
	addr := first.Addr().String()
	srv, err := natsembed.Start(natsembed.Config{Listen: addr, StoreDir: t.TempDir()})
	if taken, ok := errors.AsType[*natsembed.TakenError](err); !ok || taken.Address != addr {
		t.Fatalf("a second server on %s: %v, %v", addr, srv, err)
	}
	bucket(t, connect(t, first.ClientURL()))
	stop()
	start(t, natsembed.Config{Listen: addr, StoreDir: t.TempDir()}) // free again
}

func TestAnAddressOfAnotherMachineIsNotTaken(t *testing.T) {
	const foreign = "192.0.2.1:4222" // RFC 5737: for documentation
	_, err := natsembed.Start(natsembed.Config{Listen: foreign, StoreDir: t.TempDir()})
	if _, taken := errors.AsType[*natsembed.TakenError](err); err == nil || taken {
		t.Errorf("%v, want an error that is no TakenError: nothing listens there", err)
	}
}

func TestAMalformedAddressIsRefused(t *testing.T) {
	for _, listen := range []string{
		"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:nats", "127.0.0.1:65536", "127.0.0.1:-1", "nats://127.0.0.1:4222",
	} {
		_, err := natsembed.Start(natsembed.Config{Listen: listen, StoreDir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%q: %v, want host:port mentioned", listen, err)
		}
	}
}

func TestAStoreThatCannotBeOpenedIsAnErrorNotAnExit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: file}); err == nil {
		t.Error("a server without a store was started")
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("returned after %v", d)
	}
}

func TestTheServersNoticesAreLoggedAtDebug(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		var log natstest.Buffer
		handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})
		_, stop := start(t, natsembed.Config{StoreDir: t.TempDir(), Log: slog.New(handler)})
		stop()
		if got := strings.Contains(log.String(), "nats-server: "); got != want {
			t.Errorf("at level %v: logged %v, want %v:\n%s", level, got, want, log.String())
		}
	}
}

// The log writes lines with one message once a minute, so that strangers cannot crowd out important lines.
func TestLinesAboutClientsHaveOneMessage(t *testing.T) {
	var log natstest.Buffer
	srv, _ := start(t, natsembed.Config{StoreDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	const strangers = 3
	for i := range strangers {
		c, err := net.Dial("tcp", srv.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET /%d HTTP/1.1\r\n\r\n", i); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "each stranger is logged", func() bool { return strings.Count(log.String(), "\n") >= strangers })
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, ` level=ERROR msg="nats-server: trouble with a client" client=`) {
			t.Errorf("logged %s", line)
		}
	}
}

func TestAServerCanBeJoinedWithoutItsPort(t *testing.T) {
	srv, _ := start(t, natsembed.Config{StoreDir: t.TempDir()})
	nc := connect(t, "nats://host.invalid:1", nats.InProcessServer(srv))
	if err := nc.Flush(); err != nil {
		t.Error(err)
	}
	if _, port, err := net.SplitHostPort(srv.Addr().String()); err != nil || port == "0" {
		t.Errorf("listens on %v, want the port that was picked", srv.Addr())
	}
}

// nats-server reports a stream whose directory is there as one that could not be recovered, until it is made. A Host
// restarts its server only for trouble.
func TestAStreamThatIsBeingMadeIsNoTrouble(t *testing.T) {
	dir := t.TempDir()
	h, _ := host(t, dir)
	bucket(t, connect(t, h.CallersURL()))
	streams := filepath.Join(dir, "jetstream", "$G", "streams")
	if _, err := os.Stat(filepath.Join(streams, "KV_b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(streams, "MAKING"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if trouble := h.Look(); trouble != nil || h.Reported() == "" {
			t.Errorf("trouble %v, and nats-server reports %q", trouble, h.Reported())
		}
	}
}

// file writes a configuration.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// By default acknowledged marks and records would be lost by a power cut.
func TestAFileChangesNeitherTheStoreNorItsSyncs(t *testing.T) {
	dir := t.TempDir()
	srv, _ := start(t, natsembed.Config{StoreDir: dir, File: file(t, fmt.Sprintf(`
server_name: mine
listen: "127.0.0.1:-1"
ping_interval: "1m"
jetstream { store_dir: %q, sync_interval: "10m", max_file_store: 1GB }`, dir))})
	cfg := srv.JetStreamConfig()
	if !cfg.SyncAlways || !strings.HasPrefix(cfg.StoreDir, dir) || cfg.MaxStore != 1<<30 || srv.Name() != "mine" {
		t.Errorf("%s has %+v", srv.Name(), cfg)
	}
	if v, err := srv.Varz(nil); err != nil || v.PingInterval != 2*time.Second {
		t.Errorf("pings come every %v, %v", v.PingInterval, err)
	}
}

func TestAFileThatMakesTheServerAnotherIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`cluster { name: c }`:                         "has a cluster",
		`cluster { listen: "127.0.0.1:-1" }`:          "run nats-server",
		`gateway { name: g, listen: "127.0.0.1:-1" }`: "has a gateway",
		`jetstream { extension_hint: will_extend }`:   "run nats-server",
		`store_dir: "/elsewhere"`:                     "remove store_dir",
		`jetstream { store_dir: "/elsewhere" }`:       "--data",
		"\nlisten 127.0.0.1":                          "nats.conf:2",
	} {
		_, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), File: file(t, text)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
