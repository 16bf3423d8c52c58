package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
)

// A stream that acknowledges requests answers in the place of the workers.
func TestAStreamThatTakesRequestsIsFoundWhileWorkersRun(t *testing.T) {
	t.Parallel()
	monitor := freePort(t)
	c := e2e.Start(t, configured(func(_ int, cfg *app.Config) { cfg.HTTP, cfg.TagPoll = monitor, time.Second }))
	raised := listen(t, c)
	js, err := jetstream.New(c.Conn)
	if err != nil {
		t.Fatal(err)
	}
	stream := jetstream.StreamConfig{Name: "ARCHIVE", Subjects: []string{"id.alarm.>"}}
	set := func(noAck bool, subjects ...string) {
		t.Helper()
		stream.NoAck, stream.Subjects = noAck, subjects
		if _, err := js.CreateOrUpdateStream(patient(t), stream); err != nil {
			t.Fatal(err)
		}
	}
	const taken = "not ready: stream ARCHIVE acknowledges requests on id.segment.>"
	ready := func(states ...string) func() bool {
		return func() bool {
			_, body := get("http://" + monitor + "/readyz")
			return strings.HasPrefix(body, "segment: "+states[0]) && strings.Contains(body, "\nsnowflake: "+states[1])
		}
	}
	set(false, "id.alarm.>") // who keeps alarms does no harm
	set(false, "id.segment.>", "id.worker.*")
	waitFor(t, "segments are not ready", ready(taken, "ready"))
	set(false, "id.>")
	waitFor(t, "nothing is ready", ready(taken, taken))
	set(true, "id.>") // then a worker's answer is the only one
	waitFor(t, "all is ready", ready("ready", "ready"))
	if err := js.DeleteStream(patient(t), "ARCHIVE"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "an alarm", func() bool { return raised.have("stream-overlap") })
}
