package leafhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
)

func TestTracesOfSlowAndRefusedRequestsAreLogged(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	n := 0
	traced := func(path, format string) (parent string) {
		n++
		parent = fmt.Sprintf(format, n)
		q, err := http.NewRequest(http.MethodGet, r.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("traceparent", parent)
		resp, err := r.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return parent
	}
	line := func(parent string) string {
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, "traceparent="+parent+" ") {
				return line
			}
		}
		return ""
	}
	const form = "00-%032x-00f067aa0ba902b7-01"
	refused := traced("/api/segment/get/none", form)
	for _, want := range []string{
		"level=INFO", "was refused", "path=/api/segment/get/none", "code=404", "no such tag", "took=",
	} {
		if !strings.Contains(line(refused), want) {
			t.Errorf("%q lacks %q", line(refused), want)
		}
	}
	if n := len(line(traced("/api/segment/get/"+strings.Repeat("a", 9000), form))); n == 0 || n > 600 {
		t.Errorf("a long path makes a line of %d bytes", n)
	}
	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		time.Sleep(150 * time.Millisecond)
		return load()
	})
	if slow := line(traced("/api/segment/get/order", form)); !strings.Contains(slow, "was slow") {
		t.Errorf("a request that waited for a load: %q", slow)
	}
	before := r.log.String()
	traced("/api/segment/get/order", form) // from memory
	for _, bad := range []string{"", "00-%032x-00f067aa0ba902b7-0", "%d"} {
		traced("/api/segment/get/none", bad)
	}
	if more := strings.TrimPrefix(r.log.String(), before); strings.Contains(more, "traced") {
		t.Errorf("logged: %s", more)
	}
	traced("/api/snowflake/get/any?n=0", form)
	if !strings.Contains(strings.TrimPrefix(r.log.String(), before), "path=/api/snowflake/get/any") {
		t.Errorf("a refused snowflake is not logged")
	}
}
