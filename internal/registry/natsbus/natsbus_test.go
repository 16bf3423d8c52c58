package natsbus_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// called returns a worker that has called, and then joined a registry. Beside one that is silent its call lasts until
// the limit.
func called(t *testing.T, url string, limit time.Duration) *natsbus.Bus {
	nc, err := nats.Connect(url)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(nc.Close)
	b := natsbus.New(nc, subjects.DefaultNamespace)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err = b.Call(ctx, dialing(url))
	if err = errors.Join(err, b.Join("R1", func(context.Context, []byte) []byte { return nil })); err != nil {
		t.Error(err)
	}
	return b
}

func dialing(url string) func(...nats.Option) (*nats.Conn, error) {
	return func(opts ...nats.Option) (*nats.Conn, error) { return nats.Connect(url, opts...) }
}

// saysNobody reports whether a worker knows that there is no other registry. Nobody answers in these tests, so one who
// asks hears silence.
func saysNobody(t *testing.T, b *natsbus.Bus) bool {
	return saysNobodyWithin(t, b, 200*time.Millisecond)
}

func saysNobodyWithin(t *testing.T, b *natsbus.Bus, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return errors.Is(b.Ask(ctx, "", nil, func([]byte) bool { return false }), natsbus.ErrNobody)
}

// A worker that called, and is alone, asks nobody, until somebody else calls or announces a registry.
func TestAWorkerThatIsAloneAsksNobody(t *testing.T) {
	for who, come := range map[string]func(url string) error{
		"one that calls": func(url string) error { called(t, url, time.Second); return nil },
		"one that comes back": func(url string) error {
			nc := natstest.Connect(t, url)
			return errors.Join(natsbus.New(nc, subjects.DefaultNamespace).Announce([]byte("R2")), nc.Flush())
		},
	} {
		t.Run(who, func(t *testing.T) {
			url := natstest.Start(t)
			b := called(t, url, time.Minute)
			for range 2 {
				if !saysNobodyWithin(t, b, time.Minute) {
					t.Error("a worker that is alone asks")
				}
			}
			if err := come(url); err != nil {
				t.Fatal(err)
			}
			if saysNobody(t, b) {
				t.Error("it counts as alone beside another one")
			}
		})
	}
}

// Who listens and is silent may be a worker.
func TestSilenceIsNoNo(t *testing.T) {
	url := natstest.Start(t)
	nc := natstest.Connect(t, url)
	_, err := nc.SubscribeSync("id.>")
	if err = errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if saysNobody(t, called(t, url, time.Second)) {
		t.Error("a worker counts as alone beside one that is silent")
	}
}

func TestAWorkerThatMayNotListenDoesNotCountAsAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nats.conf")
	conf := `authorization { default_permissions: { subscribe: { deny: "id.registry.announce" } }
		users: [ { user: a, password: a } ] }`
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", File: file, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.WaitForShutdown)
	t.Cleanup(srv.Shutdown)
	if saysNobody(t, called(t, strings.Replace(srv.ClientURL(), "://", "://a:a@", 1), time.Minute)) {
		t.Error("it counts as alone, and would not hear who comes back")
	}
}

// Of workers that call at one moment, none counts itself alone.
func TestOfTwoThatCallAtOneMomentNoneIsAlone(t *testing.T) {
	url := natstest.Start(t)
	for range 4 {
		var both [2]*natsbus.Bus
		var calling sync.WaitGroup
		for i := range both {
			calling.Go(func() { both[i] = called(t, url, 2*time.Second) })
		}
		calling.Wait()
		if saysNobody(t, both[0]) || saysNobody(t, both[1]) {
			t.Fatal("one counts as alone beside another one")
		}
	}
}

// A valve is a connection that writes nothing while the lock is held.
type valve struct {
	net.Conn
	sync.RWMutex
}

func (v *valve) Dial(network, address string) (_ net.Conn, err error) {
	v.Conn, err = net.Dial(network, address)
	return v, err
}

func (v *valve) Write(b []byte) (int, error) {
	v.RLock()
	defer v.RUnlock()
	return v.Conn.Write(b)
}

// One who calls after the answer to another one, and before that one's ears are in place, is heard.
func TestAWorkerHearsWhoCallsWhileItsOwnCallEnds(t *testing.T) {
	url, v := natstest.Start(t), &valve{}
	nc, err := nats.Connect(url, nats.SetCustomDialer(v))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := natsbus.New(nc, subjects.DefaultNamespace)
	v.Lock()
	var calling sync.WaitGroup
	calling.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Call(ctx, dialing(url)); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(100 * time.Millisecond) // its question is answered
	called(t, url, time.Second)
	v.Unlock()
	calling.Wait()
	if saysNobody(t, b) {
		t.Error("it counts as alone beside another one")
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, registry := range []string{"R1", "R2"} {
		asking.Go(func() {
			err := buses[i].Ask(ctx, "", []byte(registry), func(answer []byte) bool {
				heard[i] += string(answer)
				return true
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
	one := ""
	err := buses[0].Ask(t.Context(), "R2", nil, func(answer []byte) bool { one = string(answer); return true })
	if one != "R2" || err != nil {
		t.Errorf("a question to registry R2 got the answer of %q, %v", one, err)
	}
}
