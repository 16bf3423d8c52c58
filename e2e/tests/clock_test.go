package tests

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
)

// A wall is a wall clock that can be set.
type wall struct{ slip atomic.Int64 } // ns ahead of the machine's

func (w *wall) set(slip time.Duration) { w.slip.Store(int64(slip)) }
func (w *wall) now() time.Time         { return time.Now().Add(time.Duration(w.slip.Load())) }

// alarms collects what is published on id.alarm.*.
type alarms struct {
	mu    sync.Mutex
	kinds []string
}

func listen(t *testing.T, c *e2e.Cluster) *alarms {
	t.Helper()
	a := new(alarms)
	_, err := c.Conn.Subscribe("id.alarm.*", func(m *nats.Msg) {
		var body struct {
			Kind, Instance, Message string
			Time                    time.Time
		}
		err := json.Unmarshal(m.Data, &body)
		whole := "id.alarm."+body.Kind == m.Subject && body.Instance != "" && body.Message != "" && !body.Time.IsZero()
		if err != nil || !whole {
			t.Errorf("on %s: %s, %v", m.Subject, m.Data, err)
		}
		t.Logf("%s: %s", m.Subject, body.Message)
		a.mu.Lock()
		a.kinds = append(a.kinds, body.Kind)
		a.mu.Unlock()
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// have reports whether an alarm of the kind was published.
func (a *alarms) have(kind string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.kinds, kind)
}

func TestWithTheOnlyClockWrongSegmentsContinueAndSnowflakesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	var clock wall
	c := e2e.Start(t, configured(func(_ int, cfg *app.Config) { cfg.Now = clock.now }))
	clock.set(24 * time.Hour)
	refused := func() error { // by the nats-server, at once: no worker gets the request
		_, err := c.Conn.Request("id.snowflake", nil, patience)
		return err
	}
	waitFor(t, "the worker has left", func() bool { return errors.Is(refused(), nats.ErrNoResponders) })
	for range 20 {
		if err := refused(); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a snowflake: %v", err)
		}
		if _, err := c.Client.Segment("order").Next(patient(t)); err != nil {
			t.Errorf("a segment ID: %v", err)
		}
	}
	clock.set(0)
	if _, err := c.Client.Snowflake().Next(patient(t)); err != nil {
		t.Errorf("after the clock is right again: %v", err)
	}
}
