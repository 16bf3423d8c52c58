package guard

import (
	"fmt"
	"sync"

	"github.com/natsid/natsid/segment"
)

// setbacks raises an alarm for rows that went back, once per event.
type setbacks struct {
	alarm func(tag, message string)

	mu   sync.Mutex
	lost map[string]int64 // by tag: the max_id that was lost
}

// check raises the alarm if a row is below what its mark has seen.
func (s *setbacks) check(row segment.Row, m segment.Mark) {
	if row.MaxID >= m.Seen || !s.note(row.Name, m.Seen) {
		return
	}
	s.alarm(row.Name, fmt.Sprintf("max_id is %d and was %d: the database has lost commits; natsid repeats none of its "+
		"IDs and continues from %d, but Leaf nodes on the table may repeat some",
		row.MaxID, m.Seen, max(m.High, m.Seen)))
}

// note reports whether the loss of that max_id is new.
func (s *setbacks) note(tag string, lost int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost[tag] == lost {
		return false
	}
	if s.lost == nil {
		s.lost = make(map[string]int64)
	}
	s.lost[tag] = lost
	return true
}
