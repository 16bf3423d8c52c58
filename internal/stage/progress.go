package stage

import (
	"errors"
	"time"
)

// Progress is the progress of a stage. Its counters start with the process.
type Progress struct {
	Role     Role
	Position uint64 // sequence of the source's last message that was copied or passed
	Behind   uint64 // number of messages of the source not copied yet, as last known

	Copied       uint64
	Batches      uint64
	Fenced       uint64 // writes that were refused because another stage had written
	Retries      uint64
	HintFailures uint64
	DeadLetters  uint64

	Why   string    // reason of the last retry; "" once a message was copied since
	Since time.Time // time of the last retry
}

// A Role is the present activity of a stage.
type Role string

// The roles.
const (
	Starting Role = "starting"
	Copying  Role = "copying"
	Standby  Role = "standby" // another stage copies
	Retrying Role = "retrying"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Starting, Copying, Standby, Retrying} }

// troubleFor is how long a stage that copies nothing counts as not ready after its last retry. It is longer than a
// retry takes to fail.
const troubleFor = 20 * time.Second

// Ready returns why the stage neither copies nor stands by; nil if it copies or stands by.
func (p Progress) Ready(now time.Time) error {
	switch {
	case p.Role == Starting:
		return errors.New("it looks for the position")
	case p.Why != "" && (p.Role == Retrying || now.Sub(p.Since) < troubleFor):
		return errors.New("it retries: " + p.Why)
	}
	return nil
}

// Progress returns the present progress.
func (s *Stage) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}

func (s *Stage) note(change func(*Progress)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.progress)
}
