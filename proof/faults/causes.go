//go:build linux

package main

import (
	"github.com/natsid/natsid/internal/wire"
	"time"
)

// A cause is an event other than the fault's start and end that makes a loss possible: the trial records when it
// happens.
type cause struct {
	name   string // the time of its effect, for the report
	lasted func(*trial, kind) []span
}

var (
	// aLostNumber is a worker that reports the loss of its number. Within renumbered it has another number: it
	// searches for one, writes the record twice, and waits a second in which the former owner may still issue.
	aLostNumber = cause{
		name: "up to " + renumbered.String() + " after a worker's alarm `number-lost`",
		lasted: func(t *trial, _ kind) (all []span) {
			for _, at := range t.load.raisedAt(wire.AlarmNumberLost) {
				all = append(all, span{at, at + renumbered})
			}
			return all
		},
	}
)

const renumbered = 5 * time.Second

// tags are the tags of the load.
var tags = map[kind]string{long: longTag, short: shortTag, strict: strictTag}

// raisedAt returns when alarms of a kind were raised, since the start of the load.
func (l *load) raisedAt(kind wire.Alarm) (at []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.alarms {
		if a.Kind == kind {
			at = append(at, a.Time.Sub(l.start))
		}
	}
	return at
}
