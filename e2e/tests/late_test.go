package tests

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func TestAWorkerStartsWithoutJetStreamAndServesWhenItComes(t *testing.T) {
	t.Parallel()
	for law, start := range map[string]func(t *testing.T) (worker, nc string, come func()){
		"NATS has no JetStream": func(t *testing.T) (string, string, func()) {
			addr := freePort(t)
			plain := startNATS(t, addr, "")
			url := plain.ClientURL()
			return url, url, func() {
				plain.Shutdown()
				plain.WaitForShutdown()
				startNATS(t, addr, t.TempDir())
			}
		},
		"JetStream does not answer": func(t *testing.T) (string, string, func()) {
			url := startNATS(t, freePort(t), t.TempDir()).ClientURL()
			p := startProxy(t, url)
			p.Stall(true, "natsid control")
			return p.URL(), url, p.Pass
		},
	} {
		t.Run(law, func(t *testing.T) {
			t.Parallel()
			worker, url, come := start(t)
			nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			monitor, stop := startOn(t, worker, t.TempDir())
			waitFor(t, "the worker serves HTTP", ok(monitor+"/healthz"))
			waitFor(t, "/readyz says what is missing", func() bool {
				code, body := get(monitor + "/readyz")
				return code == 503 && strings.Contains(body, "snowflake: not ready: ") &&
					strings.Contains(body, "segment: not ready: bucket id_segments cannot be opened: ")
			})
			wants503(t, nc, "id.segment.order", "id.tag.list")
			code, body := get(monitor + "/readyz")
			why, bucket := strings.Contains(body, "snowflake: not ready: "), strings.Contains(body, "bucket id_")
			if code != 503 || !why || !bucket {
				t.Errorf("/readyz: %d %s", code, body)
			}

			come()
			// The worker finds out by itself, without a request.
			waitFor(t, "the worker is ready", ok(monitor+"/readyz"))
			ids := client.New(nc)
			var id client.ID
			waitFor(t, "the caller is connected too", func() bool {
				id, err = ids.Segment("order").Next(t.Context())
				return err == nil
			})
			if id < 1 || id > app.DefaultStep {
				t.Errorf("the first segment ID is %d", id)
			}
			waitFor(t, "snowflakes", func() bool { _, err := ids.Snowflake().Next(t.Context()); return err == nil })
			if err := stop(); err != nil { // before its server goes
				t.Error(err)
			}
		})
	}
}

// wants503 checks that a worker without a bucket refuses requests by its deadline.
// It may serve HTTP a moment before it takes requests.
func wants503(t *testing.T, nc *nats.Conn, subjectsOf ...string) {
	t.Helper()
	for _, subject := range subjectsOf {
		waitFor(t, "a worker takes requests on "+subject, func() bool {
			_, err := nc.Request(subject, nil, patience)
			return !errors.Is(err, nats.ErrNoResponders)
		})
		start, deadline := time.Now(), app.Default().Deadline
		msg, err := nc.Request(subject, nil, patience)
		if err != nil || msg.Header.Get(subjects.HeaderErrorCode) != "503" || time.Since(start) > deadline+slack {
			t.Errorf("%s: %v, %v after %v, want 503 within %v", subject, msg, err, time.Since(start), deadline)
		}
	}
}

func TestABucketThatForgetsIsRefusedAlsoWhenItIsOpenedLate(t *testing.T) {
	t.Parallel()
	addr, store := freePort(t), t.TempDir()
	s := startNATS(t, addr, store)
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(2*patience))
	if err != nil {
		t.Fatal(err)
	}
	forever := jetstream.KeyValueConfig{Bucket: "id_segments"}
	forgetful := forever
	forgetful.TTL = time.Hour
	if _, err := js.CreateKeyValue(t.Context(), forgetful); err != nil {
		t.Fatal(err)
	}
	restart := func(store string) {
		s.Shutdown()
		s.WaitForShutdown()
		s = startNATS(t, addr, store)
	}
	restart("")
	monitor, stop := startOn(t, s.ClientURL(), t.TempDir())
	readyz := func(words ...string) func() bool {
		return func() bool {
			_, body := get(monitor + "/readyz")
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(body, w) })
		}
	}
	waitFor(t, "it runs without JetStream", readyz("segment: not ready", "enable it"))
	restart(store)
	waitFor(t, "the bucket is refused, the others are not",
		readyz("segment: not ready: bucket id_segments", "remove the TTL", "snowflake: ready"))
	waitFor(t, "requests for segments are refused", func() bool {
		_, err := request(nc, "id.segment.order", 1, patience)
		refused, ok := errors.AsType[*subjects.Error](err)
		return ok && refused.Code == subjects.Unavailable
	})
	waitFor(t, "the bucket keeps its entries", func() bool {
		_, err := js.UpdateKeyValue(t.Context(), forever)
		return err == nil
	})
	waitFor(t, "segments are ready once it forgets nothing", readyz("segment: ready"))
	if err := stop(); err != nil { // before its server goes
		t.Error(err)
	}
}

func TestAKilledWorkerResumesItsNumberWhileJetStreamIsAway(t *testing.T) {
	t.Parallel()
	addr, store, dir := freePort(t), t.TempDir(), t.TempDir()
	s := startNATS(t, addr, store)
	restart := func(store string) {
		s.Shutdown()
		s.WaitForShutdown()
		s = startNATS(t, addr, store)
	}
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p := startProcess(t, "--nats", s.ClientURL(), "--data", dir)
	flakes, got := client.New(nc).Snowflake(), new(ledger)
	ask := func() (worker int, err error) {
		runs, err := flakes.NextN(t.Context(), 1000)
		if err != nil {
			return 0, err
		}
		got.add(runs...)
		parts, err := snowflake.Leaf.Decode(runs[0].First)
		return parts.Worker, err
	}
	resumed := func() bool { worker, err := ask(); return err == nil && worker == p.number }
	waitFor(t, "snowflakes of the worker's number", resumed)
	p.signal(syscall.SIGKILL)
	restart("")
	monitor, stop := startOn(t, s.ClientURL(), dir)
	waitFor(t, "snowflakes without JetStream", resumed)
	waitFor(t, "/readyz to report each mode", func() bool { // it may follow by a moment
		code, body := get(monitor + "/readyz")
		return code == 503 && strings.Contains(body, "segment: not ready") && strings.Contains(body, "snowflake: ready")
	})
	restart(store)
	waitFor(t, "both modes with JetStream", ok(monitor+"/readyz"))
	waitFor(t, "snowflakes still of that number", resumed)
	got.check(t)
	if err := stop(); err != nil { // before its server goes
		t.Error(err)
	}
}

// ok returns a condition: that a URL is answered with 200.
func ok(url string) func() bool {
	return func() bool { code, _ := get(url); return code == http.StatusOK }
}

// get returns the answer to a request over HTTP; code 0 if there is none.
func get(url string) (code int, body string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Sprint(err)
	}
	return resp.StatusCode, string(text)
}
