package grants

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

const bucket = "id_grants"

// stream makes a stream of grants with entries.
func stream(t *testing.T, entries ...string) (jetstream.Stream, jetstream.JetStream) {
	t.Helper()
	silence = time.Second
	js := natstest.JetStream(t, natstest.Start(t))
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV.id_grants.>"}, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := js.Publish(t.Context(), "$KV.id_grants.log", []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	return s, js
}

func read(t *testing.T, js jetstream.JetStream, h History) History {
	t.Helper()
	if err := h.Read(t.Context(), js, buckets.OnJetStream(js), bucket, time.Now()); err != nil {
		t.Error(err)
	}
	return h
}

func entry(process string, n uint64) string {
	body, _ := json.Marshal(Entry{Who: Who{Process: process}, N: n})
	return string(body)
}

func TestAReaderSkipsCopiesAndCountsWhatIsMissing(t *testing.T) {
	_, js := stream(t, entry("A", 1), entry("B", 1), entry("A", 2), entry("A", 2), "{", entry("A", 5), entry("C", 3))
	h := read(t, js, History{})
	if h.Entries != 5 || h.Missing != 4 || h.From.IsZero() || !h.Whole || h.last["A"].Entry != 6 {
		t.Errorf("%+v", h)
	}
	if h := read(t, js, History{Since: time.Now().Add(time.Hour)}); h.Entries != 0 || h.Missing != 0 || h.Whole {
		t.Errorf("%+v since later", h)
	}
}

func TestAReaderOfACutStreamMissesNothingThatIsGone(t *testing.T) {
	s, js := stream(t, entry("A", 1), entry("A", 2), entry("A", 3), entry("A", 4), entry("A", 5))
	for _, n := range []uint64{1, 3, 5} {
		if err := s.DeleteMsg(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if h := read(t, js, History{}); h.Entries != 2 || h.Missing != 1 || h.Whole {
		t.Errorf("%+v", h)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := read(t, js, History{}); h.Entries != 0 {
		t.Errorf("%+v", h)
	}
	err := new(History).Read(t.Context(), js, buckets.OnJetStream(js), "id_other", time.Now())
	if err == nil || !strings.Contains(err.Error(), "there is no stream of grants") {
		t.Error(err)
	}
}

// ahead are streams whose leader has more entries than the server that delivers them.
type ahead struct{ buckets.Streams }

func (a ahead) Info(ctx context.Context, bucket string) (buckets.Info, error) {
	i, err := a.Streams.Info(ctx, bucket)
	i.LastSeq += 5
	return i, err
}

// A lost connection does not say that there are no more of them.
func (ahead) Next(_ context.Context, _, _ string, from uint64) (e buckets.Entry, err error) {
	return buckets.Entry{Revision: from}, nil
}

// Else an audit would find nothing wrong in entries that it has not read.
func TestAReaderReadsAllOrSaysThatItDidNot(t *testing.T) {
	all := make([]string, 5000)
	for i := range all {
		all[i] = entry("A", uint64(i+1))
	}
	_, js := stream(t, all...)
	if h := read(t, js, History{}); h.Entries != 5000 || !h.Whole {
		t.Errorf("%+v", h)
	}
	err := new(History).Read(t.Context(), js, ahead{buckets.OnJetStream(js)}, bucket, time.Now())
	if err == nil || !strings.Contains(err.Error(), "does not deliver grants, entries 5001 to 5005") {
		t.Error(err)
	}
}
