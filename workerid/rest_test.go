package workerid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// A program that was paused with its number may issue for a while after it woke up.
func TestNothingIsIssuedWhileTheNumberRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const horizon, rest = 30 * time.Second, time.Hour
		l := start(t, new(workeridtest.Memory), func(c *workerid.Config) { c.Horizon, c.Rest = horizon, rest })
		l.first(10 * time.Second)
		w := l.number()
		left := func() time.Duration { return time.Duration(l.record(w).Until-now()) * time.Millisecond }
		for range 100 {
			time.Sleep(time.Second)
			if d := left(); d < rest+horizon/2 || d > rest+horizon+2*time.Second || l.issue().Tick == 0 {
				t.Fatalf("the record ends in %v, want the rest and two thirds of the horizon, and an ID", d)
			}
		}
		l.reg.OnCall(func(string, func() error) error { return workeridtest.ErrInjected })
		last := now()
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			if p := l.issue(); p.Tick != 0 {
				last = now()
			}
		}
		if until := l.record(w).Until; until-last < rest.Milliseconds() {
			t.Errorf("the number rests for %d ms after the last ID, want %v", until-last, rest)
		}
		l.end()
		if d := left(); d > 0 {
			t.Errorf("a clean stop blocks the number for another %v", d)
		}
	})
}

// The user of a number may have issued more than this process knows, and may still issue when the number is given up.
func TestANumberWhoseUserMayStillIssueIsNotReleasedForAClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rest = time.Hour
		m := new(workeridtest.Memory)
		l := start(t, m, func(c *workerid.Config) { c.Rest = rest })
		l.first(10 * time.Second)
		w := l.number()
		l.issue()
		until := l.record(w).Until
		m.Set(-time.Minute)
		l.set(-time.Minute)
		time.Sleep(20 * time.Second)
		if l.number() == w {
			t.Fatalf("number %d is kept though the clock is a minute behind its last ID", w)
		}
		if now := l.record(w).Until; now < until {
			t.Errorf("the end of the window was lowered by %d ms: another owner may begin within the rest", until-now)
		}
		l.raised(workerid.ClockStep, workerid.ClockBehind)
		l.end()
	})
}
