package loaders

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/internal/wire"
)

func TestALoadWaitsForTheNextMessagesOfThoseItServedLast(t *testing.T) {
	for name, c := range map[string]struct {
		served int
		came   []time.Duration // after the wait began
		took   time.Duration   // by the last load
		want   time.Duration
	}{
		"nobody was served":                 {0, nil, 4 * time.Millisecond, 0},
		"both come":                         {2, []time.Duration{100, 300}, 4 * time.Millisecond, 300},
		"one does not come":                 {2, []time.Duration{100}, 4 * time.Millisecond, time.Millisecond},
		"one does not come, loads are slow": {2, []time.Duration{100}, time.Hour, mostWait},
		"one who was not served comes too":  {1, []time.Duration{100, 200}, 4 * time.Millisecond, 100},
		"no load was measured":              {1, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &rendezvous{all: make(chan struct{}, 1)}
				for range c.served {
					v.await()
				}
				v.loaded(c.took)
				for _, d := range c.came {
					time.AfterFunc(d, func() {
						if v.came() {
							v.goOn()
						}
					})
				}
				if got := v.wait(t.Context()); got != c.want {
					t.Errorf("it waited for %v, want %v", got, c.want)
				}
				time.Sleep(time.Second)
				if got := v.wait(t.Context()); got != 0 {
					t.Errorf("the load after it waited for %v", got)
				}
			})
		})
	}
}

func TestAMessageThatCameBeforeTheWaitIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &rendezvous{all: make(chan struct{}, 1)}
		v.loaded(4 * time.Millisecond)
		v.await()
		if v.came() {
			v.goOn()
		}
		v.await()
		if got := v.wait(t.Context()); got != time.Millisecond {
			t.Errorf("it waited for %v, want 1ms: the token is that of a message before", got)
		}
	})
}

func TestALoaderAwaitsWhomItServed(t *testing.T) {
	workers := fleet(t, 1)
	w := workers[0]
	ask := func(n string) {
		t.Helper()
		for {
			_, err := w.conn.Request(wire.Loader(w.cfg.Namespace, w.name), []byte(n+" M1 a"), deadline)
			if err == nil {
				return
			}
			if !errors.Is(err, nats.ErrNoResponders) { // until it listens
				t.Fatal(err)
			}
		}
	}
	// loads returns for how long the next load waits before it joins requests.
	loads := func() (waited time.Duration) {
		began := time.Now()
		_, err := w.Store(w.store).LoadStrict(t.Context(), "a", func() int64 {
			waited = time.Since(began)
			return 1
		}, 0)
		if err != nil {
			t.Error(err)
		}
		return waited
	}
	ask("7")
	meets := w.meet("a")
	meets.loaded(time.Hour)
	if waited := loads(); waited < mostWait {
		t.Errorf("it waited for %v for one whom it has just served", waited)
	}
	ask("7")
	ask("0") // served nothing, and so not awaited
	for end := time.Now().Add(deadline); meets.isAwaited(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the next message came, and is awaited still")
		}
	}
	if loads(); meets.took == time.Hour || meets.took <= 0 {
		t.Errorf("a load took %v", meets.took)
	}
}

func (v *rendezvous) isAwaited() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.awaited > 0
}
