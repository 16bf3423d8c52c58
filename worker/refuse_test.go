package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// A refuser refuses one mode while it is on.
type refuser struct {
	mode    worker.Mode
	reasons worker.Reasons
}

var errRefused = errors.New("the marks went back")

func (f *refuser) edit(_ *segment.Config, cfg *worker.Config) {
	cfg.Reasons = &f.reasons
}

// set refuses the mode, or allows it.
func (f *refuser) set(on bool) {
	if on {
		f.reasons.Set(worker.Stopped, errRefused, f.mode)
	} else {
		f.reasons.Clear(worker.Stopped, f.mode)
	}
}

func TestAModeThatIsRefusedIsLeftAndJoinedAgainWhileTheOthersAreServed(t *testing.T) {
	subjects := map[worker.Mode]string{
		worker.Segment: "id.segment.order", worker.Snowflake: "id.snowflake", worker.Tags: "id.tag.list",
	}
	for mode, subject := range subjects {
		t.Run(string(mode), func(t *testing.T) {
			f := &refuser{mode: mode}
			r := start(t, startServer(t), 0, newStore(t), f.edit)
			served := func(subject string) bool {
				_, err := r.try(subject, "")
				return !errors.Is(err, nats.ErrNoResponders)
			}
			f.set(true)
			r.eventually("leave", func() bool { return !served(subject) })
			for m, other := range subjects {
				if m != mode && !served(other) {
					t.Errorf("%s is not served any more", other)
				}
			}
			f.set(false)
			r.eventually("come back", func() bool { return served(subject) })
			if got := r.ask(subject, ""); got.code != "" {
				t.Errorf("afterwards: %s %s", got.code, got.text)
			}
		})
	}
}

func TestNoIDLeavesTheWorkerOnceItsModeIsRefused(t *testing.T) {
	f := &refuser{mode: worker.Segment}
	r := start(t, startServer(t), 0, newStore(t), f.edit)
	loads, proceed := make(chan struct{}, 10), make(chan struct{})
	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		loads <- struct{}{}
		<-proceed
		return load()
	})
	answers := make(chan reply, 1)
	go func() {
		got, _ := r.try("id.segment.order", "")
		answers <- got
	}()
	<-loads // the request is parked
	f.set(true)
	close(proceed)
	if got := <-answers; got.code != "503" || !strings.Contains(got.text, errRefused.Error()) {
		t.Errorf("a request that was parked before: %+v", got)
	}
}
