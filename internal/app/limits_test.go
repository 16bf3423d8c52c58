package app_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

// retried calls f until it succeeds: a busy machine answers late.
func retried(t *testing.T, f func() error) {
	t.Helper()
	err := f()
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); err = f() {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoSegmentIsServedWithoutTheLimitsThatMustBeHeeded(t *testing.T) {
	t.Parallel()
	url := startServer(t, "127.0.0.1:0").ClientURL()
	nc := connect(t, url)
	cl := client.New(nc)
	cfg := joined(t, url)
	cfg.HTTP = "127.0.0.1:0"
	first := launch(t, cfg)
	address := first.where().HTTP
	retried(t, func() error {
		_, err := cl.Segment("order").Next(t.Context())
		return err
	})
	retried(t, func() error {
		_, err := cl.UpdateTag(t.Context(), subjects.TagUpdate{Tag: "order", MaxBatch: new(5)})
		return err
	})
	retried(t, func() error {
		_, err := cl.Throttle(t.Context(), subjects.Throttle{Tag: "other", Rate: 7})
		return err
	})
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(body), "throttled: other to 7 IDs/s\n") {
		t.Errorf("/readyz: %s, %v", body, err)
	}
	first.stop()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}

	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	forgets := func(after time.Duration) {
		t.Helper()
		s, err := js.Stream(t.Context(), "KV_id_settings")
		if err == nil {
			spoilt := s.CachedInfo().Config
			spoilt.MaxAge = after
			_, err = js.UpdateStream(t.Context(), spoilt)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	forgets(time.Hour)
	second := launch(t, cfg)
	retried(t, func() error {
		_, err := cl.Snowflake().Next(t.Context())
		return err
	})
	if m, err := nc.Request("id.segment.order", []byte("6"), 5*time.Second); !errors.Is(err, nats.ErrNoResponders) &&
		(err != nil || subjects.ParseError(m.Header) == nil) {
		t.Errorf("IDs without the limit: %+v, %v", m, err)
	}
	forgets(0)
	second.where()
	if _, err := cl.Segment("order").NextN(t.Context(), 5); err != nil {
		t.Error(err)
	}
	m, err := nc.Request("id.segment.order", []byte("6"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if e := subjects.ParseError(m.Header); e == nil || e.MaxBatch != 5 {
		t.Errorf("%v, want the limit of before the restart", e)
	}
}
