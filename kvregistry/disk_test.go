package kvregistry_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/kvregistry"
)

// A record must be on disk before its write is acknowledged: the law rests on that (A2). A heartbeat is put again
// within seconds, and each sync to disk delays all heartbeats behind it.
func TestHeartbeatsAloneAreAcknowledgedBeforeTheyAreOnDisk(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  kvregistry.Config
		want jetstream.PersistModeType
	}{
		"JetStream turns out to be a single server": {want: jetstream.AsyncPersistMode},
		"it is known to be one": {
			kvregistry.Config{Replicas: 1, Single: true}, jetstream.AsyncPersistMode,
		},
		"somebody chose one replica, perhaps to add others later": {
			kvregistry.Config{Replicas: 1}, jetstream.DefaultPersistMode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			js := natstest.JetStream(t, natstest.Start(t))
			c.cfg.History, c.cfg.Workers, c.cfg.LeaseTTL = "h", "w", 30*time.Second
			if err := kvregistry.New(js, c.cfg).Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			modes := map[string]jetstream.PersistModeType{"KV_w": c.want, "KV_h": jetstream.DefaultPersistMode}
			for stream, want := range modes {
				s, err := js.Stream(t.Context(), stream)
				if err != nil {
					t.Fatal(err)
				}
				if got := s.CachedInfo().Config.PersistMode; got != want {
					t.Errorf("%s is %v, want %v", stream, got, want)
				}
			}
		})
	}
}
