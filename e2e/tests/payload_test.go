package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/worker"
)

func TestAStartEndsBelowTheLeastMaxPayload(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true, MaxPayload: worker.MinPayload - 1})
	code, text := run(t, patient(t), started(t, "--nats="+s.ClientURL())...)
	if code != 1 || !strings.Contains(text, "max_payload") || !strings.Contains(text, fmt.Sprint(worker.MinPayload)) {
		t.Errorf("ended with %d: %s", code, text)
	}
}
