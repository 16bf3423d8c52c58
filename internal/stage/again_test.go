package stage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
)

// The new source counts from one: messages with copied numbers would be left out, and later ones
// copied as if nothing were missing.
func TestASourceThatIsMadeAgainWhileItIsReadStopsTheStage(t *testing.T) {
	p := newPair(t, 100)
	ended := make(chan error, 1)
	go func() {
		// There may be no stream yet when it is asked at first.
		ended <- p.stage(func(c *stage.Config) { c.Once, c.Settle = false, 300*time.Millisecond }).Run(t.Context())
	}()
	for end := time.Now().Add(30 * time.Second); p.held() < 100; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is copied")
		}
	}
	must(t, p.js.DeleteStream(t.Context(), p.source))
	_, err := p.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: p.source, Subjects: []string{t.Name() + ".>"},
	})
	must(t, err)
	p.publish(100, 250)
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "deleted and made again") {
			t.Errorf("the stage ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the stage goes on")
	}
	p.verify(100)
}
