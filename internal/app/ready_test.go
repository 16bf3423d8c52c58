package app_test

import (
	"io"
	"net"
	"net/http"
	"testing"
)

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
