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
