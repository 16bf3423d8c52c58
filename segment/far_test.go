package segment_test

import (
	"errors"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// A store that is far away is given the time that it needs. Callers get an answer
// by the deadline all the same, and the load serves later ones.
func TestALoadMayOutlastTheRequestsThatBeganIt(t *testing.T) {
	const takes = 3 * time.Second
	enough := func(time.Duration) time.Duration { return 2 * takes }
	inBubble(t, segment.Config{Enough: enough}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(slow(takes))
		asked := time.Now()
		if _, err := segmenttest.Take(t.Context(), a, "a", 1); !errors.Is(err, segment.ErrNotLoaded) {
			t.Errorf("the first request ended with %v, want ErrNotLoaded", err)
		}
		if d := time.Since(asked); d > deadline {
			t.Errorf("it was answered after %v, beyond the deadline", d)
		}
		time.Sleep(takes - deadline + time.Millisecond)
		if r := take(t, a, "a", 1); time.Since(asked) > takes+time.Millisecond || r[0].Start != 1 {
			t.Errorf("a later request got %v after %v, want the first ID at once", r, time.Since(asked))
		}
	})
}
