package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

// settings returns the settings of a whole service on a free port, with a new
// directory.
func settings(t *testing.T) app.Config {
	cfg := app.Default()
	cfg.Listen, cfg.Data, cfg.HTTP = "127.0.0.1:0", filepath.Join(t.TempDir(), "data"), ""
	cfg.AutoCreateTags = true
	cfg.MaxClockSkew = time.Millisecond // so that a number never used before is ready at once
	return cfg
}

// joined returns the settings of a worker that joins a NATS.
func joined(t *testing.T, url string) app.Config {
	cfg := settings(t)
	cfg.NATS = url
	return cfg
}

// An instance is a running natsid.
type instance struct {
	t     *testing.T
	log   *natstest.Buffer
	ready chan app.Where
	done  chan struct{}
	err   error // what Run returned, once done is closed
	stop  context.CancelFunc
}

// launch starts an instance. It is stopped when the test ends.
func launch(t *testing.T, cfg app.Config) *instance {
	t.Helper()
	i := &instance{t: t, log: new(natstest.Buffer), ready: make(chan app.Where, 1), done: make(chan struct{})}
	cfg.Log = slog.New(slog.NewTextHandler(i.log, nil))
	cfg.Ready = func(w app.Where) { i.ready <- w }
	ctx, cancel := context.WithCancel(context.Background())
	i.stop = cancel
	go func() {
		defer close(i.done)
		i.err = app.Run(ctx, cfg)
	}()
	t.Cleanup(func() {
		cancel()
		<-i.done
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.Data, i.log)
		}
	})
	return i
}

// where waits until the instance is ready.
func (i *instance) where() app.Where {
	i.t.Helper()
	select {
	case w := <-i.ready:
		return w
	case <-i.done:
		i.t.Fatalf("stopped: %v", i.err)
	case <-time.After(time.Minute):
		i.t.Fatal("not ready after a minute")
	}
	panic("not reached")
}

// end waits until the instance has stopped and returns the error of Run.
func (i *instance) end() error {
	i.t.Helper()
	select {
	case <-i.done:
	case <-time.After(time.Minute):
		i.t.Fatal("still running after a minute")
	}
	return i.err
}

// logs waits until one line of the log has all of the words.
func (i *instance) logs(words ...string) {
	i.t.Helper()
	wait.Until(i.t, fmt.Sprintf("a line of the log has %q", words), func() bool {
		for line := range strings.Lines(i.log.String()) {
			if containsAll(line, words...) {
				return true
			}
		}
		return false
	})
}

func containsAll(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// startServer starts a nats-server that is stopped when the test ends.
func startServer(t *testing.T, listen string) *natsembed.Server {
	t.Helper()
	srv, err := natsembed.Start(natsembed.Config{Listen: listen, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.WaitForShutdown)
	t.Cleanup(srv.Shutdown)
	return srv
}

// freeAddress returns an address that is not in use.
func freeAddress(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// patient returns a client whose calls last as long as a busy machine takes.
func patient(nc *nats.Conn, ns subjects.Namespace) *client.Client {
	return client.Must(client.New(nc, client.Config{Namespace: ns, Timeout: time.Minute}))
}

// order returns the handle of a tag.
func order(nc *nats.Conn, ns subjects.Namespace) *client.Handle {
	return client.Must(patient(nc, ns).Segment("order", client.SegmentConfig{}))
}

// ids asks for one ID of each mode.
func ids(t *testing.T, c *client.Client) (segment, flake subjects.ID) {
	t.Helper()
	segment, err := client.Must(c.Segment("order", client.SegmentConfig{})).Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if flake, err = client.Must(c.Snowflake(client.SnowflakeConfig{})).Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	return segment, flake
}
