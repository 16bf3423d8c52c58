package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/client/clienttest"
	"github.com/natsid/natsid/subjects"
)

// A shop takes a Source: in production ids.Segment("order"), in a test clienttest.New().
type shop struct{ orders client.Source }

func (s shop) order(ctx context.Context) (string, error) {
	id, err := s.orders.Next(ctx)
	if errors.Is(err, client.ErrUnavailable) {
		return "please try again later", nil
	}
	return "order " + id.String(), err
}

func Example() {
	ids := clienttest.New()
	s := shop{ids}
	fmt.Println(s.order(context.Background()))
	ids.Fail(client.ErrUnavailable)
	fmt.Println(s.order(context.Background()))
	ids.Fail(nil)
	fmt.Println(s.order(context.Background()))
	// Output:
	// order 1 <nil>
	// please try again later <nil>
	// order 2 <nil>
}

func TestIDsRiseAndNoneRepeats(t *testing.T) {
	ids := clienttest.New()
	var mu sync.Mutex
	seen := make(map[subjects.ID]bool)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var last subjects.ID
			for range 200 {
				one, err := ids.Next(t.Context())
				runs, errN := ids.NextN(t.Context(), 3)
				if err != nil || errN != nil || runs.Len() != 3 {
					t.Errorf("%v, %v, %v", err, errN, runs)
					return
				}
				mu.Lock()
				for _, id := range []subjects.ID{one, subjects.ID(runs[0].First), subjects.ID(runs[0].Last)} {
					if id <= last || seen[id] {
						t.Errorf("ID %d after %d", id, last)
					}
					last, seen[id] = id, true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestASourceBeginsWhereItIsTold(t *testing.T) {
	if id, err := clienttest.From(1 << 53).Next(t.Context()); err != nil || id != 1<<53 {
		t.Errorf("%d, %v", id, err)
	}
}

func TestACallFailsAsAHandleDoes(t *testing.T) {
	ids := clienttest.New()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []int{-1, 0} {
		if _, err := ids.NextN(t.Context(), n); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%d IDs: %v", n, err)
		}
	}
	for range 2 {
		if id, err := ids.Next(ended); !errors.Is(err, context.Canceled) || id != 0 {
			t.Errorf("its context has ended: %d, %v", id, err)
		}
		if runs, err := ids.NextN(ended, 5); !errors.Is(err, context.Canceled) || runs != nil {
			t.Errorf("its context has ended: %v, %v", runs, err)
		}
	}
	ids.Fail(client.ErrNotServed)
	if _, err := ids.NextN(t.Context(), 5); !errors.Is(err, client.ErrNotServed) {
		t.Error(err)
	}
	ids.Fail(nil)
	if id, err := ids.Next(t.Context()); id != 1 || err != nil {
		t.Errorf("%d, %v, want 1, since no call has got an ID", id, err)
	}
}
