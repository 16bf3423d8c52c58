package tests

import (
	"slices"
	"sync"
	"testing"

	"github.com/natsid/natsid/subjects"
)

// A ledger records the IDs that callers were given.
type ledger struct {
	mu   sync.Mutex
	runs []subjects.Run
	n    int64
}

func (l *ledger) add(runs ...subjects.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, runs...)
	for _, r := range runs {
		l.n += r.Len()
	}
}

func (l *ledger) len() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// check fails the test if any ID was given twice.
func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.runs, func(a, b subjects.Run) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	for i := 1; i < len(l.runs); i++ {
		if l.runs[i].First <= l.runs[i-1].Last {
			t.Fatalf("IDs were given twice: %v and %v", l.runs[i-1], l.runs[i])
		}
	}
	t.Logf("%d IDs in %d runs, no repeat", l.n, len(l.runs))
}
