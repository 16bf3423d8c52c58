package tests

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

func TestAWorkerStartsWithoutJetStreamAndServesWhenItComes(t *testing.T) {
	t.Parallel()
	addr := freePort(t)
	plain := startNATS(t, addr, "")
	nc := natstest.Connect(t, plain.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	monitor, stop := startOn(t, plain.ClientURL(), t.TempDir())
	wait.Until(t, "/readyz says what is missing", func() bool {
		code, body := get(monitor + "/readyz")
		return code == 503 && strings.Contains(body, "snowflake: not ready: ") &&
			strings.Contains(body, "segment: not ready: bucket id_segments cannot be opened: ")
	})
	wants503(t, nc, "id.segment.order", "id.tag.list")
	plain.Shutdown()
	plain.WaitForShutdown()
	startNATS(t, addr, t.TempDir())
	// The worker finds out by itself, without a request.
	wait.Until(t, "the worker is ready", ok(monitor+"/readyz"))
	waitServed(t, nc)
	if err := stop(); err != nil { // before its server goes
		t.Error(err)
	}
}

// wants503 checks that a worker without a bucket refuses requests by its deadline.
// It may serve HTTP a moment before it takes requests.
func wants503(t *testing.T, nc *nats.Conn, subjectsOf ...string) {
	t.Helper()
	for _, subject := range subjectsOf {
		wait.Until(t, "a worker takes requests on "+subject, func() bool {
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
