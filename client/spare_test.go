package client

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
)

// While one of three workers hangs, half as many copies as requests are needed: a third
// of the requests, and of their copies, reach it. NATS notices within 6 s.
func TestThereAreCopiesEnoughUntilNATSNoticesAWorkerThatHangs(t *testing.T) {
	for _, perSecond := range []int{1, 13, 100, 1000} {
		var s spare
		now := time.Now()
		each := time.Second / time.Duration(perSecond)
		for range 60 * perSecond {
			now = now.Add(each)
			s.earn(now)
		}
		for i := range 6 * perSecond {
			now = now.Add(each)
			s.earn(now)
			if i%2 == 0 && !s.spend(now) {
				t.Errorf("%d requests a second: none is left after %d", perSecond, i)
				break
			}
		}
	}
}

// The server that hangs may be that of two of three workers.
func TestANewHandleHasCopiesForTwoOfThreeWorkersThatHang(t *testing.T) {
	var s spare
	now := time.Now()
	for i := range 6 * 13 {
		now = now.Add(time.Second / 13)
		s.earn(now)
		for range 2 {
			if !s.spend(now) {
				t.Fatalf("none is left after %d requests", i)
			}
		}
	}
}

// What was sent to a server that hangs reached nobody, and may be sent again.
func TestCopiesOnAConnectionThatWasLostAreNotCounted(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t))
	if _, err := nc.QueueSubscribe("id.snowflake", wire.QueueGroup, func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	c := Must(New(nc, Config{}))
	t.Cleanup(c.Close)
	s := Must(c.Snowflake(SnowflakeConfig{})).target
	const before = 7 // reconnects: there are fewer by now, so the connection is another
	lost := []trip{{reconnects: before}, {reconnects: before, spent: true}}
	f := &flight{target: s, n: 1, done: func(answer) {}, open: lost}
	f.timer = time.AfterFunc(time.Hour, f.tick)
	defer f.timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.spare.used, s.spare.at = 15, time.Now()
	f.askAgain()
	if s.spare.used > 14 || len(f.open) != 1 || f.open[0].spent {
		t.Errorf("%v copies are counted, %+v is under way, want 14 and a request that is not counted",
			s.spare.used, f.open)
	}
}

// A call has 5 s: two of three copies may reach workers that hang. But a service that is
// away for some seconds must not use up the copies that are needed when it is back.
func TestACallThatIsNotAnsweredAsksLessOftenDownToFourTimesASecond(t *testing.T) {
	f := &flight{target: &target{usual: time.Millisecond}, n: 1}
	for i, want := range []time.Duration{100, 200, 250, 250, 250} {
		f.copies = i + 1
		if got := f.silence(); got != want*time.Millisecond {
			t.Errorf("after copy %d it waits %v, want %v", i+1, got, want*time.Millisecond)
		}
	}
}

func TestAFlightThatHasEndedAnswersNobodyAgain(t *testing.T) {
	f := &flight{
		ended: true, open: []trip{{token: 1}}, target: &target{client: new(Client)}, timer: time.NewTimer(time.Hour),
		wanted: func() bool { return false }, done: func(answer) { t.Error("its calls are answered again") },
	}
	f.tick()
	f.receive(1, nil, errUnwanted)
}
