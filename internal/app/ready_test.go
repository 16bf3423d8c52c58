package app_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestHealthReadinessAndMetricsAreServed(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.HTTP = "127.0.0.1:0"
	w := launch(t, cfg).where()
	ids(t, patient(connect(t, w.URL)))
	for path, want := range map[string]string{
		"/healthz": "ok\n",
		"/readyz":  "segment: ready\nsnowflake: ready\n",
		"/metrics": fmt.Sprintf("natsid_worker_number %d\n", w.Number),
	} {
		if code, body := get(t, "http://"+w.HTTP+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestIDsAreServedThoughTheHTTPPortIsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := settings(t)
	cfg.HTTP = l.Addr().String()
	i := launch(t, cfg)
	w := i.where()
	i.logs("WARN", "--http", cfg.HTTP)
	if w.HTTP != "" {
		t.Errorf("it reports HTTP on %s", w.HTTP)
	}
	ids(t, patient(connect(t, w.URL)))
}
