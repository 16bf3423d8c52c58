package worker_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/loglimit"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

func TestEachChangeOfATagIsLoggedWithWhomItsCallerClaimsToBe(t *testing.T) {
	var log natstest.Buffer
	r := start(t, startServer(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Log = slog.New(loglimit.New(slog.NewTextHandler(&log, nil)))
	})
	ask := func(subject, body, claim string) {
		t.Helper()
		m := nats.NewMsg(subject)
		m.Data = []byte(body)
		m.Header.Set("Nats-Request-Info", claim)
		if _, err := r.caller.RequestMsg(m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	const claim = `{"acc":"$G","user":"root","host":"10.0.0.1","jwt":"secret"}`
	ask("id.tag.create", `{"tag":"seat"}`, claim)
	ask("id.tag.create", `{"tag":"desk"}`, `{`)
	ask("id.tag.create", `{"tag":"`+strings.Repeat("x", 1000)+`"}`, claim)
	ask("id.tag.list", `{}`, claim)
	text := log.String()
	for _, want := range []string{
		`msg="tags changed" request=tag-create tag=seat claimed.account=$G claimed.user=root ` +
			`claimed.host=10.0.0.1` + "\n",
		`msg="tags changed" request=tag-create tag=desk` + "\n",
		`msg="a request about tags was refused" request=tag-create tag=xxx`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	for _, never := range []string{"secret", "from.", "tag-list", strings.Repeat("x", 200)} {
		if strings.Contains(text, never) {
			t.Errorf("%q in\n%s", never, text)
		}
	}
}
