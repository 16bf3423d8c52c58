package workerid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func TestEachWindowIsReportedBeforeAnIDOfItIsIssued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of windows, while they come
		var windows []workerid.Window
		l := start(t, new(workeridtest.Memory), func(c *workerid.Config) {
			c.Horizon = time.Minute
			c.Granted = func(w workerid.Window) {
				mu.Lock()
				defer mu.Unlock()
				windows = append(windows, w)
			}
		})
		last := snowflake.Parts{}
		for range 100 {
			time.Sleep(time.Second)
			p := l.issue()
			synctest.Wait()
			if ms := layout.FirstMs(p.Tick); p.Tick != 0 {
				last = p
				mu.Lock()
				w := windows[len(windows)-1]
				mu.Unlock()
				if w.Number != p.Worker || ms < w.From || ms >= w.Until {
					t.Fatalf("an ID of %d in the window %+v", ms, w)
				}
			}
		}
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		how := make(map[workerid.How]int)
		for _, w := range windows {
			how[w.How]++
			if w.From != windows[0].From || w.Number != windows[0].Number {
				t.Errorf("%+v, want it to begin as the first one of the claim", w)
			}
		}
		if how[workerid.Acquired] != 1 || how[workerid.Renewed] < 3 || how[workerid.Closed] != 1 {
			t.Errorf("windows came about %v", how)
		}
		end := windows[len(windows)-1]
		if end.How != workerid.Closed || end.Until <= layout.FirstMs(last.Tick) || end.Until > now()+1 {
			t.Errorf("the last window is %+v at %d, want it to end after the last ID", end, now())
		}
	})
}
