package guard

import (
	"fmt"
	"sync"

	"github.com/natsid/natsid/segment"
)

// keptRanges are ranges whose mark was raised and which the table certainly refused. No other process can use them.
type keptRanges struct {
	mu     sync.Mutex
	ranges map[string]segment.Range // by tag
}

// put keeps a range for the tag's next load.
func (k *keptRanges) put(tag string, r segment.Range) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ranges == nil {
		k.ranges = make(map[string]segment.Range)
	}
	k.ranges[tag] = r
}

// take removes and returns the kept range of a tag; an empty one if there is none.
func (k *keptRanges) take(tag string) segment.Range {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.ranges[tag]
	delete(k.ranges, tag)
	return r
}

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
