package natsbus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/oneregistry"
	"github.com/natsid/natsid/oneregistry/natsbus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

// A listener remembers what it heard, and answers with its name.
type listener struct {
	name string
	mu   sync.Mutex
	got  []string
}

func (l *listener) Hear(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, string(data))
}

func (l *listener) Answer(context.Context, []byte) []byte { return []byte(l.name) }

func (l *listener) heard() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.got)
}

// join returns the bus of a worker that answers for a registry.
func join(t *testing.T, url, name, registry string) (*member, *listener) {
	t.Helper()
	nc := natstest.Connect(t, url)
	bus, l := natsbus.New(nc, "id"), &listener{name: name}
	for _, err := range []error{bus.Listen(l), bus.Join(registry), nc.Flush()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return &member{bus, nc}, l
}

// A member is a bus and its connection.
type member struct {
	*natsbus.Bus
	nc *nats.Conn
}

// soon returns a context for questions whose answers take as long as they may.
func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func answers(t *testing.T, bus *natsbus.Bus, want int) map[string]int {
	t.Helper()
	got, n := map[string]int{}, 0
	err := bus.Ask(soon(t, 30*time.Second), []byte("?"), func(reply []byte) bool {
		got[string(reply)]++
		n++
		return n < want
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestOneWorkerOfEachRegistryAnswersAQuestion(t *testing.T) {
	url := natstest.Start(t)
	asker := natsbus.New(natstest.Connect(t, url), "id")
	if got := answers(t, asker, 1); len(got) != 0 {
		t.Fatalf("without a worker: %v", got)
	}
	join(t, url, "a", "A")
	join(t, url, "a", "A")
	_, other := join(t, url, "b", "B")
	moved, _ := join(t, url, "c", "B")
	for _, err := range []error{moved.Join("C"), moved.nc.Flush()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := answers(t, asker, 3); got["a"] != 1 || got["b"] != 1 || got["c"] != 1 {
		t.Errorf("%v answer, want one of each registry", got)
	}
	if err := asker.Announce([]byte("here")); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); other.heard() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the announcement does not arrive")
		}
	}
}

func TestACallReachesOneWorkerOfOneRegistry(t *testing.T) {
	url := natstest.Start(t)
	asker, _ := join(t, url, "a", "A")
	join(t, url, "b", "B")
	if got, err := asker.Call(soon(t, 30*time.Second), "B", nil); err != nil || string(got) != "b" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := asker.Call(soon(t, 30*time.Second), "C", nil); !errors.Is(err, oneregistry.ErrNoWorker) {
		t.Errorf("a registry that has no worker: %v", err)
	}
}

func TestASilentListenerIsNoAnswerAndDoesNotHang(t *testing.T) {
	url := natstest.Start(t)
	nc := natstest.Connect(t, url)
	if _, err := nc.Subscribe(">", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	asker := natsbus.New(natstest.Connect(t, url), "id")
	err := asker.Ask(soon(t, 100*time.Millisecond), []byte("?"), func([]byte) bool {
		t.Error("silence is no answer")
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNamespacesDoNotMeet(t *testing.T) {
	url := natstest.Start(t)
	join(t, url, "a", "A")
	nc := natstest.Connect(t, url)
	other := natsbus.New(nc, "other")
	if got := answers(t, other, 1); len(got) != 0 {
		t.Errorf("%v answer in another namespace", got)
	}
}
