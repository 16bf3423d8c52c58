package worker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestTheWayToTheServerIsTheShortestRoundTripOfLate(t *testing.T) {
	var p pinger
	for i, step := range []struct {
		at, took time.Duration
		idle     bool // nothing arrived meanwhile
		way      time.Duration
	}{
		{at: 0, took: 80 * ms, way: 80 * ms},
		{at: time.Second, took: 50 * ms, way: 50 * ms},
		{at: 2 * time.Second, took: 900 * ms, way: 50 * ms},
		{at: 11 * time.Second, took: 200 * ms, way: 50 * ms},
		{at: 22 * time.Second, took: 300 * ms, way: 200 * ms},
		{at: 23 * time.Second, took: 400 * ms, idle: true, way: 400 * ms},
		{at: 24 * time.Second, took: 100 * ms, way: 100 * ms},
	} {
		arrived := int64(1)
		if step.idle {
			arrived = 0
		}
		if p.end(step.at, pong{took: step.took}, arrived); p.way() != step.way {
			t.Errorf("step %d: %v, want %v", i, p.way(), step.way)
		}
	}
	if p.waited(time.Second) != 850*ms || p.waited(ms) != 0 || new(pinger).waited(time.Hour) != 0 {
		t.Errorf("waited: %v, %v, %v", p.waited(time.Second), p.waited(ms), new(pinger).waited(time.Hour))
	}
}

func TestAPingThatIsLostIsSentAgain(t *testing.T) {
	var p pinger
	q := p.ask()
	if !p.owes(q) {
		t.Error("no ping was sent")
	}
	p.sent, p.out = p.sent+1, p.out+1
	if p.owes(q) {
		t.Error("a ping is under way")
	}
	p.end(ms, pong{ping: q, err: nats.ErrConnectionClosed}, 0)
	if !p.owes(q) {
		t.Error("the ping is lost")
	}
	p.sent, p.out = p.sent+1, p.out+1
	p.end(ms, pong{ping: p.sent}, 0)
	if p.owes(q) || !p.has(q) {
		t.Error("the second ping was answered")
	}
}
