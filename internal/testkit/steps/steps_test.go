package steps_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/testkit/steps"
)

func TestEveryOrderIsRunOnce(t *testing.T) {
	seen := make(map[string]int)
	orders, err := steps.Every(func() ([]func(), func() error) {
		var at steps.Int64
		var order strings.Builder
		thread := func(name string, operations int) func() {
			return func() {
				for range operations {
					at.Load()
					order.WriteString(name)
				}
			}
		}
		return []func(){thread("a", 3), thread("b", 2)}, func() error { seen[order.String()]++; return nil }
	})
	if err != nil || orders != 10 || len(seen) != 10 {
		t.Errorf("%d orders, %v: %v; want the 10 of 3 and 2 operations", orders, err, seen)
	}
}

func TestAnErrorComesWithItsOrder(t *testing.T) {
	_, err := steps.Every(func() ([]func(), func() error) {
		var n steps.Uint64
		add := func() { n.Store(n.Load() + 1) }
		return []func(){add, add}, func() error {
			if n.Load() != 2 {
				return errors.New("an addition is lost")
			}
			return nil
		}
	})
	if want := "in the order [0 1 0 1]: an addition is lost"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestThreadsThatWaitForOneAnotherAreAnError(t *testing.T) {
	_, err := steps.Every(func() ([]func(), func() error) {
		var n steps.Uint64
		return []func(){func() {
			for !n.CompareAndSwap(1, 2) {
			}
		}}, func() error { return nil }
	})
	if err == nil || !strings.Contains(err.Error(), "wait for one another") {
		t.Error(err)
	}
}

func TestOperationsDoWhatThoseOfSyncAtomicDo(t *testing.T) {
	var u steps.Uint64
	u.Store(4)
	if old := u.Or(1); old != 4 || u.Load() != 5 {
		t.Errorf("Or: %d before, %d after", old, u.Load())
	}
	var i steps.Int64
	if i.CompareAndSwap(1, 2) || !i.CompareAndSwap(0, 3) || i.Load() != 3 {
		t.Errorf("CompareAndSwap: %d", i.Load())
	}
}
