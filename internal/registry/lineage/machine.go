package lineage

import "time"

// A State is what a worker knows of its registry.
type State int

// The states. Loads need Sound; Stopping and Stopped also end the issuing of IDs from memory.
const (
	// Unknown: the registry was not checked within the last 3 s, or another connection was made since.
	Unknown State = iota
	// Sound: a check that began within the last 3 s found the registry that this worker remembers.
	Sound
	// Stopping: this worker knows that the registry must stop, and has not yet noted that it joined the incident.
	Stopping
	// Stopped: this worker's own key names the incident, and the marks are at or above its floors.
	Stopped
)

// A machine is the state of one worker. Its methods are the transitions; it does no I/O and keeps no clock.
//
//	          checked            doubted, or 3 s later
//	unknown ----------> sound ----------> unknown
//	   |                  |
//	   +--------+---------+   stop: a proof, or an open incident was read or heard
//	            v
//	        stopping ----------> stopped ----------> unknown
//	            ^      noted        |      resumed
//	            +-------------------+
//	               stop: a proof while stopped, or another incident
type machine struct {
	state   State
	checked time.Time // when the last sound check began
	stops   int       // how often this worker was stopped
	links   uint64    // connections made until then
	doubts  int       // calls of doubt, so that a check that began before one does not count
	why     error     // of Stopping and Stopped
}

const (
	// fresh is how long a check counts. A load needs a check of the last 3 s.
	fresh = 3 * time.Second
	// writeTimeout is how long a load's compare-and-set may take at most, if its range is to be used.
	writeTimeout = 8 * time.Second
	// ageing is the age at which Run makes the next check, if a load was made: then loads that follow need not wait.
	ageing = 2 * time.Second
)

// soundAt reports whether a load may begin.
func (m *machine) soundAt(now time.Time, links uint64) bool {
	return m.state == Sound && m.links == links && now.Sub(m.checked) < fresh
}

// isAgeing reports whether the registry is sound, and will soon need another check.
func (m *machine) isAgeing(now time.Time) bool {
	return m.state == Sound && now.Sub(m.checked) >= ageing
}

// A pass is what a load may begin with: the last check.
type pass struct {
	checked time.Time
	stops   int
}

// pass returns the pass of a load that begins now.
func (m *machine) pass() pass { return pass{m.checked, m.stops} }

// counts reports whether a load that began with a pass may be used: its compare-and-set was answered within
// writeTimeout, and the worker is still in the era in which the load began, since it enters another one stopped.
func (m *machine) counts(p pass, now time.Time) bool {
	return !m.isStopped() && m.stops == p.stops && now.Sub(p.checked) < fresh+writeTimeout //mutant:counts
}

// checkedAt takes in a check that found all in order, unless there was a doubt since it began.
func (m *machine) checkedAt(began time.Time, links uint64, doubts int) {
	if !m.isStopped() && m.doubts == doubts {
		m.state, m.checked, m.links = Sound, began, links
	}
}

// doubt makes the next load check. It ends no stop.
func (m *machine) doubt() {
	m.doubts++
	if m.state == Sound {
		m.state = Unknown
	}
}

// stop begins a stop, or another one. Before: any state. After: no load begins, and no ID is issued from memory.
func (m *machine) stop(why error) {
	m.state, m.why = Stopping, why
	m.stops++
}

// noted ends the begin of a stop. Before: Stopping.
func (m *machine) noted() {
	if m.state == Stopping {
		m.state = Stopped
	}
}

// resumed ends a stop. Before: the registry has ended the incident, memory is discarded, and all marks are at or above
// this worker's floors. After: the first load checks.
func (m *machine) resumed() { m.state, m.why, m.checked = Unknown, nil, time.Time{} }

// isStopped reports whether nothing may be issued.
func (m *machine) isStopped() bool { return m.state == Stopping || m.state == Stopped }
