package tests

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

func TestAWorkerServesASecondAwayFromJetStream(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true})
	link := startProxy(t, s.ClientURL())
	cfg := configOn(t, link.URL(), t.TempDir())
	cfg.Horizon = 20 * time.Second
	startWith(t, cfg)
	t.Cleanup(link.Pass) // so that the stop is quick
	waitFor(t, "a worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	nc := connectTo(t, s.ClientURL())
	if _, err := client.New(nc).Segment("order").Next(patient(t)); err != nil {
		t.Fatal(err)
	}
	link.Delay(500 * time.Millisecond) // each way
	history := func() uint64 {
		s, err := jetStreamOf(t, s).Stream(t.Context(), "KV_id_history")
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq
	}
	before := history()
	asked := time.Now()
	for next := int64(2); next < 5000; { // more than what is in memory
		runs, err := request(nc, "id.segment.order", 500, patience)
		switch e, refused := errors.AsType[*subjects.Error](err); {
		case refused && e.Code == subjects.Unavailable && time.Since(asked) < 3*patience:
		case err != nil:
			t.Fatalf("a request was not answered: %v", err)
		default:
			next = runs[len(runs)-1].Last + 1
		}
	}
	if _, err := client.New(nc).Snowflake().Next(patient(t)); err != nil {
		t.Error(err)
	}
	waitFor(t, "the window is renewed", func() bool { return history() > before })
}
