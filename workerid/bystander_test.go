package workerid_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// firstAfter returns when the first ID comes, in ms after begin, if that is within a minute.
func (l *life) firstAfter(begin int64) int64 { return l.first(time.Minute) - begin }

// Somebody who hears all questions, and never answers, stops nobody; nor is any window used that has not ended.
func TestABystanderStopsNobodyAndHidesNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := new(workeridtest.Memory), t.TempDir()
		m.Overhear(true)
		begin := now()
		a := start(t, m, in(dir))
		// Two heartbeats and the margin: a holder that was not heard has read its record by then.
		if first := a.firstAfter(begin); first < 7006 || first > 7020 {
			t.Errorf("a new number is used after %d ms, want 7006", first)
		}
		w := a.number()

		a.end()
		begin = now()
		a = start(t, m, in(dir))
		if first := a.firstAfter(begin); first > 100 || a.number() != w {
			t.Errorf("after a clean stop number %d is used after %d ms, want %d at once", a.number(), first, w)
		}

		time.Sleep(time.Minute)
		a.crash(dir)
		begin = now()
		a = start(t, m, in(dir))
		if first := a.firstAfter(begin); first > 3100 || a.number() != w {
			t.Errorf("after a crash number %d is used after %d ms, want %d after the fence", a.number(), first, w)
		}
		a.crash(dir)
		m.Expire(w)
		until := a.record(w).Until

		begin = now()
		b := start(t, m, in(dir), away(false))
		if first := b.firstAfter(begin); first > 5000 || b.number() != w {
			t.Errorf("without the registry number %d is used after %d ms, want %d", b.number(), first, w)
		}
		b.crash(dir)

		// The holder of w hangs, or its connection is cut: nobody answers. All others do.
		for n := range 1024 {
			if n != w {
				m.Answer(n, workerid.Who{Instance: "other", Process: "other"})
			}
		}
		c := start(t, m)
		for now() < until {
			if s := c.keeper.Status(); s.Held || !errors.Is(s.Trouble, workerid.ErrExhausted) {
				t.Fatalf("%d ms before its window ends: %+v", until-now(), s)
			}
			time.Sleep(time.Second)
		}
		if first := c.first(time.Minute); c.number() != w || first < until+7000 {
			t.Errorf("number %d is used %d ms after its window, want %d after 7 s", c.number(), first-until, w)
		}
		c.end()
	})
}
