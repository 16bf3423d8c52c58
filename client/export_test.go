package client

import "time"

// Gathered returns how many calls wait for a batch that has not left.
func (h *Handle) Gathered() int64 { return h.merger.gathering.Load().joined.Load() }

// PatienceAfter returns how long an answer may take where others took so long.
func PatienceAfter(took ...time.Duration) time.Duration {
	s := new(source)
	for _, d := range took {
		s.learn(d)
	}
	return s.patience()
}

// ParseRuns reads a reply to a request for n IDs.
var ParseRuns = parseRuns
