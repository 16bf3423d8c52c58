package workerid_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// besideClock are the calls of a heartbeat after it has compared the clock.
var besideClock = []string{"Deployment", "Record", "Report"}

// Without trouble, the calls after the comparison of the clock cost one round trip.
func TestWhatFollowsTheClockIsDoneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		defer l.end()
		time.Sleep(30*time.Second + 50*time.Millisecond)
		var mu sync.Mutex
		under, most, renewed := make(map[string]bool), 0, 0
		l.reg.OnCall(func(method string, call func() error) error {
			mu.Lock()
			under[method] = slices.Contains(besideClock, method)
			if n := countTrue(under); under["Deployment"] || method == "Write" {
				most = max(most, n)
			}
			if method == "Write" {
				renewed++
				if countTrue(under) > 0 {
					t.Errorf("a window grows beside %v", under)
				}
			}
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			under[method] = false
			return call()
		})
		time.Sleep(5 * time.Minute)
		l.reg.OnCall(nil)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != len(besideClock) || renewed < 2 {
			t.Errorf("%d calls at once, %d renewals, want %d at once", most, renewed, len(besideClock))
		}
	})
}

func countTrue(of map[string]bool) (n int) {
	for _, yes := range of {
		if yes {
			n++
		}
	}
	return n
}

// A number of another deployment closes its generator before anything else, also while the heartbeat hangs
// that is put beside it.
func TestAnotherDeploymentClosesTheGeneratorThoughTheHeartbeatHangs(t *testing.T) {
	for _, change := range []func(*workerid.Config){later, named} {
		synctest.Test(t, func(t *testing.T) {
			m, reg := new(workeridtest.Memory), new(slow)
			l := start(t, m, func(c *workerid.Config) {
				reg.Fake = c.Registry.(*workeridtest.Fake)
				c.Registry = reg
			})
			time.Sleep(time.Minute)
			g, read := l.gen(), make(chan struct{})
			l.reg.OnCall(func(method string, call func() error) error {
				if method == "Deployment" {
					l.reg.OnCall(nil)
					defer close(read)
				}
				return call()
			})
			reg.hangs.Store(true)
			deploy(m, change)
			<-read
			time.Sleep(100 * time.Millisecond)
			if err := g.CheckAt(now()); !errors.Is(err, snowflake.ErrClosed) {
				t.Errorf("the generator: %v, want it closed", err)
			}
			reg.hangs.Store(false)
			time.Sleep(time.Minute)
			l.end()
		})
	}
}
