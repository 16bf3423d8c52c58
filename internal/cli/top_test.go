package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/workerid"
)

func TestTopPrintsTheFleetOnceWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	nats := "--nats=" + srv.ClientURL()
	serve(t, nats, "--name=first")
	serve(t, nats, "--name=second")
	registry := kvregistry.New(jetStream(t, srv.ClientURL()), kvregistry.Config{
		History: "id_history", Workers: "id_workers", LeaseTTL: 30 * time.Second,
	})
	// Again where a busy worker answers too late, or the heartbeat has expired.
	var got result
	top := func(args ...string) string {
		t.Helper()
		gone := workerid.Heartbeat{Instance: "third", Time: time.Now().UnixMilli()}
		if err := registry.Report(t.Context(), 77, gone); err != nil {
			t.Fatal(err)
		}
		got = answered(t, append(args, "top", nats)...)
		got.want(t, 0, "")
		return got.out
	}
	defer func() {
		if t.Failed() {
			t.Logf("printed\n%s", got.out)
		}
	}()
	answered(t, "get", "snowflake", nats).want(t, 0)
	eventually(t, "the fleet is printed", func() bool {
		return matchLines(top(), `natsid id  [\d:]{8} UTC  2 of 3 answered, 2 serving`,
			`segment .* IDs/s, snowflake .* IDs/s, .* requests/s, 0 waiting, alarms in 24 h: \d`, ``,
			`WORKER +STATE +NUMBER +WINDOW +OFFSET +REQ/S +IDS/S +WAITING +LAG +VERSION`,
			`third +no answer +77 .*`, `  It has a heartbeat and does not answer: .*`,
			`first +serving +\d+ +.*`, `second +serving +\d+ +.*`)
	})
	eventually(t, "and as JSON", func() bool {
		var v struct {
			Answered int
			Workers  []struct {
				Name     string
				Answered bool
				Requests *float64 `json:"requests_per_second"`
			}
		}
		if err := json.Unmarshal([]byte(top("--json")), &v); err != nil {
			t.Fatal(err)
		}
		return v.Answered == 2 && len(v.Workers) == 3 &&
			v.Workers[0].Requests != nil && !v.Workers[2].Answered && v.Workers[2].Requests == nil
	})
}

func TestTopSaysThatNobodyIsThere(t *testing.T) {
	t.Parallel()
	natsid(t, "top", "--nats", nowhere(t)).want(t, 3, "cannot reach NATS")
	srv := startServer(t)
	natsid(t, "top", "--nats", srv.ClientURL()).want(t, 3, "no natsid has run on this NATS in namespace id")
	for name := range jetStream(t, srv.ClientURL()).KeyValueStoreNames(t.Context()).Name() {
		t.Errorf("the bucket %s was created", name)
	}
	if out := natsid(t, "top", "--help").out; !strings.Contains(out, "natsid top --once") ||
		!regexp.MustCompile(`(?m)^ +natsid top$`).MatchString(out) {
		t.Errorf("no example in %s", out)
	}
}
