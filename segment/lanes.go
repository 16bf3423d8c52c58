package segment

import "context"

// Lanes bound the loads that are under way in the store at once. A tag whose
// loads hang, since another session has its row locked, say, takes a lane up
// for the whole time a load is given, and tries again. So tags drive in
// separate lanes by how their last loads ended: those in trouble queue behind
// one another, never in front of the others.
type lanes struct {
	sound    lane // the last load succeeded, or none was made yet
	troubled lane // one or two loads in a row failed
	stuck    lane // more did
}

// Together they are as many as the statements that a store of ours sends at
// once to one database.
func newLanes() lanes {
	return lanes{sound: make(lane, 20), troubled: make(lane, 8), stuck: make(lane, 4)}
}

func (l lanes) of(fails int) lane {
	switch {
	case fails == 0:
		return l.sound
	case fails <= 2:
		return l.troubled
	}
	return l.stuck
}

// A lane lets as many loads in at once as it has capacity, in order of arrival.
type lane chan struct{}

// enter waits for a place, and reports whether it has one; if not, ctx ended.
func (l lane) enter(ctx context.Context) bool {
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l lane) leave() { <-l }
