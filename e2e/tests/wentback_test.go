package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/subjects"
)

// An oldServer is a nats-server that can come back with an older store.
type oldServer struct {
	t           *testing.T
	addr, store string
	srv         *server.Server
}

func (o *oldServer) stop() {
	o.srv.Shutdown()
	o.srv.WaitForShutdown()
}

func (o *oldServer) start() { o.srv = startNATS(o.t, o.addr, o.store) }

// copyStore copies the store, while the server is stopped.
func copyStore(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// An oldWorld is two workers and a caller on an oldServer.
type oldWorld struct {
	*oldServer
	nc       *nats.Conn
	ids      *client.Client
	got      ledger
	dirs     []string
	monitors []string
	stops    []func() error
}

// waitFor is [waitFor], and says on failure how the workers are.
func (o *oldWorld) waitFor(what string, cond func() bool) {
	o.t.Helper()
	defer func() {
		if o.t.Failed() {
			for _, monitor := range o.monitors {
				code, body := get(monitor + "/readyz")
				o.t.Logf("%s: %s/readyz says %d: %s", what, monitor, code, body)
			}
			o.t.Logf("the caller is connected: %v", o.nc != nil && o.nc.IsConnected())
		}
	}()
	waitFor(o.t, what, cond)
}

func (o *oldWorld) begin(life string) {
	o.stops, o.monitors = nil, nil
	for _, dir := range o.dirs {
		monitor, stop := startOn(o.t, "nats://"+o.addr, dir)
		o.stops, o.monitors = append(o.stops, stop), append(o.monitors, monitor)
	}
	for n, monitor := range o.monitors { // none may be ready before the other has answered
		o.waitFor(fmt.Sprintf("worker %d of the %s life is ready", n, life), ok(monitor+"/readyz"))
	}
}

// take takes IDs, for most of which a range must be loaded.
func (o *oldWorld) take() bool {
	runs, err := o.ids.Segment("order").NextN(o.t.Context(), 700)
	o.got.add(runs...)
	return err == nil
}

func (o *oldWorld) takeMany(when string) {
	for range 20 {
		o.waitFor("segments are served "+when, o.take)
	}
}

// alarmed reports whether an alarm is kept. What is published reaches nobody whose connection is away at that moment.
func (o *oldWorld) alarmed(kind subjects.Alarm) bool {
	js, err := jetstream.New(o.nc)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Second)
	defer cancel()
	kept, _ := app.KeptAlarms(ctx, buckets.OnJetStream(js), subjects.DefaultNamespace.AlarmBucket())
	return slices.ContainsFunc(kept, func(e subjects.AlarmEvent) bool { return e.Kind == kind })
}

func TestAServerThatComesBackWithAnOldStoreRepeatsNoID(t *testing.T) {
	t.Parallel()
	for law, under := range map[string]bool{"under live workers": true, "between two lives of the workers": false} {
		t.Run(law, func(t *testing.T) {
			t.Parallel()
			o := &oldWorld{
				oldServer: &oldServer{t: t, addr: freePort(t), store: filepath.Join(t.TempDir(), "store")},
				dirs:      []string{t.TempDir(), t.TempDir()},
			}
			o.start()
			o.begin("first")
			nc, err := nats.Connect(o.srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			o.nc, o.ids = nc, client.New(nc)
			o.takeMany("at first")
			backup := filepath.Join(t.TempDir(), "backup")
			o.stop()
			copyStore(t, o.store, backup)
			o.start()
			copied := markOf(t, nc, "order")
			o.waitFor("a load that the copy lacks", func() bool { return o.take() && markOf(t, nc, "order") > copied })
			o.takeMany("after the copy was made")
			if !under {
				for _, stop := range o.stops {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
				}
			}
			o.stop()
			copyStore(t, backup, o.store)
			o.start()
			if !under {
				o.begin("second")
			}
			o.takeMany("from the old store")
			o.waitFor("an alarm is kept", func() bool { _ = o.take(); return o.alarmed(subjects.AlarmStoreWentBack) })
			o.takeMany("after the alarm")
			o.got.check(t)
		})
	}
}

// markOf returns the revision of the entry of a tag in the bucket of marks. Each load raises it.
func markOf(t *testing.T, nc *nats.Conn, tag string) (revision uint64) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the mark can be read", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		kv, err := js.KeyValue(ctx, subjects.DefaultNamespace.SegmentBucket())
		if err != nil {
			return false
		}
		entry, err := kv.Get(ctx, tag)
		if err == nil {
			revision = entry.Revision()
		}
		return err == nil
	})
	return revision
}
