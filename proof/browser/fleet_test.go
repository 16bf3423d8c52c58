package browser_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/testkit/frozen"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A large fleet: whole workers, as many as a small machine bears in one process, others that only answer how they are,
// and tags in the store.
const (
	wholeWorkers = 5
	otherWorkers = 195
	manyTags     = 100_000
)

// What a view of a large fleet may cost. The page is meant to be there in a second; the test fails when something
// grows with the number of tags, not when the machine is busy.
const (
	mostBytes  = 2_000_000
	mostMillis = 10_000
)

func TestALargeFleetOnARealStoreIsThereSoon(t *testing.T) {
	t.Parallel()
	natsURL := startServer(t)
	first := config(t, natsURL, "whole-000")
	first.HTTP = "127.0.0.1:0"
	where := make(chan app.Where, 1)
	first.Ready = func(w app.Where) { where <- w }
	startWorker(t, first)
	var ready sync.WaitGroup
	for i := 1; i < wholeWorkers; i++ {
		cfg := config(t, natsURL, fmt.Sprintf("whole-%03d", i))
		ready.Add(1)
		cfg.Ready = func(app.Where) { ready.Done() }
		startWorker(t, cfg)
	}
	base := "http://" + (<-where).HTTP
	ready.Wait()
	nc, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	storeTags(t, js)
	answerAsOthers(t, nc)

	ctx := browse(t)
	do(t, ctx, "an empty page", chromedp.Navigate(base+"/healthz"))
	for _, path := range []string{"/", "/tags", "/tags?q=99", "/tag?name=tag000001", "/charts"} {
		var cost struct{ Bytes, Paint float64 }
		do(t, ctx, path, chromedp.Navigate(base+path), shows("200 of 200 answered"), painted(&cost))
		t.Logf("%s: %.0f bytes, first painted after %.0f ms", path, cost.Bytes, cost.Paint)
		if cost.Bytes > mostBytes || cost.Paint > mostMillis {
			t.Errorf("%s is too large or too late", path)
		}
	}
	do(t, ctx, "all tags", chromedp.Navigate(base+"/tags?q=tag"), shows("1 to 50 of 100,000 tags"))

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.Command(exe, "--nats", natsURL, "--data", t.TempDir(), "--name", "victim", "--http", "",
		"--max-clock-skew", "1ms")
	victim.Env = append(os.Environ(), execEnv+"=1")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var number string
	do(t, ctx, "another process", chromedp.Navigate(base), shows("201 of 201 answered"),
		showsIn(`[data-key="victim"]`, "serving"), chromedp.Text(`[data-key="victim"] td:nth-child(3)`, &number))
	_ = victim.Process.Kill()
	_ = victim.Wait()
	do(t, ctx, "a process that was killed", shows("200 of 201 answered"),
		holds(`document.body.textContent.includes("no answer from victim")`),
		showsIn(`[data-key="victim"]`, "no answer"))
	endHeartbeat(t, js, number)
	do(t, ctx, "after its last heartbeat", showsIn(`[data-key="victim"]`, "gone"), shows("It did not stop cleanly"))

	late := config(t, natsURL, "late")
	late.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	startWorker(t, late)
	do(t, ctx, "a clock that is wrong", chromedp.Navigate(base), showsIn(`[data-key="late"]`, "no number"),
		showsIn("#alarms", "clock-skew late: "))
}

// painted returns what a view cost: bytes, and milliseconds until its first paint.
func painted(cost any) chromedp.Action {
	return chromedp.PollFunction(`() => {
		const paint = performance.getEntriesByName("first-contentful-paint")[0];
		if (!paint) return null;
		const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
		return {bytes: all.reduce((sum, e) => sum + e.transferSize, 0), paint: paint.startTime};
	}`, cost, chromedp.WithPollingTimeout(patience))
}

// showsIn waits until an element shows a text.
func showsIn(selector, text string) chromedp.Action {
	return holds(fmt.Sprintf("!!document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// startServer starts a nats-server.
func startServer(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.WaitForShutdown)
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(patience) {
		t.Fatal("the nats-server does not start")
	}
	return s.ClientURL()
}

// config returns the settings of a worker.
func config(t *testing.T, url, name string) app.Config {
	t.Helper()
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP, cfg.Name = url, filepath.Join(t.TempDir(), "data"), "", name
	cfg.MaxClockSkew = time.Millisecond
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	return cfg
}

// startWorker starts a worker in this process, which stops when the test ends.
func startWorker(t *testing.T, cfg app.Config) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("worker %s: %v", cfg.Name, err)
		}
	})
}

// storeTags writes the tags into their bucket, as an operator can.
func storeTags(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for i := range manyTags {
		subject, entry := fmt.Sprintf("$KV.id_segments.tag%06d", i), []byte(`{"mark":1,"step":1000}`)
		if _, err := js.PublishAsync(subject, entry, jetstream.WithStallWait(patience)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}

// answerAsOthers answers as the workers of which there is nothing else.
func answerAsOthers(t *testing.T, nc *nats.Conn) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	for i := range otherWorkers {
		view := func(q wire.ViewRequest) wire.WorkerView {
			s, _ := frozen.Config().Fleet.Look(context.Background(), q)
			v := s.Workers[0].WorkerView
			v.Statistics.Instance, v.Statistics.Number = fmt.Sprintf("other-%03d", i), &i
			return v
		}
		if _, err := fleetview.Answer(nc, subjects.DefaultNamespace, log, view); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// endHeartbeat ends a heartbeat, as the TTL of its bucket does later.
func endHeartbeat(t *testing.T, js jetstream.JetStream, number string) {
	t.Helper()
	if _, err := strconv.Atoi(number); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "id_workers")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(t.Context(), number); err != nil {
		t.Fatal(err)
	}
}
