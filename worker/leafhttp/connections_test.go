package leafhttp_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/worker/leafhttp"
)

// dial connects, and returns a function that asks for an ID; its answer is nil where the connection was closed.
func (r *rig) dial() (ask func() *http.Response) {
	r.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(conn)
	return func() *http.Response {
		if _, err := io.WriteString(conn, "GET /api/segment/get/order HTTP/1.1\r\nHost: leaf\r\n\r\n"); err != nil {
			return nil
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return nil
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp
	}
}

func TestAConnectionTooManyIsAnsweredWithACode(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	r.server.Crowd(1)
	first := r.dial()
	if resp := first(); resp == nil || resp.StatusCode != 200 {
		t.Fatalf("the first: %+v", resp)
	}
	second := r.dial()
	if resp := second(); resp == nil || resp.StatusCode != 503 || !resp.Close || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the second: %+v, want 503 with a time to wait, and a connection that is closed", resp)
	}
	if resp := first(); resp == nil || resp.StatusCode != 200 || resp.Close {
		t.Errorf("the first again: %+v", resp)
	}
	if n := r.given.Load(); n != 2 {
		t.Errorf("%d IDs were given, want 2", n)
	}
	if n := r.called.Load(); n != 3 {
		t.Errorf("%d requests were counted by address, want 3", n)
	}
	r.server.Crowd(-leafhttp.Refused) // none, and none to refuse
	if resp := r.dial()(); resp != nil {
		t.Errorf("beyond those that are refused: %+v, want none", resp)
	}
}
