package worker

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestALagIsWhatWaitsInTheServerAndInThisProcess(t *testing.T) {
	var l lag
	l.mark(10*ms, 1, 100)
	l.mark(20*ms, 2, 150) // one is set
	for _, step := range []struct {
		now              time.Duration
		answered         bool
		arrived, waiting int64
		reached          bool
		lag              time.Duration
	}{
		{now: 30 * ms, arrived: 200, waiting: 5, lag: 20 * ms},                  // behind others in the server
		{now: 40 * ms, answered: true, arrived: 300, waiting: 50, lag: 30 * ms}, // 50 are ahead of the mark here
		{now: 60 * ms, answered: true, arrived: 349, waiting: 80, lag: 50 * ms}, // 80 came behind it
		{now: 70 * ms, answered: true, arrived: 350, waiting: 90, reached: true, lag: 60 * ms},
		{now: 90 * ms, answered: true, arrived: 500, waiting: 0, lag: 60 * ms}, // no mark
	} {
		reached := l.see(step.now, step.answered, step.arrived, step.waiting)
		if reached != step.reached || l.of(step.now) != step.lag {
			t.Errorf("%+v: reached %v, lag %v", step, reached, l.of(step.now))
		}
	}
	l.mark(100*ms, 3, 500)
	if !l.see(101*ms, true, 500, 0) || l.of(200*ms) != ms {
		t.Errorf("with nothing ahead of it: %+v", l)
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
