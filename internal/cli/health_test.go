package cli_test

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
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
	natsid(t, "health").want(t, 1, "nobody answers on http://0.0.0.0:"+port+"/readyz", "--http ADDR")
}

func TestHealthAsksOnlyWhatCanAnswer(t *testing.T) {
	t.Parallel()
	natsid(t, "health", "--http=").want(t, 2, "serves nothing")
	natsid(t, "health", "--http=127.0.0.1:0").want(t, 2, "free port")
	natsid(t, "health", "--http=127.0.0.1").want(t, 2, "host:port")
	other := httptest.NewServer(nil) // 404
	defer other.Close()
	natsid(t, "health", "--http="+strings.TrimPrefix(other.URL, "http://")).want(t, 1, "not natsid")
}
