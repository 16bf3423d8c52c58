package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Lanes bound the loads that are under way in the store at once. A tag whose
// loads hang, since another session has its row locked, say, takes a place up
// for the whole time a load is given, and tries again. So tags drive in
// separate lanes by how their last loads ended: those in trouble queue behind
// one another, never in front of the others.
//
// The first load that hangs of a tag is in the sound lane, too, and many may at
// once. There a load that takes much longer than is usual gives way as soon as
// another waits for its place: it ends, and its tag tries again in the lane for
// those in trouble.
type lanes struct {
	sound    lane // the last load succeeded, or none was made yet
	troubled lane // one or two loads in a row failed
	stuck    lane // more did
	strange  lane // no listing had the tag: most likely there is none
	usual    usual
}

// Together they are a few less than the statements that a store of ours sends
// at once to one database: polls and administrators need some, too.
func newLanes() *lanes {
	l := &lanes{
		sound:    lane{places: make(chan struct{}, 20)},
		troubled: lane{places: make(chan struct{}, 8)},
		stuck:    lane{places: make(chan struct{}, 4)},
		strange:  lane{places: make(chan struct{}, 4)},
	}
	l.sound.usual = &l.usual
	return l
}

func (l *lanes) of(p plan) *lane {
	switch {
	case p.fails == 0 && p.stranger:
		return &l.strange
	case p.fails == 0:
		return &l.sound
	case p.fails <= 2:
		return &l.troubled
	}
	return &l.stuck
}

// A lane lets as many loads in at once as it has places, in order of arrival.
type lane struct {
	places chan struct{}
	usual  *usual       // nil where no load gives way
	wanted atomic.Int64 // places waited for that nobody is about to leave
}

// enter waits for a place, and reports whether it has one; if not, ctx ended.
func (l *lane) enter(ctx context.Context) bool {
	select {
	case l.places <- struct{}{}:
		return true
	default:
	}
	l.wanted.Add(1)
	select {
	case l.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// leave gives the place back. promised says that [lane.promise] was told so.
func (l *lane) leave(promised bool) {
	if !promised {
		l.promise()
	}
	<-l.places
}

// promise reports whether a place is wanted, and says that one will be free.
func (l *lane) promise() bool {
	for {
		n := l.wanted.Load()
		if n <= 0 {
			return false
		}
		if l.wanted.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// errGaveWay is the cause of a load that ended before its time.
var errGaveWay = errors.New("segment: the load took unusually long and gave way to those of other tags")

// drive calls load at a place in the lane, with a context that ends after
// timeout, or when the load has to give way.
func (l *lane) drive(ctx context.Context, timeout time.Duration, load func(context.Context) error) error {
	if !l.enter(ctx) {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if l.usual == nil {
		defer l.leave(false)
		return load(ctx)
	}
	start := time.Now()
	d := newDriver(l, cancel)
	err := load(ctx)
	gaveWay := d.arrive()
	defer l.leave(gaveWay)
	if err == nil || gaveWay {
		l.usual.note(time.Since(start))
	}
	if err != nil && gaveWay {
		err = fmt.Errorf("%w: %w", errGaveWay, err)
	}
	return err
}

// A driver ends a load that has to give way.
type driver struct {
	lane   *lane
	cancel context.CancelFunc

	mu      sync.Mutex
	timer   *time.Timer
	gaveWay bool
	arrived bool
}

func newDriver(l *lane, cancel context.CancelFunc) *driver {
	d := &driver{lane: l, cancel: cancel}
	patience := l.usual.patience()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(patience, func() { d.look(patience) })
	return d
}

// look gives way if the place is wanted; if not it looks again later.
func (d *driver) look(patience time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.arrived {
		return
	}
	if d.gaveWay = d.lane.promise(); d.gaveWay {
		d.cancel()
		return
	}
	d.timer.Reset(patience)
}

// arrive ends the watch, and reports whether the load gave way.
func (d *driver) arrive() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arrived = true
	d.timer.Stop()
	return d.gaveWay
}

// usual is about how long a load takes: it follows each a little, so that many
// that hang move it, but a few do not; and a store that has become slow as a
// whole is soon waited for.
type usual struct{ d atomic.Int64 }

// unusual is how many times as long as usual is much longer, and leastUsual
// below what no load counts as quick.
const (
	unusual    = 8
	leastUsual = 3 * time.Millisecond
)

// note follows a load that took, or had taken by when it gave way, so long.
func (u *usual) note(took time.Duration) {
	d := max(time.Duration(u.d.Load()), leastUsual)
	if took > d {
		d = min(took, d+d/16)
	} else {
		d = max(took, d-d/16)
	}
	u.d.Store(int64(d)) // one of two at once may be lost
}

func (u *usual) patience() time.Duration {
	return unusual * max(time.Duration(u.d.Load()), leastUsual)
}
