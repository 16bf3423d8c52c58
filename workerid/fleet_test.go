package workerid_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// slowly makes each call of a life's registry take about d, and counts lists.
func slowly(d time.Duration, lists *atomic.Int64) func(*workerid.Config) {
	return func(cfg *workerid.Config) {
		cfg.Registry.(*workeridtest.Fake).OnCall(func(method string, call func() error) error {
			if method == "Records" || method == "Heartbeats" {
				lists.Add(1)
			}
			time.Sleep(d/2 + rand.N(d))
			return call()
		})
	}
}

// Each list costs a registry as much as there are workers. One needs two of them before it acquires a number.
func TestAFleetThatStartsInAnEmptyRegistryListsLittleMoreThanInAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, lists, fleet := new(workeridtest.Memory), new(atomic.Int64), make([]*life, 200)
		for i := range fleet {
			fleet[i] = start(t, m, slowly(200*time.Millisecond, lists))
		}
		time.Sleep(20 * time.Second)
		for _, l := range fleet {
			if l.issue().Tick == 0 {
				t.Errorf("%+v, want IDs", l.keeper.Status())
			}
		}
		if n, most := lists.Load(), int64(len(fleet)*13/4); n > most {
			t.Errorf("%d lists of %d workers, want %d at most", n, len(fleet), most)
		}
		for _, l := range fleet {
			l.end()
		}
	})
}

func TestAWorkerAloneFoundsItsRegistryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, lists := new(workeridtest.Memory), new(atomic.Int64)
		l := start(t, m, slowly(2*time.Millisecond, lists))
		time.Sleep(1006*time.Millisecond + 60*time.Millisecond) // a margin, and 20 calls
		if l.issue().Tick == 0 || lists.Load() != 4 {
			t.Errorf("%+v after %d lists, want IDs", l.keeper.Status(), lists.Load())
		}
		l.end()
	})
}
