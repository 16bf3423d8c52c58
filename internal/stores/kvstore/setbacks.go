package kvstore

import (
	"fmt"
	"maps"
	"sync"

	"github.com/natsid/natsid/segment"
)

// setbacks raises an alarm, once per event, for a row whose max_id went back: below Seen in the tag's entry, the
// highest max_id ever read, or below the max_id to which this worker has raised the row since Seen was written.
type setbacks struct {
	alarm func(tag, message string)

	mu     sync.Mutex
	clock  uint64            // how often this worker has raised a row
	raised map[string]raised // by tag
	lost   map[string]int64  // by tag, the lost max_id until the row has reached it again
}

// raised is an acknowledged write of this worker that raised the max_id of a row; at is the clock after the write.
type raised struct {
	maxID int64
	at    uint64
}

// now returns how often this worker has raised a row. Call now before reading a row, and pass the result to check.
func (s *setbacks) now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// acknowledged records that the database confirmed a write of this worker that raised the max_id of a row to maxID.
func (s *setbacks) acknowledged(tag string, maxID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raised == nil {
		s.raised = make(map[string]raised)
	}
	s.clock++
	s.raised[tag] = raised{maxID, s.clock}
}

// check raises the alarm if the max_id of a tag's row, which must not be nil, went back. began is the result of now
// from before the row was read: a raise after that proves nothing.
func (s *setbacks) check(tag string, t state, began uint64) {
	was, isNew := s.note(*t.row, t.Seen, began)
	if !isNew {
		return
	}
	s.alarm(tag, fmt.Sprintf("max_id is %d and was %d: the database has lost commits; natsid repeats none of its "+
		"IDs and continues from %d, but Leaf nodes on the table may repeat some",
		t.row.MaxID, was, max(t.Mark, was)))
}

// note returns the former max_id of a row if its max_id went back. isNew reports whether this is a new event: an event
// ends once max_id has reached the lost value again.
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

// keepOnly forgets deleted tags and those that are not in tags, a listing. It keeps raises after began, the result of
// now from before the listing, which may lack their tags.
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
