package tests

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/ledger"
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

// A given is the IDs that callers got.
type given struct {
	ledger *ledger.Ledger
	n      atomic.Int64
}

func newGiven(t *testing.T) *given { return &given{ledger: ledger.New(t.TempDir())} }

func (g *given) add(runs ...subjects.Run) {
	for _, r := range runs {
		_ = g.ledger.Add(int64(r.First), int64(r.Last)) // Close returns an error of the disk
		g.n.Add(r.Len())
	}
}

// check fails the test if an ID was issued twice.
func (g *given) check(t *testing.T) {
	t.Helper()
	if r, err := g.ledger.Close(); err != nil || r.Repeats > 0 {
		t.Errorf("IDs were issued twice: %+v, %v", r, err)
	}
}
