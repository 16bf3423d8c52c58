package stage_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/stage"
)

// A heedful target gives up when the context ends, as one over a network does. What was
// sent lands nevertheless.
type heedful struct{ to }

func (h heedful) Write(ctx context.Context, msgs []*nats.Msg, last uint64) error {
	landed := make(chan error, 1)
	go func() { landed <- h.to.Write(ctx, msgs, last) }()
	select {
	case err := <-landed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h heedful) SetHint(ctx context.Context, hint stage.Hint) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return h.to.SetHint(ctx, hint)
}

// Otherwise a target whose messages expire during the stop could not be continued.
func TestAStageThatIsStoppedLeavesAHintForItsLastMessage(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			w := calm(t, seed, make([]kind, 1000)...)
			more := make(chan struct{})
			go func() {
				defer close(more)
				for range 100 {
					w.publish(make([]kind, 10)...)
					time.Sleep(time.Millisecond)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), w.upTo(100*time.Millisecond))
			defer cancel()
			s := w.stageTo(heedful{to{w}}, false)
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if len(w.target) > 0 && w.hint.Last != uint64(len(w.target)) {
				t.Errorf("seed %d: the hint is for message %d of %d", seed, w.hint.Last, len(w.target))
			}
			<-more
		})
	}
}
