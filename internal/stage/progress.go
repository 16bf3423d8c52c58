package stage

import (
	"errors"
	"sync"
	"time"
)

// Progress is how far a stage is. Its counters count what this process did.
type Progress struct {
	Role     Role
	Position uint64 // of the source's messages, the last that is copied or passed
	Behind   uint64 // messages of the source that were not copied yet, as far as is known

	Copied       uint64
	Batches      uint64
	Fenced       uint64 // writes that were refused since another stage had written
	Retries      uint64
	HintFailures uint64
	DeadLetters  uint64
	Dropped      uint64 // by a [Core]

	Why   string    // why it retried last; "" once something was copied since
	Since time.Time // when that was
}

// A Role is what a stage does at the moment.
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

// troubleFor is how long a trouble is taken to last where nothing was copied since: longer
// than a retry takes to fail again.
const troubleFor = 20 * time.Second

// Ready returns why the stage neither copies nor stands by; nil if it does.
func (p Progress) Ready(now time.Time) error {
	switch {
	case p.Role == Starting:
		return errors.New("it looks for the position")
	case p.Why != "" && (p.Role == Retrying || now.Sub(p.Since) < troubleFor):
		return errors.New("it retries: " + p.Why)
	}
	return nil
}

// A noted is a progress that goroutines share.
type noted struct {
	mu sync.Mutex
	p  Progress
}

// Progress returns how far it is.
func (n *noted) Progress() Progress {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.p.Role == "" {
		n.p.Role = Starting
	}
	return n.p
}

// note changes the progress.
func (n *noted) note(change func(*Progress)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.p)
}
