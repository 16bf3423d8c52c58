package tests

import (
	"log/slog"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
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
func startGrants(t *testing.T, prepare func(jetstream.JetStream), changes ...func(*app.Config)) *grantsWorker {
	t.Helper()
	w := &grantsWorker{t: t, s: launch(t, &server.Options{JetStream: true})}
	w.url = w.s.ClientURL()
	var err error
	if w.js, err = jetstream.New(natstest.Connect(t, w.url), jetstream.WithDefaultTimeout(2*patience)); err != nil {
		t.Fatal(err)
	}
	prepare(w.js)
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP, cfg.MaxClockSkew = w.url, t.TempDir(), "", time.Millisecond
	cfg.AutoCreateTags = true
	cfg.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	for _, change := range changes {
		change(&cfg)
	}
	startWith(t, cfg)
	return w
}

// audited waits until an audit has read a load.
func (w *grantsWorker) audited() {
	w.t.Helper()
	wait.Until(w.t, "an audit reads a load", func() bool {
		_, text := run(w.t, patient(w.t), "audit", "--nats="+w.url)
		return strings.Contains(text, "of 1 tag,") && strings.Contains(text, "no ID was granted twice")
	})
}

const grantsStream = "KV_id_grants"

// Its clock is days off, so that it joins no registry of worker numbers, and serves tags all the same.
func TestAWorkerWithoutANumberWritesDownItsLoads(t *testing.T) {
	t.Parallel()
	w := startGrants(t, func(jetstream.JetStream) {}, func(c *app.Config) {
		c.Now = func() time.Time { return time.Now().Add(72 * time.Hour) }
	})
	nc := natstest.Connect(t, w.url)
	wait.Until(t, "a segment ID", func() bool {
		_, err := nc.Request("id.segment.order", nil, patience)
		return err == nil
	})
	w.audited()
}

func TestAStreamOfGrantsThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := startGrants(t, func(jetstream.JetStream) {})
	wait.Until(t, "an entry is written", func() bool {
		s, err := w.js.Stream(patient(t), grantsStream)
		return err == nil && s.CachedInfo().State.Msgs > 0
	})
	if err := w.js.DeleteStream(patient(t), grantsStream); err != nil {
		t.Fatal(err)
	}
	nc := natstest.Connect(t, w.url)
	wait.Until(t, "another one is made", func() bool {
		getIDs(t, nc, "id", "order")
		_, err := w.js.Stream(patient(t), grantsStream)
		return err == nil
	})
	w.audited()
	s, err := w.js.Stream(patient(t), grantsStream)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if c.MaxAge != 30*24*time.Hour || c.MaxBytes != 256<<20 || c.Discard != jetstream.DiscardOld ||
		c.MaxMsgsPerSubject > 0 || c.Compression != jetstream.NoCompression {
		t.Errorf("it is made as %+v", c)
	}
}

// provenAfter waits until an audit proves that no ID was granted twice, and returns what it says. Of what happened
// before, it says so for good. Before each audit it calls load.
func provenAfter(t *testing.T, url, what string, load func()) (text string) {
	t.Helper()
	wait.Until(t, "no ID was granted twice after "+what, func() bool {
		code := 0
		load()
		code, text = run(t, patient(t), "audit", "--nats="+url)
		return code == 0
	})
	return text
}

func TestAnOrdinaryLifeIsProven(t *testing.T) {
	t.Parallel()
	url := launch(t, &server.Options{JetStream: true}).ClientURL()
	nc := natstest.Connect(t, url)
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	start := func(name string) *process {
		return startProcess(t, "--nats", url, "--name", name, "--data", dirs[name], "--max-clock-skew", "1ms",
			"--auto-create-tags")
	}
	segment := func(tag string) *client.Handle {
		return client.Must(client.Must(client.New(nc, client.Config{})).Segment(tag, client.SegmentConfig{}))
	}
	load := func() { // an entry proves that its worker has no others
		if _, err := segment("order").NextN(patient(t), 1000); err != nil {
			t.Error(err)
		}
	}
	var snowflakes []string
	use := func(what string) string {
		t.Helper()
		waitServed(t, nc)
		snowflakes = append(snowflakes, next(t, flakes(nc)).String())
		for range 3 {
			getIDs(t, nc, "id", "order")
		}
		return provenAfter(t, url, what, load)
	}
	a := start("a")
	use("a start")
	// What a process loaded within its last second may not be written down.
	const fresh = `tag fresh: IDs 1-1000 are in no record: nobody but worker a, `
	if _, err := segment("fresh").Next(patient(t)); err != nil {
		t.Fatal(err)
	}
	a.signal(syscall.SIGKILL)
	a = start("a")
	waitServed(t, nc)
	getIDs(t, nc, "id", "fresh")
	if text := provenAfter(t, url, "a kill within a second of a load", load); !strings.Contains(text, fresh) {
		t.Logf("the load was written down: %s", text)
	}
	for _, end := range []struct {
		what string
		by   syscall.Signal
	}{
		{"kill -9", syscall.SIGKILL}, {"a second one", syscall.SIGKILL}, {"a stop", syscall.SIGTERM},
		{"a second stop", syscall.SIGTERM},
	} {
		a.signal(end.by)
		a = start("a")
		use(end.what + " and a restart")
	}
	b := start("b")
	use("the start of another worker")
	for range 2 { // a rolling upgrade
		a.signal(syscall.SIGTERM)
		a = start("a")
		b.signal(syscall.SIGTERM)
		b = start("b")
		use("a rolling upgrade")
	}
	if code, text := run(t, patient(t), "resume", "--restored", "--yes", "--nats="+url); code != 0 {
		t.Fatal(code, text)
	}
	// Until then the others answer that the registry is stopped.
	wait.Until(t, "all workers in the new era", func() bool {
		for range 20 {
			if _, err := segment("order").NextN(patient(t), 1); err != nil {
				return false
			}
		}
		return true
	})
	wait.Until(t, "a load in the new era", func() bool {
		return strings.Contains(use("a resume"), "assumption of `natsid resume`")
	})
	a.signal(syscall.SIGKILL)
	b.signal(syscall.SIGTERM)
	start("a")
	use("a resume and a kill")
	for _, id := range snowflakes { // whose number a later process may have resumed
		if code, text := run(t, patient(t), "explain", id, "--nats="+url); code != 0 ||
			strings.Count(text, "window ") != 1 {
			t.Errorf("explain %s: exit code %d, %s", id, code, text)
		}
	}
}

func TestAMarkThatSomebodyWroteByHandIsNotProven(t *testing.T) {
	t.Parallel()
	w := startGrants(t, func(jetstream.JetStream) {})
	nc := natstest.Connect(t, w.url)
	waitServed(t, nc)
	getIDs(t, nc, "id", "order")
	provenAfter(t, w.url, "a load", func() {})
	kv, err := w.js.KeyValue(patient(t), "id_segments")
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(patient(t), "order")
	if err != nil {
		t.Fatal(err)
	}
	value := regexp.MustCompile(`"mark":\d+`).ReplaceAllString(string(e.Value()), `"mark":777778`)
	if _, err := kv.Put(patient(t), "order", []byte(value)); err != nil {
		t.Fatal(err)
	}
	code, text := run(t, patient(t), "audit", "--nats="+w.url)
	if code != 4 || !strings.Contains(text, "-777777 are in no record") {
		t.Errorf("exit code %d, %s", code, text)
	}
}
