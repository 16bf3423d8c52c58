package stage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/stamp"
)

// What a stage has heard is copied before it stops; a subscription that is ended at once would forget it.
func TestACoreStageCopiesAllThatItHasHeardBeforeItStops(t *testing.T) {
	url := natstest.Start(t)
	publisher, reader := natstest.Connect(t, url), natstest.Connect(t, url)
	copies, err := reader.SubscribeSync("stamped.events.>")
	must(t, err)
	must(t, reader.Flush())
	conn := natstest.Connect(t, url)
	stamping, goOn := make(chan struct{}), make(chan struct{})
	once, given := sync.OnceFunc(func() { close(stamping) }), 0
	core := stage.NewCore(stage.CoreConfig{
		Conn: conn, From: "events.>", Queue: "q", Subject: func(s string) string { return "stamped." + s },
		Existing: stage.StopAtID,
		Stamp: func(_ context.Context, msgs []*nats.Msg) error {
			once()
			<-goOn
			for _, m := range msgs {
				given++
				m.Header.Set(stamp.Header, fmt.Sprint(given))
			}
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- core.Run(ctx) }()
	probe := func() error {
		_, err := publisher.Request("events.probe", nil, 20*time.Millisecond)
		return err
	}
	for heard := false; !heard; { // one that had no answer in time may not have been heard
		_ = probe()
		select {
		case <-stamping:
			heard = true
		default:
		}
	}
	const n = 3000 // more than a batch
	for i := range n {
		must(t, publisher.Publish("events.new", fmt.Append(nil, i)))
	}
	must(t, publisher.Flush())
	must(t, conn.Flush()) // all wait in the stage
	cancel()
	for !errors.Is(probe(), nats.ErrNoResponders) { // until it has left
	}
	close(goOn)
	must(t, <-ended)
	must(t, reader.Flush())
	for i := 0; i < n; {
		m, err := copies.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("%d of %d messages are copied: %v", i, n, err)
		}
		if m.Subject == "stamped.events.probe" {
			continue
		}
		if id, err := stamp.ID(m); err != nil || id == 0 || string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("copy %d is of message %s: %v", i, m.Data, err)
		}
		i++
	}
	if p := core.Progress(); p.Dropped != 0 {
		t.Errorf("%d are counted as dropped", p.Dropped)
	}
}
