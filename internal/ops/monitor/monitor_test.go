package monitor

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
	notes = []string{"throttled: each tag to 5 IDs/s"}
	if code, body := get("/readyz"); code != 200 ||
		body != "segment: ready\nsnowflake: ready\nthrottled: each tag to 5 IDs/s\n" {
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

// A pipe is a listener with one connection.
type pipe struct {
	conns chan net.Conn
	once  sync.Once
}

func (p *pipe) Accept() (net.Conn, error) {
	if c, open := <-p.conns; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p *pipe) Addr() net.Addr { return new(net.TCPAddr) }

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.conns) })
	return nil
}

func TestAConnectionThatNobodyUsesIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		l := &pipe{conns: make(chan net.Conn, 1)}
		l.conns <- there
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- Serve(ctx, l, page) }()
		if _, err := io.WriteString(here, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(here), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		began := time.Now()
		if _, err := here.Read(make([]byte, 1)); err != io.EOF || time.Since(began) > 5*time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
