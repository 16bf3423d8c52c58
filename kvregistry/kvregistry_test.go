package kvregistry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

var srv *natsembed.Server

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kvregistry")
	if err == nil {
		srv, err = natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: dir})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	srv.Shutdown()
	srv.WaitForShutdown()
	os.RemoveAll(dir)
	os.Exit(code)
}

var places atomic.Int64

// place names buckets that no other test uses.
func place() kvregistry.Config {
	n := places.Add(1)
	return kvregistry.Config{
		History: fmt.Sprintf("p%d_history", n), Workers: fmt.Sprintf("p%d_workers", n), LeaseTTL: 2 * time.Second,
		WorkerSubject: func(w int) string { return fmt.Sprintf("p%d.worker.%d", n, w) },
	}
}

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, srv.ClientURL(), kvregistry.Options()...)
}

func open(t *testing.T, cfg kvregistry.Config) *kvregistry.Registry {
	t.Helper()
	r := kvregistry.New(jetStream(t), cfg)
	err := r.Open(t.Context())
	for tries := 0; errors.Is(err, context.DeadlineExceeded) && tries < 5; tries++ { // on a slow machine
		err = r.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func jetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(connect(t), jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func bucket(t *testing.T, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := jetStream(t).KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func TestKVRegistryConforms(t *testing.T) {
	workeridtest.Run(t, func(t *testing.T) func() workerid.Registry {
		cfg := place()
		return func() workerid.Registry { return open(t, cfg) }
	})
}

func TestHeartbeatsExpireAndRecordsStay(t *testing.T) {
	cfg := place()
	r := open(t, cfg)
	if _, err := r.Write(t.Context(), 1, workerid.Record{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Report(t.Context(), 1, workerid.Heartbeat{Instance: "a"}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "no heartbeat is left after the TTL", func() bool {
		heartbeats, err := r.Heartbeats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(heartbeats) == 0
	})
	if _, err := r.Record(t.Context(), 1); err != nil {
		t.Errorf("the record: %v", err)
	}
}

func TestRecordsThatExpireAreNoticedWhileInUse(t *testing.T) {
	cfg, js := place(), jetStream(t)
	r := open(t, cfg)
	limit := func(age time.Duration) {
		t.Helper()
		stream, err := js.Stream(t.Context(), "KV_"+cfg.History)
		if err != nil {
			t.Fatal(err)
		}
		settings := stream.CachedInfo().Config
		settings.MaxAge, settings.Duplicates = age, time.Minute
		if _, err := js.UpdateStream(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
	}
	limit(time.Hour)
	if err := r.Check(t.Context()); !errors.Is(err, buckets.ErrUnfit) {
		t.Errorf("%v, want ErrUnfit", err)
	}
	if _, err := r.Write(t.Context(), 1, workerid.Record{Token: "t"}); !errors.Is(err, buckets.ErrUnfit) {
		t.Errorf("a record was written: %v", err)
	}
	limit(0)
	if err := r.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.Write(t.Context(), 1, workerid.Record{Token: "t"}); err != nil {
		t.Error(err)
	}
}

func TestAnUnreadableRecordIsNotAFreeOne(t *testing.T) {
	cfg := place()
	r := open(t, cfg)
	kv := bucket(t, cfg.History)
	const whole = `{"token":"t","until":5,"deployment":{"id":"R","layout":"41+10+12","unit":1},"v":1}`
	values := []string{"", "garbage"}
	for part, spoilt := range map[string]string{
		`"token":"t",`: "", `"until":5`: `"until":-5`, `"id":"R",`: "", `"v":1`: `"v":2`, `,"v":1`: "",
	} {
		values = append(values, strings.Replace(whole, part, spoilt, 1))
	}
	if _, err := kv.PutString(t.Context(), "100", whole); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Record(t.Context(), 100); err != nil || got.Damaged {
		t.Errorf("%q: %+v, %v", whole, got, err)
	}
	for i, value := range values {
		rev, err := kv.PutString(t.Context(), strconv.Itoa(i), value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Record(t.Context(), i)
		if want := (workerid.Record{Revision: rev, Damaged: true}); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", value, got, err, want)
		}
		if _, err := r.Write(t.Context(), i, workerid.Record{Token: "t"}); !errors.Is(err, workerid.ErrConflict) {
			t.Errorf("%q was overwritten as if it were absent: %v", value, err)
		}
	}
}

func TestARecordDeletedByHandIsAbsent(t *testing.T) {
	cfg := place()
	r := open(t, cfg)
	if _, err := r.Write(t.Context(), 5, workerid.Record{Token: "t", Until: 1}); err != nil {
		t.Fatal(err)
	}
	if err := bucket(t, cfg.History).Delete(t.Context(), "5"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Record(t.Context(), 5); !errors.Is(err, workerid.ErrNoRecord) {
		t.Errorf("record: %v, want ErrNoRecord", err)
	}
	if _, err := r.Write(t.Context(), 5, workerid.Record{Token: "u"}); err != nil {
		t.Errorf("write: %v", err)
	}
}

func answer(who string) nats.MsgHandler {
	return func(m *nats.Msg) { _ = m.Respond([]byte(who)) }
}

func TestAskFindsTheWorkerThatAnswers(t *testing.T) {
	cfg := place()
	r := open(t, cfg)
	nc := connect(t)
	sub, err := nc.Subscribe(cfg.WorkerSubject(3), answer(`{"instance":"a","process":"p"}`))
	if err != nil {
		t.Fatal(err)
	}
	mute, err := nc.SubscribeSync(cfg.WorkerSubject(4))
	if err != nil || nc.Flush() != nil {
		t.Fatal(err)
	}
	if who, err := r.Ask(t.Context(), 3); err != nil || who.Instance != "a" || who.Process != "p" {
		t.Errorf("Ask = %+v, %v", who, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Ask(ctx, 4); err == nil || isAnswer(err) {
		t.Errorf("a worker that does not answer: %v, want that it is not known", err)
	}
	_, _ = sub, mute
}

// isAnswer reports whether err says that a number may be used.
func isAnswer(err error) bool {
	return errors.Is(err, workerid.ErrNoWorker) || errors.Is(err, workerid.ErrBystander)
}

// Who listens for all numbers says nothing about any: a subscriber that is silent, a stream, and a service that
// answers whatever it is asked. The worker that has a number is found all the same.
func TestABystanderNeitherHoldsANumberNorHidesWhoDoes(t *testing.T) {
	for name, listen := range map[string]func(nc *nats.Conn, all string) error{
		"silent": func(nc *nats.Conn, all string) error { _, err := nc.SubscribeSync(all); return err },
		"another service": func(nc *nats.Conn, all string) error {
			_, err := nc.Subscribe(all, answer("pong"))
			return err
		},
		"stream": func(nc *nats.Conn, all string) error {
			js, err := jetstream.New(nc)
			if err == nil {
				name, _, _ := strings.Cut(all, ".")
				_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{all}})
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := place()
			r, nc := open(t, cfg), connect(t)
			holder := func(m *nats.Msg) {
				time.Sleep(50 * time.Millisecond) // others answer first
				_ = m.Respond([]byte(`{"instance":"a","process":"p"}`))
			}
			_, err := nc.Subscribe(cfg.WorkerSubject(3), holder)
			if err == nil {
				err = listen(nc, strings.TrimSuffix(cfg.WorkerSubject(3), "3")+"*")
			}
			if err != nil || nc.Flush() != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if who, err := r.Ask(ctx, 3); err != nil || who.Process != "p" {
				t.Errorf("the worker that has the number: %+v, %v", who, err)
			}
			for tries := 0; ; tries++ { // a slow machine may need longer
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond<<min(tries, 6))
				_, err := r.Ask(ctx, 4)
				cancel()
				if errors.Is(err, workerid.ErrBystander) {
					break
				}
				if tries > 8 || isAnswer(err) {
					t.Fatalf("a number that nobody has: %v, want ErrBystander", err)
				}
			}
		})
	}
}

func TestAskNeedsNoJetStreamAndNothingElseHangsWithoutIt(t *testing.T) {
	js, err := jetstream.NewWithDomain(connect(t), "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	cfg := place()
	r := kvregistry.New(js, cfg)
	sub, err := js.Conn().Subscribe(cfg.WorkerSubject(3), answer(`{"instance":"a","process":"p"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for round := range 2 {
		wait.Until(t, "it reconnects, as failed heartbeats demand", js.Conn().IsConnected)
		if who, err := r.Ask(t.Context(), 3); err != nil || who.Instance != "a" {
			t.Errorf("round %d: %+v, %v", round, who, err)
		}
		if _, err := r.Ask(t.Context(), 4); !errors.Is(err, workerid.ErrNoWorker) {
			t.Errorf("round %d: %v, want ErrNoWorker", round, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for name, call := range map[string]func() error{
			"Deployment": func() error { _, err := r.Deployment(ctx); return err },
			"Found":      func() error { return r.Found(ctx, workerid.Deployment{}) },
			"Records":    func() error { _, err := r.Records(ctx); return err },
			"Record":     func() error { _, err := r.Record(ctx, 1); return err },
			"Write":      func() error { _, err := r.Write(ctx, 1, workerid.Record{}); return err },
			"Time":       func() error { _, err := r.Time(ctx); return err },
			"Report":     func() error { return r.Report(ctx, 1, workerid.Heartbeat{}) },
			"Heartbeats": func() error { _, err := r.Heartbeats(ctx); return err },
			"Leave":      func() error { return r.Leave(ctx, 1) },
		} {
			err := call()
			// The server reports at once that it has no JetStream; waiting for more is a hang.
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s hangs: %v", name, err)
			}
			for _, wrong := range []error{nil, workerid.ErrConflict, workerid.ErrNoRecord, workerid.ErrNoWorker} {
				if errors.Is(err, wrong) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		cancel()
	}
}

func TestASecondHeartbeatThatFailsReconnects(t *testing.T) {
	cfg := place()
	again := make(chan struct{}, 10)
	reconnected := nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} })
	nc, err := nats.Connect(srv.ClientURL(), append(kvregistry.Options(), reconnected)...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r := kvregistry.New(js, cfg)
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	beat := func(ctx, reporting context.Context) {
		if _, err := r.Time(ctx); err == nil {
			_ = r.Report(reporting, 1, workerid.Heartbeat{})
		}
	}
	well := t.Context()
	for law, tc := range map[string]struct {
		beats func()
		want  bool
	}{
		"one":                      {func() { beat(late, well); beat(well, well); beat(late, well) }, false},
		"two, of the time":         {func() { beat(late, well); beat(late, well) }, true},
		"two, of the report":       {func() { beat(well, late); beat(well, late) }, true},
		"one of each":              {func() { beat(well, late); beat(late, well) }, true},
		"two whose caller gave up": {func() { beat(canceled(t), well); beat(canceled(t), well) }, false},
	} {
		t.Run(law, func(t *testing.T) {
			beat(well, well)
			tc.beats()
			wait := time.Minute
			if !tc.want {
				wait = 300 * time.Millisecond
			}
			select {
			case <-again:
				if !tc.want {
					t.Error("it reconnected")
				}
			case <-time.After(wait):
				if tc.want {
					t.Error("it did not reconnect")
				}
			}
		})
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestADamagedDeploymentIsReadAsWrittenOrRefused(t *testing.T) {
	cfg := place()
	r := open(t, cfg)
	whole := `{"id":"R","layout":"41+10+12","epoch":7,"unit":1,"v":1}`
	values := []string{
		`{"id":"R","layout":"41+10+12","epoch":7,"unit":1,"v":2}`, `{"id":"R","layout":"41+10+12","epoch":7,"unit":1}`,
		`{"layout":"41+10+12","unit":1,"v":1}`, "[]",
	}
	for n := range whole {
		values = append(values, whole[:n])
	}
	kv := bucket(t, cfg.History)
	for _, value := range values {
		if _, err := kv.PutString(t.Context(), "deployment", value); err != nil {
			t.Fatal(err)
		}
		if have, err := r.Deployment(t.Context()); !errors.Is(err, workerid.ErrDamaged) {
			t.Errorf("%q: %+v, %v, want ErrDamaged", value, have, err)
		}
		if err := r.Found(t.Context(), workerid.Deployment{ID: "other"}); !errors.Is(err, workerid.ErrConflict) {
			t.Errorf("%q was replaced: %v", value, err)
		}
	}
	if _, err := kv.PutString(t.Context(), "deployment", whole); err != nil {
		t.Fatal(err)
	}
	want := workerid.Deployment{ID: "R", Layout: "41+10+12", Epoch: 7, Unit: 1}
	if have, err := r.Deployment(t.Context()); err != nil || have != want {
		t.Errorf("%+v, %v, want %+v", have, err, want)
	}
}
