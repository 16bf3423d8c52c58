package segment

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/latency"
)

// Lanes bound the number of loads that are under way in the store at once. A tag whose loads hang, for example
// because another session has locked its row, occupies a place for the whole timeout of a load, and then retries. So
// tags are in separate lanes by how their last loads ended: failing tags queue behind one another, never in front of
// the others.
//
// The first load of a tag that hangs is still in the sound lane, and many tags may begin to hang at once. So a load
// there is ended if another one waits for a place, once it has taken a quarter of its time, and twice as long as recent
// loads that succeeded: where the store is slow for all tags, ended loads would only double its work.
type lanes struct {
	sound    lane            // of tags whose last load succeeded; and of new tags
	troubled lane            // of tags of which one or two loads in a row failed
	stuck    lane            // of tags of which more loads in a row failed
	unlisted lane            // loads of names that the last listing lacked: most likely no such tags exist
	slowest  latency.Slowest // of recent loads that succeeded, in all lanes
}

// newLanes returns lanes with a few places less in all than mysqlstore has connections to one database: polls and
// administrators need some, too.
func newLanes() *lanes {
	l := &lanes{
		sound:    lane{places: make(chan struct{}, 20)},
		troubled: lane{places: make(chan struct{}, 8)},
		stuck:    lane{places: make(chan struct{}, 4)},
		unlisted: lane{places: make(chan struct{}, 4)},
	}
	l.sound.slowest = &l.slowest
	return l
}

func (l *lanes) of(p plan) *lane {
	switch {
	case p.fails == 0 && p.unlisted:
		return &l.unlisted
	case p.fails == 0:
		return &l.sound
	case p.fails <= 2:
		return &l.troubled
	}
	return &l.stuck
}

// A lane admits as many loads at once as it has places, in order of arrival.
type lane struct {
	places  chan struct{}
	slowest *latency.Slowest // see lanes; nil where no load is ended for another one
	waiting atomic.Int64     // loads that wait for a place
}

// drive waits for a place in the lane and calls load, with a context that ends after timeout.
func (l *lane) drive(ctx context.Context, timeout time.Duration, load func(context.Context) error) error {
	l.waiting.Add(1)
	select {
	case l.places <- struct{}{}:
		l.waiting.Add(-1)
		defer func() { <-l.places }()
	case <-ctx.Done():
		l.waiting.Add(-1)
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout) //mutant:load-timeout
	defer cancel()
	if l.slowest != nil {
		defer time.AfterFunc(l.patience(timeout), func() {
			if l.waiting.Load() > 0 {
				cancel()
			}
		}).Stop()
	}
	return load(ctx)
}

// patience returns after what time a load is ended if another one waits: half of its time before any has succeeded.
func (l *lane) patience(timeout time.Duration) time.Duration {
	slowest := l.slowest.Get()
	if slowest == 0 {
		return timeout / 2
	}
	return max(timeout/4, 2*slowest)
}
