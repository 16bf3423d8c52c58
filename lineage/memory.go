package lineage

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// An ownKey is the value of a key that one worker writes. Only its owner changes it, but for a volatile one that ended
// or was silent for an hour: another volatile worker may take that over.
type ownKey struct {
	Version  int       `json:"version"`
	Token    string    `json:"token"` // random, fresh with each write
	Name     string    `json:"name"`  // of the worker, for people
	Time     time.Time `json:"time"`  // of the write, by the worker's clock
	Era      string    `json:"era"`
	Incident string    `json:"incident,omitempty"` // that the owner has joined
	Ended    bool      `json:"ended,omitempty"`    // the owner stopped cleanly
	Volatile bool      `json:"volatile,omitempty"` // the owner has no data directory
	// Taken are the tokens that former owners wrote last, so that one who lives after all recognizes its own.
	Taken []string `json:"taken,omitempty"`
}

// mostTaken bounds Taken. An owner silent for longer than that many owners of its key stops its registry.
const mostTaken = 16

func decodeOwn(value []byte) (o ownKey, err error) {
	if err = json.Unmarshal(value, &o); err == nil && o.Version != version {
		err = fmt.Errorf("it is of version %d", o.Version)
	}
	if err != nil {
		return ownKey{}, fmt.Errorf("lineage: an own key is damaged: %w", err)
	}
	return o, nil
}

// A memory is what a worker remembers of its registry. With a data directory it outlasts the process.
type memory struct {
	Registry string `json:"registry,omitempty"`
	Era      string `json:"era,omitempty"`
	Key      string `json:"key,omitempty"` // "" before the first own key
	// Written is the last write of the own key that is known to have landed, and Flight one whose outcome is unknown.
	Written  written  `json:"written,omitzero"`
	Flight   flight   `json:"flight,omitzero"`
	Highest  uint64   `json:"highest,string,omitempty"` // revision of the bucket that is known
	Incident string   `json:"incident,omitempty"`       // that this worker has joined
	Ended    []string `json:"ended,omitempty"`          // incidents that it was in before, the last mostEnded
	// Stop is why the worker issues nothing, and All whether that holds for snowflakes, too: at the next start it holds
	// until the registry can be read.
	Stop     string `json:"stop,omitempty"`
	All      bool   `json:"all,omitempty"`
	Volatile bool   `json:"-"`
	// Taken is what former owners of the key wrote last: see [ownKey].
	Taken []string `json:"-"`
}

type written struct {
	Token    string `json:"token"`
	Revision uint64 `json:"revision,string"`
}

type flight struct {
	Token   string `json:"token"`
	Highest uint64 `json:"highest,string"` // revision that was known when it was first sent
}

// mostEnded bounds the former incidents that a worker remembers by itself; the chain has them all.
const mostEnded = 64

// isFresh reports whether the worker remembers no registry: it has loaded nothing, so nothing can be missing.
func (m *memory) isFresh() bool { return m.Era == "" }

// join makes an incident the one that the worker is in, instead of another one that is open no more.
func (m *memory) join(incident string) {
	if m.Incident != incident {
		m.end(m.Incident)
	}
	m.Incident = incident
}

func (m *memory) end(incident string) {
	if incident != "" && !slices.Contains(m.Ended, incident) {
		m.Ended = append(m.Ended[max(0, len(m.Ended)+1-mostEnded):], incident)
	}
}

// leaveKey makes the next write one of a new key.
func (m *memory) leaveKey() { m.Key, m.Written, m.Flight, m.Taken = "", written{}, flight{}, nil }
