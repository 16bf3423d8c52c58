package worker

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const ms = time.Millisecond

func TestALagIsWhatWaitsInTheServerAndInThisProcess(t *testing.T) {
	var l lag
	l.mark(10*ms, 1, 100)
	l.mark(30*ms, 2, 150)
	for _, step := range []struct {
		now              time.Duration
		answered         proof
		arrived, waiting int64
		reached          time.Duration // when the mark was set that was reached
		lag              time.Duration
	}{
		{now: 35 * ms, arrived: 200, waiting: 5, lag: 25 * ms},               // behind others in the server
		{now: 40 * ms, answered: 1, arrived: 300, waiting: 50, lag: 30 * ms}, // 50 are ahead of the mark here
		{now: 60 * ms, answered: 1, arrived: 349, waiting: 80, lag: 50 * ms}, // 80 came behind it
		{now: 70 * ms, answered: 1, arrived: 350, waiting: 90, reached: 10 * ms, lag: 60 * ms},
		{now: 80 * ms, answered: 1, arrived: 440, waiting: 0, lag: 60 * ms}, // the second mark is in the server
		{now: 99 * ms, answered: 1, arrived: 440, waiting: 0, lag: 69 * ms},
		{now: 99 * ms, answered: 2, arrived: 440, waiting: 0, reached: 30 * ms, lag: 69 * ms},
		{now: 200 * ms, answered: 2, arrived: 500, waiting: 9, lag: 69 * ms}, // no mark
	} {
		m, reached := l.see(step.now, step.answered, step.arrived, step.waiting)
		if reached != (step.reached > 0) || m.set != step.reached || l.of(step.now) != step.lag {
			t.Errorf("%+v: reached %v %v, lag %v", step, reached, m, l.of(step.now))
		}
	}
	l.mark(300*ms, 3, 500)
	l.mark(310*ms, 4, 500)
	if m, _ := l.see(311*ms, 4, 500, 0); m.set != 310*ms || l.of(400*ms) != ms {
		t.Errorf("with nothing ahead of both: %+v", l)
	}
}

func TestAnOverloadIsOneAlarmHoweverOftenTheGroupLeaves(t *testing.T) {
	var o overload
	alarms, begun, ended := 0, 0, 0
	pass := func(from, to time.Duration) {
		for now := from; now < to; now += 20 * ms {
			alarm, over := o.pass(now)
			if alarm {
				alarms++
			}
			if over {
				ended++
			}
		}
	}
	away := func(from, to time.Duration) {
		if o.leave(from) {
			begun++
		}
		pass(from, to)
		o.on = false
	}
	want := func(when string, b, a, e int) {
		t.Helper()
		if begun != b || alarms != a || ended != e {
			t.Errorf("%s: %d begun, %d alarms, %d ended; want %d, %d, %d", when, begun, alarms, ended, b, a, e)
		}
	}
	away(0, 500*ms)
	pass(500*ms, 20*time.Second)
	want("a moment", 1, 0, 1)
	for now := 20 * time.Second; now < 40*time.Second; now += time.Second {
		away(now, now+200*ms)
		pass(now+200*ms, now+time.Second)
	}
	want("20 s", 2, 1, 1)
	if !o.isTrouble(40*time.Second) || o.isTrouble(42*time.Second) {
		t.Error("it is trouble for a second after the group was away, and no longer")
	}
	pass(40*time.Second, 60*time.Second)
	want("quiet", 2, 1, 2)
}

func TestAPauseThatIsOverMakesNobodyLeaveHoweverMuchIsAnsweredLater(t *testing.T) {
	e := &endpoint{}
	g := &group{
		link: &link{Config: Config{Log: slog.New(slog.DiscardHandler)}}, ping: &pinger{shortest: ms},
		endpoints: []*endpoint{e}, subs: []*nats.Subscription{}, leaveAt: leaveAt, joinAt: joinAt,
	}
	g.lag.mark(0, 1, 0)
	e.counts.arrived.Add(few)
	g.ping.answered = 1
	for now := 2 * leaveAt; now < time.Second; now += 5 * ms {
		g.measure(now)
		e.counts.arrived.Add(100)
	}
	if g.overload.on {
		t.Error("it left")
	}
}
