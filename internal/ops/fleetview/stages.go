package fleetview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// Stages has the stages that have reported their state within the last [forgetStage]. The zero value has none. It is
// safe for concurrent use.
type Stages struct {
	mu   sync.Mutex
	last map[[3]string]heardStage // by name, and the streams from and to
}

type heardStage struct {
	wire.StageView
	at time.Time
}

const (
	forgetStage = 3 * wire.StageEvery
	// A user with a stage's rights can send any names and long texts, so both are bounded.
	maxStages  = 1000
	maxMessage = 8 << 10 // bytes
)

// Listen receives the reports of stages on a connection, until the connection is closed.
func (s *Stages) Listen(nc *nats.Conn, ns subjects.Namespace, now func() time.Time) error {
	_, err := nc.Subscribe(wire.Stage(ns), func(m *nats.Msg) {
		var v wire.StageView
		if len(m.Data) > maxMessage || json.Unmarshal(m.Data, &v) != nil || v.Name == "" {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(now())
		if s.last == nil {
			s.last = make(map[[3]string]heardStage)
		}
		key := [3]string{v.Name, v.From, v.To}
		if _, known := s.last[key]; v.Role == wire.StageStopped {
			delete(s.last, key)
		} else if known || len(s.last) < maxStages {
			s.last[key] = heardStage{v, now()}
		}
	})
	if err != nil {
		return fmt.Errorf("fleetview: %s: %w", wire.Stage(ns), err)
	}
	return nil
}

// forget drops the stages that have been silent for too long. The lock is held.
func (s *Stages) forget(now time.Time) {
	for key, v := range s.last {
		if now.Sub(v.at) > forgetStage {
			delete(s.last, key)
		}
	}
}

// Now returns the stages, ordered by what they copy and then by name.
func (s *Stages) Now(now time.Time) (all []wire.StageView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	for _, v := range s.last {
		all = append(all, v.StageView)
	}
	slices.SortFunc(all, orderOfStages)
	return all
}

func orderOfStages(a, b wire.StageView) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Name, b.Name))
}
