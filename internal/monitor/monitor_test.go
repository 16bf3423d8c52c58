package monitor

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestReadinessNamesEachModeAndWhy(t *testing.T) {
	modes := map[string]error{"segment": nil, "snowflake": nil}
	var notes []string
	srv := httptest.NewServer(Handler(func() map[string]error { return modes }, func() []string { return notes },
		http.NotFoundHandler()))
	defer srv.Close()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get(srv.URL + path)
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
	if code, body := get("/readyz"); code != 200 || body != "segment: ready\nsnowflake: ready\n" {
		t.Errorf("%d %q", code, body)
	}
	notes = []string{"throttled: order to 5 IDs/s"}
	if code, body := get("/readyz"); code != 200 ||
		body != "segment: ready\nsnowflake: ready\nthrottled: order to 5 IDs/s\n" {
		t.Errorf("%d %q", code, body)
	}
	notes = nil
	modes["snowflake"] = errors.New("no worker number")
	if code, body := get("/readyz"); code != 503 || body != "segment: ready\nsnowflake: not ready: no worker number\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, body := get("/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("the process lives, whatever it can issue: %d %q", code, body)
	}
	if code, _ := get("/"); code != 404 {
		t.Errorf("/: %d", code)
	}
}
