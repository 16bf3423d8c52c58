package kvstore

import (
	"fmt"
	"maps"
	"sync"

	"github.com/natsid/natsid/segment"
)

// setbacks raises an alarm for rows that went back, once per event. A row went back if it is below Seen in the tag's
// entry, or below the max_id to which this worker has raised it: Seen includes that only from the next load on.
type setbacks struct {
	alarm func(tag, message string)

	mu     sync.Mutex
	clock  uint64            // counts raises
	raised map[string]raised // by tag
	lost   map[string]int64  // by tag, the lost max_id until the row has reached it again
}

// raised is an acknowledged raise of a row.
type raised struct {
	maxID int64
	at    uint64
}

// now returns the number of raises so far. Call now before reading the row, and pass the result to check.
func (s *setbacks) now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// acknowledged records that this worker raised a row.
func (s *setbacks) acknowledged(tag string, maxID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raised == nil {
		s.raised = make(map[string]raised)
	}
	s.clock++
	s.raised[tag] = raised{maxID, s.clock}
}

// check raises the alarm if the row of a tag is lower than before. began is the result of now from before the row was
// read.
func (s *setbacks) check(tag string, t state, began uint64) {
	if t.row == nil {
		return
	}
	was, isNew := s.note(*t.row, t.Seen, began)
	if !isNew {
		return
	}
	s.alarm(tag, fmt.Sprintf("max_id is %d and was %d: the database has lost commits; natsid repeats none of its "+
		"IDs and continues from %d, but Leaf nodes on the table may repeat some",
		t.row.MaxID, was, max(t.Mark, was)))
}

// note returns the former max_id of the row if it went back. isNew reports whether this is a new event: an event ends
// once the row has reached the lost max_id.
func (s *setbacks) note(row segment.Row, seen int64, began uint64) (was int64, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.raised[row.Name]; r.at <= began {
		seen = max(seen, r.maxID)
	}
	lost, wasLost := s.lost[row.Name]
	if row.MaxID >= seen {
		if wasLost && row.MaxID >= lost {
			delete(s.lost, row.Name)
		}
		return 0, false
	}
	if s.lost == nil {
		s.lost = make(map[string]int64)
	}
	s.lost[row.Name] = max(lost, seen)
	return seen, !wasLost
}

// keepOnly forgets all tags but the given ones that are not deleted, and those whose rows were raised after began,
// which is the result of now from before the rows were read.
func (s *setbacks) keepOnly(tags []segment.Tag, began uint64) {
	live := make(map[string]bool, len(tags))
	for _, t := range tags {
		live[t.Name] = !t.Disabled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.raised, func(tag string, r raised) bool { return !live[tag] && r.at <= began })
	maps.DeleteFunc(s.lost, func(tag string, _ int64) bool { return !live[tag] })
}
