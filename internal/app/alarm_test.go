package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/subjects"
)

// alarming raises alarms on a connection that can be made to fail.
type alarming struct {
	*alarms
	conn      *nats.Conn
	out       *natstest.Buffer // the log
	metrics   http.Handler
	heard     chan wire.AlarmEvent // by a subscriber
	down      atomic.Bool          // connecting fails
	hangs     atomic.Bool          // nothing that is sent arrives
	swallowed atomic.Bool          // an alarm was sent, and did not arrive
	stop      func()               // returns once publish has
}

// A swallower is a connection that hangs while hangs is set.
type swallower struct {
	net.Conn
	a *alarming
}

func (s swallower) Write(b []byte) (int, error) {
	if s.a.hangs.Load() {
		if bytes.Contains(b, []byte("PUB id.alarm.")) {
			s.a.swallowed.Store(true)
		}
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// Dial implements [nats.CustomDialer].
func (a *alarming) Dial(network, address string) (net.Conn, error) {
	if a.down.Load() {
		return nil, errors.New("down")
	}
	c, err := net.Dial(network, address)
	return swallower{c, a}, err
}

func startAlarming(t *testing.T) *alarming {
	url := natstest.Start(t)
	a := &alarming{out: new(natstest.Buffer), heard: make(chan wire.AlarmEvent, 100)}
	opts := append(kvregistry.Options(), nats.SetCustomDialer(a), nats.ReconnectWait(10*time.Millisecond))
	a.conn = natstest.Connect(t, url, opts...)
	m := metrics.New()
	a.metrics = m.Handler()
	a.alarms = newAlarms(slog.New(slog.NewTextHandler(a.out, nil)), m.Alarmed, m.AlarmHeldBack)
	other := natstest.Connect(t, url)
	_, err := other.Subscribe("id.alarm.>", func(m *nats.Msg) {
		var e wire.AlarmEvent
		if err := json.Unmarshal(m.Data, &e); err != nil || m.Subject != "id.alarm."+string(e.Kind) {
			t.Errorf("%s: %s, %v", m.Subject, m.Data, err)
		}
		a.heard <- e
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var publishing sync.WaitGroup
	publishing.Go(func() { a.publish(ctx, a.conn, subjects.DefaultNamespace, "me") })
	a.stop = func() { cancel(); publishing.Wait() }
	t.Cleanup(a.stop)
	return a
}

// disconnect cuts the connection and prevents a new one.
func (a *alarming) disconnect(t *testing.T) {
	t.Helper()
	a.down.Store(true)
	if err := a.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
}

// hears waits until the subscriber has received an alarm.
func (a *alarming) hears(t *testing.T, message string) wire.AlarmEvent {
	t.Helper()
	for timeout := time.After(time.Minute); ; {
		select {
		case e := <-a.heard:
			if e.Message == message {
				return e
			}
		case <-timeout:
			t.Fatalf("alarm %q was not heard; log:\n%s", message, a.out)
		}
	}
}

// raiseNo raises an alarm that no other one holds back.
func (a *alarming) raiseNo(i int) {
	kinds := wire.Alarms()
	a.raiseAbout(kinds[i%len(kinds)].Kind, fmt.Sprint(i), fmt.Sprint("no. ", i))
}

func TestAnAlarmIsLoggedCountedAndPublished(t *testing.T) {
	a := startAlarming(t)
	before := time.Now()
	a.raise(wire.AlarmNumberLost, "seven")
	e := a.hears(t, "seven")
	if e.Kind != wire.AlarmNumberLost || e.Instance != "me" {
		t.Errorf("%+v", e)
	}
	if e.Time.Before(before.Truncate(0)) || time.Since(e.Time) > time.Minute {
		t.Errorf("raised at %v, want %v", e.Time, before)
	}
	want := `level=ERROR msg=alarm kind=number-lost message=seven do="look for a copied machine`
	if log := a.out.String(); !strings.Contains(log, want) {
		t.Errorf("logged: %s, want %s", log, want)
	}
	rec := httptest.NewRecorder()
	a.metrics.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(rec.Body.String(), `natsid_alarms_total{kind="number-lost"} 1`) {
		t.Error("not counted")
	}
}

func TestTheLastAlarmsRaisedWhileDisconnectedArePublishedLater(t *testing.T) {
	a := startAlarming(t)
	a.disconnect(t)
	start := time.Now()
	const n = 2 * unpublishedAlarms
	for i := range n {
		a.raiseNo(i)
	}
	if took := time.Since(start); took > 10*time.Second { // it waits for nothing
		t.Errorf("raising them took %v", took)
	}
	a.down.Store(false)
	for i := n - unpublishedAlarms; i < n; i++ {
		a.hears(t, fmt.Sprint("no. ", i))
	}
	if lost := strings.Count(a.out.String(), "an alarm was not published"); lost < n-unpublishedAlarms-1 {
		t.Errorf("the log names %d that were dropped", lost)
	}
}

// A connection that lost messages carries no more: its replies would be taken for those to later requests.
func TestAnAlarmIsPublishedUntilTheServerHasIt(t *testing.T) {
	t.Parallel()
	a := startAlarming(t)
	a.hangs.Store(true)
	a.raise(wire.AlarmTimeEnds, "soon")
	wait.Until(t, "the alarm is sent", a.swallowed.Load)
	a.disconnect(t)
	a.hangs.Store(false)
	a.down.Store(false)
	a.hears(t, "soon")
}

func TestAlarmsOfTheStopArePublishedIfThatIsQuick(t *testing.T) {
	t.Parallel()
	a := startAlarming(t)
	a.raise(wire.AlarmStateFile, "last")
	a.stop()
	a.hears(t, "last")

	b := startAlarming(t)
	b.disconnect(t)
	for i := range unpublishedAlarms {
		b.raiseNo(i)
	}
	start := time.Now()
	b.stop()
	took, unpublished := time.Since(start), strings.Count(b.out.String(), "an alarm was not published")
	if took > 10*time.Second || unpublished != unpublishedAlarms { // a second for all of them, not for each
		t.Errorf("stopped after %v; log:\n%s", took, b.out)
	}
}

func TestAnAlarmThatRepeatsIsRaisedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := metrics.New()
		a := newAlarms(slog.New(slog.NewTextHandler(&log, nil)), m.Alarmed, m.AlarmHeldBack)
		for i := range 400 { // for a minute
			a.raise(wire.AlarmClockStep, fmt.Sprint("no. ", i))
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(time.Second)
		a.raise(wire.AlarmClockSkew, "another kind")
		var events []wire.AlarmEvent
		for len(a.queue) > 0 {
			events = append(events, <-a.queue)
		}
		if len(events) != 3 || events[0].Message != "no. 0" || events[1].Message != "no. 399" ||
			events[1].HeldBack != 398 || strings.Count(log.String(), "\n") != 3 ||
			!strings.Contains(log.String(), `message="no. 399"`) || !strings.Contains(log.String(), "held_back=398") {
			t.Errorf("%+v, want the first, the last and the other one; log:\n%s", events, &log)
		}
		rec := httptest.NewRecorder()
		m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.Contains(rec.Body.String(), `natsid_alarms_held_back_total{kind="clock-step"} 399`) {
			t.Error("what was held back is not counted")
		}
		time.Sleep(10 * time.Minute)
		a.raise(wire.AlarmClockStep, "later")
		if e := <-a.queue; e.Message != "later" || e.HeldBack != 0 {
			t.Errorf("%+v, want one that is not held back", e)
		}
		open := a.nowOpen()
		if len(open) != 2 || open[0].Kind != wire.AlarmClockStep || open[0].Since != events[0].Time ||
			open[0].Message != "later" || open[1].Kind != wire.AlarmClockSkew {
			t.Errorf("open are %+v", open)
		}
		a.raiseAbout(wire.AlarmTagUndecided, "order", "undecided")
		if a.end(wire.AlarmTagUndecided, "other"); len(a.nowOpen()) != 3 {
			t.Error("a decision about another tag ends the alarm")
		}
		if a.end(wire.AlarmTagUndecided, "order"); len(a.nowOpen()) != 2 {
			t.Error("the alarm stays open after the decision")
		}
		if time.Sleep(openFor); len(a.nowOpen()) > 0 {
			t.Error("alarms stay open")
		}
	})
}

// They come within seconds of one another, and each reports something of its own.
func TestNoAlarmOfAnIncidentHoldsAnotherBack(t *testing.T) {
	a := newAlarms(slog.New(slog.DiscardHandler), func(wire.Alarm) {}, func(k wire.Alarm) {
		t.Errorf("%s is held back", k)
	})
	for _, cause := range []era.Cause{era.WentBack, era.Lost, era.Second} {
		(&registry{program: &program{alarms: a}}).Alarm(cause, "stopped")
	}
	if len(a.queue) != 3 {
		t.Errorf("%d alarms, want three", len(a.queue))
	}
}

// JetStream that is away for a moment has lost nothing.
func TestGrantsThatAreRefusedOrNotWrittenForAMinuteRaiseAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alarms := 0
		count := func(wire.Alarm) { alarms++ } // raised or held back
		g := grantLog{program: &program{alarms: newAlarms(slog.New(slog.DiscardHandler), count, count)}}
		for _, tc := range []struct {
			err    error
			after  time.Duration
			alarms int
		}{
			{context.DeadlineExceeded, time.Second, 0}, {context.DeadlineExceeded, 59 * time.Second, 0},
			{nil, time.Hour, 0},
			{context.DeadlineExceeded, 0, 0}, {context.DeadlineExceeded, 61 * time.Second, 1}, {nil, 0, 1},
			{fmt.Errorf("put: %w", buckets.ErrFull), 0, 2},
		} {
			time.Sleep(tc.after)
			if g.report(tc.err); alarms != tc.alarms {
				t.Errorf("%v after %v: %d alarms, want %d", tc.err, tc.after, alarms, tc.alarms)
			}
		}
	})
}

func TestAlarmsAboutVeryManyThingsAreBounded(t *testing.T) {
	var log bytes.Buffer
	m := metrics.New()
	a := newAlarms(slog.New(slog.NewTextHandler(&log, nil)), m.Alarmed, m.AlarmHeldBack)
	for i := range 10_000 {
		a.raiseAbout(wire.AlarmTableWentBack, fmt.Sprint(i), "a tag")
	}
	if n := strings.Count(log.String(), "msg=alarm"); n != alarmedOf+1 {
		t.Errorf("%d alarms", n)
	}
	a.releaseHeld()
	if !strings.Contains(log.String(), fmt.Sprint("held_back=", 10_000-alarmedOf-2)) {
		t.Error("the end does not say how many were held back")
	}
}
