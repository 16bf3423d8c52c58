package cli_test

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

func TestHealthIsReadiness(t *testing.T) {
	worker := serve(t, "--name=oslo", "--http=127.0.0.1:0")
	addr := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/readyz`).FindStringSubmatch(worker.line)[1]
	answered(t, "health", "--http="+addr).want(t, 0, "")
	_, port, _ := strings.Cut(addr, ":")
	for _, form := range []string{":" + port, "0.0.0.0:" + port} { // as workers are told to listen
		t.Setenv("NATSID_HTTP", form)
		if got := natsid(t, "health"); got.code != 0 || got.out != "segment: ready\nsnowflake: ready\n" {
			t.Errorf("%s: %+v", form, got)
		}
	}
	wantJSON(t, `^{"ready":true,"says":\["segment: ready","snowflake: ready"\]}$`, "health")

	worker.stop()
	natsid(t, "health").want(t, 3, "nobody answers on http://0.0.0.0:"+port+"/readyz", "--http ADDR")
}

func TestHealthAsksOnlyWhatCanAnswer(t *testing.T) {
	t.Parallel()
	natsid(t, "health", "--http=").want(t, 2, "serves nothing")
	natsid(t, "health", "--http=127.0.0.1:0").want(t, 2, "free port")
	natsid(t, "health", "--http=127.0.0.1").want(t, 2, "host:port")
	other := httptest.NewServer(nil) // 404
	defer other.Close()
	natsid(t, "health", "--http="+strings.TrimPrefix(other.URL, "http://")).want(t, 3, "not natsid")
}

func TestTheHealthOfAFleetNamesVersionsThatCannotTakeEachOthersPlace(t *testing.T) {
	t.Parallel()
	s := serve(t, "--name=eu-1")
	at := "--nats=" + s.url
	got := natsid(t, "health", "--fleet", at)
	if got.code != 0 || !matchLines(got.out, `natsid \S+ \(grants=1 marks=1 numbers=1\): eu-1`) {
		t.Errorf("%+v", got)
	}
	nc, err := nats.Connect(s.url, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var formats atomic.Value
	formats.Store("grants=1 marks=1 numbers=1")
	answer := func(m *nats.Msg) { // as a worker of another version
		ping := micro.Ping{ServiceIdentity: micro.ServiceIdentity{Name: "id-segment", ID: "x", Version: "9.9.9"}}
		ping.Metadata = map[string]string{
			"instance": "eu-2", "formats": formats.Load().(string), "segment": "ready", "snowflake": "ready",
		}
		body, err := json.Marshal(ping)
		if err == nil {
			err = m.Respond(body)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := nc.Subscribe("$SRV.PING.id-segment", answer); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	got = natsid(t, "health", "--fleet", at)
	if got.code != 0 || !strings.Contains(got.out, "natsid 9.9.9") || !strings.Contains(got.out, "All write the same") {
		t.Errorf("%+v", got)
	}
	formats.Store("grants=1 marks=2 numbers=1")
	got = natsid(t, "health", "--fleet", at)
	if got.code != 1 || !strings.Contains(got.err, "write different formats") {
		t.Errorf("%+v", got)
	}
	s.stop()
	natsid(t, "health", "--fleet", at).want(t, 3)
}
