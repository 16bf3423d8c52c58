package witness

import (
	"fmt"
	"testing"
	"time"
)

// A load whose check is due makes four requests; the leader of the bucket may take any of them with it.
func TestALoadGoesOnWhicheverOfItsRequestsIsNeverAnswered(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, lands := range []bool{false, true} {
			for nth := range int64(4) {
				t.Run(fmt.Sprintf("strict %t, lands %t, request %d", strict, lands, nth), func(t *testing.T) {
					play(t, func(w *world) {
						a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
						a.ids.SetStrict(map[string]bool{"order": strict})
						b.ids.SetStrict(map[string]bool{"order": strict})
						w.load(3, a, b)
						a.mustTake(7)
						time.Sleep(fresh + time.Second) // the check is due
						w.js.lands.Store(lands)
						w.js.dropAt.Store(1 + nth)
						began := time.Now()
						a.mustTake(50) // more than is there
						if took := time.Since(began); took > 600*time.Millisecond {
							t.Errorf("it took %v", took)
						}
						if w.js.dropAt.Load() > 0 {
							t.Error("the load made fewer requests")
						}
						w.load(3, b, a)
					})
				})
			}
		}
	}
}
