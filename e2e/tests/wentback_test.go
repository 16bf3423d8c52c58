package tests

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
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

func TestAServerThatComesBackWithAnOldStoreRepeatsNoID(t *testing.T) {
	t.Parallel()
	for law, under := range map[string]bool{"under live workers": true, "between two lives of the workers": false} {
		t.Run(law, func(t *testing.T) {
			t.Parallel()
			o := &oldServer{t: t, addr: freePort(t), store: filepath.Join(t.TempDir(), "store")}
			o.start()
			url, dirs := o.srv.ClientURL(), []string{t.TempDir(), t.TempDir()}
			var stops []func() error
			begin := func() {
				stops = nil
				var monitors []string
				for _, dir := range dirs {
					monitor, stop := startOn(t, url, dir)
					stops, monitors = append(stops, stop), append(monitors, monitor)
				}
				for _, monitor := range monitors { // none may be ready before the other has answered
					waitFor(t, "the worker is ready", ok(monitor+"/readyz"))
				}
			}
			begin()
			nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			alarms, err := nc.SubscribeSync(subjects.DefaultNamespace.Alarm(subjects.AlarmStoreWentBack))
			if err != nil {
				t.Fatal(err)
			}
			ids, got := client.New(nc), new(ledger)
			take := func() bool {
				runs, err := ids.Segment("order").NextN(t.Context(), 700) // most need a load
				got.add(runs...)
				return err == nil
			}
			takeMany := func() {
				for range 20 {
					waitFor(t, "segments are served", take)
				}
			}
			takeMany()
			backup := filepath.Join(t.TempDir(), "backup")
			o.stop()
			copyStore(t, o.store, backup)
			o.start()
			copied := markOf(t, nc, "order")
			waitFor(t, "a load that the copy lacks", func() bool { return take() && markOf(t, nc, "order") > copied })
			takeMany()
			if !under {
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
				}
			}
			o.stop()
			copyStore(t, backup, o.store)
			o.start()
			if !under {
				begin()
			}
			takeMany()
			waitFor(t, "an alarm", func() bool {
				_ = take()
				n, _, err := alarms.Pending()
				return n > 0 && err == nil
			})
			takeMany()
			got.check(t)
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
