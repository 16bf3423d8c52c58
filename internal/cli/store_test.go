package cli_test

import (
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
)

func TestAStoreWithoutIdentityIsShownAndConfirmed(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	nats := "--nats=" + srv.ClientURL()
	natsid(t, "store", "show", nats).want(t, 3, "no bucket id_segments")
	streams := buckets.OnJetStream(jetStream(t, srv.ClientURL()))
	// Made by a worker, and made again after it was lost.
	lost := buckets.New(streams, buckets.Config{Name: "id_segments"})
	if _, err := lost.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := kvstore.New(streams, kvstore.Config{Bucket: "id_segments"})
	if _, err := store.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 5000}, true); err != nil {
		t.Fatal(err)
	}
	shown := func(want ...string) {
		t.Helper()
		got := answered(t, "store", "show", nats)
		got.want(t, 0, "")
		for _, w := range want {
			if !strings.Contains(got.out, w) {
				t.Errorf("shown\n%s, want %q", got.out, w)
			}
		}
	}
	shown("TAGS       1", "PURGES     refused", "no identity", "natsid store confirm")
	asked := answered(t, "store", "confirm", nats)
	asked.want(t, 0, "")
	shown("no identity")
	if !strings.Contains(asked.out, "Nothing was changed") {
		t.Errorf("without --yes: %s", asked.out)
	}
	answered(t, "store", "confirm", "--yes", nats).want(t, 0, "")
	shown("KIND       kv", "STATE      in order")
	if _, err := store.Create(t.Context(), segment.Tag{Name: "new", Step: 1, MaxID: 1}, false); err != nil {
		t.Errorf("first use once it was confirmed: %v", err)
	}
	natsid(t, "store", "move", "--to=mysql", nats).want(t, 2, "--mysql is missing")
}
