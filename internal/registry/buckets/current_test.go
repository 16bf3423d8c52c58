package buckets_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestWhatAListingLacksIsReadFromTheLeader(t *testing.T) {
	url := natstest.Start(t)
	behind := buckets.OnJetStream(natstest.Behind(t, url, "b"))
	b := buckets.New(behind, buckets.Config{Name: "b"})
	put := func(key string) uint64 {
		t.Helper()
		revision, err := b.Put(t.Context(), key, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	check := func(want string) {
		t.Helper()
		all, err := b.Latest(t.Context(), "")
		keys := slices.Sorted(maps.Keys(all))
		for i, key := range keys {
			if all[key].Removed {
				keys[i] += "!"
			}
		}
		if keys := strings.Join(keys, " "); err != nil || keys != want {
			t.Errorf("%q, %v, want %q", keys, err, want)
		}
	}
	put("old.a")
	check("old.a")
	put("new")
	check("new old.a")
	put("again")
	revision := put("new")
	check("again new old.a")
	if entries, err := behind.List(t.Context(), "b", ""); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: the listing does not lack keys", entries, err)
	}
	if all, err := buckets.Listed(t.Context(), behind, "b"); err != nil || all["new"].Revision != revision {
		t.Errorf("%v, %v, want the key new at %d", all, err, revision)
	}
	if err := remove(t, url, "new"); err != nil {
		t.Fatal(err)
	}
	check("again new! old.a")
	put(buckets.Own + ".w.x")
	check("_natsid.w.x again new! old.a")
	if all, err := b.Latest(t.Context(), buckets.Own+".w."); err != nil || len(all) != 1 {
		t.Errorf("%v, %v, want one key", all, err)
	}
}

// remove leaves a marker in place of a key's value, as `nats kv del` does.
func remove(t *testing.T, url, key string) error {
	kv, err := natstest.JetStream(t, url).KeyValue(t.Context(), "b")
	if err != nil {
		return err
	}
	return kv.Delete(t.Context(), key)
}

// The member that is to lead a new stream describes it too, until it hears of a leader, and may lack what that one has.
func TestAStreamIsWhatItsLeaderSays(t *testing.T) {
	url := natstest.Start(t)
	nc := natstest.Connect(t, url)
	led := []string{"", "s1", "s1", "s0"} // whom the member s0 knows as the leader
	asked := 0
	if _, err := nc.Subscribe("new.>", func(m *nats.Msg) {
		subject := "$JS.API." + strings.TrimPrefix(m.Subject, "new.")
		if !strings.Contains(subject, "STREAM.INFO") {
			_ = nc.PublishRequest(subject, m.Reply, m.Data)
			return
		}
		answer, err := nc.Request(subject, m.Data, time.Minute)
		if errors.Is(err, nats.ErrConnectionClosed) {
			return // the test is over
		}
		described := make(map[string]any)
		if err == nil {
			err = json.Unmarshal(answer.Data, &described)
		}
		if err != nil {
			t.Error(err)
			return
		}
		leader, others := led[asked], []any{map[string]any{"name": "s1"}}
		if asked++; leader != "s0" {
			described["state"], described["ts"] = map[string]any{}, time.Time{}
		}
		if leader == "" {
			others = append(others, map[string]any{"name": "s0"})
		}
		described["cluster"] = map[string]any{"leader": leader, "replicas": others}
		body, err := json.Marshal(described)
		if err == nil {
			err = nc.Publish(m.Reply, body)
		}
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	revision, err := buckets.New(buckets.OnJetStream(natstest.JetStream(t, url)), buckets.Config{Name: "b"}).
		Put(t.Context(), "key", nil)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.NewWithAPIPrefix(nc, "new")
	if err != nil {
		t.Fatal(err)
	}
	streams := buckets.OnJetStream(js)
	if i, err := streams.Info(t.Context(), "b"); err != nil || i.LastSeq != revision || asked != len(led) {
		t.Errorf("%+v, %v after %d answers, want revision %d after %d", i, err, asked, revision, len(led))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	led, asked = make([]string, 100), 0
	if i, err := streams.Info(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v, want no answer while there is no leader", i, err)
	}
}
