package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A worker whose bucket names another one that did not stop waits for that one: it may know of loads that this one does
// not, as after a restore. One that was alone waits for nobody.
func TestAStartWaitsForThoseWhoDidNotStop(t *testing.T) {
	t.Parallel()
	cfg := joined(t, startServer(t, "127.0.0.1:0").ClientURL())
	restart := func() (took time.Duration) {
		began := time.Now()
		i := launch(t, cfg)
		i.logs("mode=segment")
		took = time.Since(began)
		i.where()
		i.stop()
		if err := i.end(); err != nil {
			t.Fatal(err)
		}
		return took
	}
	restart()
	js, err := jetstream.New(connect(t, cfg.NATS))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "id_segments")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range keys.Keys() {
		if !strings.HasPrefix(key, "_natsid.w.") {
			continue
		}
		e, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		other := strings.Replace(string(e.Value()), `"ended":true`, `"ended":false`, 1)
		if _, err := kv.PutString(t.Context(), "_natsid.w.another", other); err != nil {
			t.Fatal(err)
		}
	}
	if took := restart(); took < 1500*time.Millisecond {
		t.Errorf("it served after %v, without one that may come back", took)
	}
}
