package natsbus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// A worker of a registry that asks its own registry gets the answer of another worker each time, and learns at once
// that there is none.
func TestAWorkerThatAsksItsOwnRegistryHearsAnotherWorker(t *testing.T) {
	url := natstest.Start(t)
	var conns []*nats.Conn
	join := func(name string) *natsbus.Bus {
		nc := natstest.Connect(t, url)
		b := natsbus.New(nc, subjects.DefaultNamespace)
		err := b.Join("R1", func(context.Context, []byte) []byte { return []byte(name) })
		if err == nil {
			err = nc.Flush() // the server has taken the subscription
		}
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, nc)
		return b
	}
	ask := func(b *natsbus.Bus) (name string, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = b.Ask(ctx, "R1", nil, func(answer []byte) bool {
			name = string(answer)
			return true
		})
		for _, nc := range conns {
			err = errors.Join(err, nc.Flush()) // who asked has joined again
		}
		if ctx.Err() != nil {
			t.Fatal("no answer, and no error, for 5 s")
		}
		return name, err
	}
	a := join("a")
	if name, err := ask(a); !errors.Is(err, gather.ErrNobody) {
		t.Errorf("a lone worker got the answer %q and the error %v, want %v", name, err, gather.ErrNobody)
	}
	b := join("b")
	for range 20 {
		if name, err := ask(a); name != "b" || err != nil {
			t.Fatalf("worker a got the answer of %q and the error %v, want that of b", name, err)
		}
		if name, err := ask(b); name != "a" || err != nil {
			t.Fatalf("worker b got the answer of %q and the error %v, want that of a", name, err)
		}
	}
}

// A worker that has not joined rests on what the others say, so it reaches them while they ask one another.
func TestAWorkerThatBeginsReachesThoseWhoAskThemselves(t *testing.T) {
	url := natstest.Start(t)
	a, fresh := natstest.Connect(t, url), natstest.Connect(t, url)
	bus := natsbus.New(a, subjects.DefaultNamespace)
	if err := bus.Join("R1", func(context.Context, []byte) []byte { return []byte("a") }); err != nil {
		t.Fatal(err)
	}
	// A subscriber that never answers keeps the question under way.
	silent, err := natstest.Connect(t, url).SubscribeSync("id.registry.>")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Unsubscribe() //nolint:errcheck // the connection ends with the test
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for _, registry := range []string{"", "R1"} {
		asking.Go(func() { _ = bus.Ask(ctx, registry, nil, func([]byte) bool { return false }) })
	}
	defer asking.Wait()
	defer cancel()
	time.Sleep(50 * time.Millisecond)
	for _, registry := range []string{"", "R1"} {
		heard := ""
		limited, end := context.WithTimeout(t.Context(), 2*time.Second)
		err := natsbus.New(fresh, subjects.DefaultNamespace).Ask(limited, registry, nil, func(answer []byte) bool {
			heard = string(answer)
			return true
		})
		end()
		if err != nil || heard != "a" {
			t.Errorf("a worker that asks %q heard %q, %v; want the one that asks itself", registry, heard, err)
		}
	}
}

// A worker that has joined and is alone hears at once that there is no other registry. One who is not alone asks.
func TestAWorkerThatIsAloneAsksNobody(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.WaitForShutdown)
	t.Cleanup(srv.Shutdown)
	nc := natstest.Connect(t, srv.ClientURL())
	bus, looks := natsbus.New(nc, subjects.DefaultNamespace), 0
	bus.Alone = func() bool {
		looks++
		return srv.NumClients() == 1
	}
	ask := func() (heard string, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = bus.Ask(ctx, "", nil, func(answer []byte) bool {
			heard = string(answer)
			return true
		})
		if ctx.Err() != nil {
			t.Error("no answer, and no error, for a minute")
		}
		return heard, err
	}
	if _, err := ask(); !errors.Is(err, gather.ErrNobody) || looks > 0 {
		t.Errorf("%v, and %d looks who is connected: one who has not joined must ask", err, looks)
	}
	if err := bus.Join("R1", func(context.Context, []byte) []byte { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(); !errors.Is(err, gather.ErrNobody) {
		t.Errorf("alone: %v, want %v", err, gather.ErrNobody)
	}
	other := natstest.Connect(t, srv.ClientURL())
	err = natsbus.New(other, subjects.DefaultNamespace).Join("R2",
		func(context.Context, []byte) []byte { return []byte("R2") })
	if err = errors.Join(err, other.Flush()); err != nil {
		t.Fatal(err)
	}
	if heard, err := ask(); heard != "R2" || err != nil {
		t.Errorf("beside another registry: %q, %v", heard, err)
	}
}

// Workers of two registries that begin at one moment must find each other before either serves.
func TestRegistriesThatAskAtOneMomentHearEachOther(t *testing.T) {
	url := natstest.Start(t)
	var asking sync.WaitGroup
	var heard [2]string
	var buses [2]*natsbus.Bus
	for i, registry := range []string{"R1", "R2"} {
		nc := natstest.Connect(t, url)
		buses[i] = natsbus.New(nc, subjects.DefaultNamespace)
		err := buses[i].Join(registry, func(_ context.Context, question []byte) []byte {
			if string(question) == registry {
				return nil // its own
			}
			return []byte(registry)
		})
		if err = errors.Join(err, nc.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	for i, registry := range []string{"R1", "R2"} {
		asking.Go(func() {
			err := buses[i].Ask(ctx, "", []byte(registry), func(answer []byte) bool {
				heard[i] += string(answer)
				return false
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if heard != [2]string{"R2", "R1"} {
		t.Errorf("they heard %q of each other", heard)
	}
}
