package tests

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A grantsWorker is a worker, and what happens to its stream of grants.
type grantsWorker struct {
	t   *testing.T
	s   *server.Server
	js  jetstream.JetStream
	log natstest.Buffer
	url string
}

// startGrants starts a worker in whose JetStream there is, before, what prepare makes.
func startGrants(t *testing.T, prepare func(jetstream.JetStream)) *grantsWorker {
	t.Helper()
	w := &grantsWorker{t: t, s: launch(t, &server.Options{JetStream: true})}
	w.url = w.s.ClientURL()
	var err error
	if w.js, err = jetstream.New(connectTo(t, w.url), jetstream.WithDefaultTimeout(2*patience)); err != nil {
		t.Fatal(err)
	}
	prepare(w.js)
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP, cfg.MaxClockSkew = w.url, t.TempDir(), "", time.Millisecond
	cfg.AutoCreateTags = true
	cfg.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	startWith(t, cfg)
	return w
}

// alarms waits for an alarm about grants that has the words, while both kinds of IDs are issued.
func (w *grantsWorker) alarms(words string) {
	w.t.Helper()
	nc := connectTo(w.t, w.url)
	waitServed(w.t, nc)
	waitFor(w.t, "an alarm: "+words, func() bool {
		getIDs(w.t, nc, "id", "order")
		for line := range strings.Lines(w.log.String()) {
			if strings.Contains(line, "grants-lost") && strings.Contains(line, words) {
				return true
			}
		}
		return false
	})
}

// audited waits until an audit has read a load.
func (w *grantsWorker) audited() {
	w.t.Helper()
	waitFor(w.t, "an audit reads a load", func() bool {
		_, text := run(w.t, patient(w.t), "audit", "--nats="+w.url)
		return strings.Contains(text, "of 1 tag ") && strings.Contains(text, "no ID was granted twice")
	})
}

const grantsStream = "KV_id_grants"

func TestAStreamOfGrantsOfAnotherRegistryIsNotWritten(t *testing.T) {
	t.Parallel()
	w := startGrants(t, func(js jetstream.JetStream) {
		_, err := js.CreateStream(patient(t), jetstream.StreamConfig{
			Name: grantsStream, Subjects: []string{"$KV.id_grants.>"}, MaxMsgsPerSubject: -1, MaxAge: time.Hour,
			Metadata: map[string]string{"natsid-registry": "FOREIGN"},
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	w.alarms("it belongs to registry FOREIGN")
	s, err := w.js.Stream(patient(t), grantsStream)
	if err != nil || s.CachedInfo().State.Msgs > 0 {
		t.Errorf("%d entries are written, %v", s.CachedInfo().State.Msgs, err)
	}
	if err := w.js.DeleteStream(patient(t), grantsStream); err != nil {
		t.Fatal(err)
	}
	w.audited() // nothing was lost
}

func TestAFullStreamOfGrantsRaisesAnAlarm(t *testing.T) {
	t.Parallel()
	full := jetstream.StreamConfig{
		Name: grantsStream, Subjects: []string{"$KV.id_grants.>"}, MaxMsgsPerSubject: -1, MaxAge: time.Hour,
		MaxBytes: 64, Discard: jetstream.DiscardNew,
	}
	w := startGrants(t, func(js jetstream.JetStream) {
		if _, err := js.CreateStream(patient(t), full); err != nil {
			t.Fatal(err)
		}
	})
	w.alarms("no room")
	full.MaxBytes = 1 << 20
	if _, err := w.js.UpdateStream(patient(t), full); err != nil {
		t.Fatal(err)
	}
	w.audited()
}

func TestAStreamOfGrantsThatIsDeletedIsMadeAgainWithAnAlarm(t *testing.T) {
	t.Parallel()
	w := startGrants(t, func(jetstream.JetStream) {})
	// One that is deleted before an entry is in it has lost nothing.
	waitFor(t, "an entry is written", func() bool {
		s, err := w.js.Stream(patient(t), grantsStream)
		return err == nil && s.CachedInfo().State.Msgs > 0
	})
	if err := w.js.DeleteStream(patient(t), grantsStream); err != nil {
		t.Fatal(err)
	}
	w.alarms("was deleted")
	w.audited()
	s, err := w.js.Stream(patient(t), grantsStream)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if c.MaxAge != 30*24*time.Hour || c.MaxBytes != 256<<20 || c.Discard != jetstream.DiscardOld ||
		c.Metadata["natsid-registry"] == "" || c.MaxMsgsPerSubject > 0 || c.Compression != jetstream.NoCompression {
		t.Errorf("it is made as %+v", c)
	}
}
