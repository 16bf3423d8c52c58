package tests

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// request sends a request for n IDs once, without a retry after 503.
func request(nc *nats.Conn, subject string, n int, within time.Duration) ([]subjects.Run, error) {
	msg, err := nc.Request(subject, fmt.Append(nil, n), within)
	if err != nil {
		return nil, err
	}
	if e := subjects.ParseError(msg.Header); e != nil {
		return nil, e
	}
	return subjects.ParseRuns(msg.Data)
}

// A ledger records the IDs that callers got.
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

// check fails the test if an ID was issued twice.
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
			t.Fatalf("IDs were issued twice: %v and %v", l.runs[i-1], l.runs[i])
		}
	}
	t.Logf("%d IDs in %d runs, no repeat", l.n, len(l.runs))
}
