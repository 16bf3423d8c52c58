package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Lanes bound the number of loads that are under way in the store at once. A tag whose loads hang, for example
// because another session has locked its row, occupies a place for the whole timeout of a load, and then retries. So
// tags are in separate lanes by how their last loads ended: failing tags queue behind one another, never in front of
// the others.
//
// The first load of a tag that hangs is still in the sound lane, and many tags may begin to hang at once. There a
// load that takes much longer than usual is cancelled as soon as another load waits for a place: it gives way. Giving
// way once is not counted as a failure, since the load may have been slow by chance: its tag retries once in the
// sound lane, at the end of the queue. When the whole store becomes slow, the usual time adapts within some 50 loads.
type lanes struct {
	sound    lane // of tags whose last load succeeded, or gave way to others once; and of new tags
	troubled lane // of tags of which one or two loads in a row failed
	stuck    lane // of tags of which more loads in a row failed
	unlisted lane // of names that the last listing lacked: most likely these tags do not exist
	usual    usual
}

// newLanes gives all lanes together a few places less than the statements that mysqlstore sends at once to one
// database: polls and administrators need some, too.
func newLanes() *lanes {
	l := &lanes{
		sound:    lane{places: make(chan struct{}, 20)},
		troubled: lane{places: make(chan struct{}, 8)},
		stuck:    lane{places: make(chan struct{}, 4)},
		unlisted: lane{places: make(chan struct{}, 4)},
	}
	l.sound.usual = &l.usual
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
	places chan struct{}
	usual  *usual       // nil where no load gives way
	wanted atomic.Int64 // waiting loads, less the places announced by promise
}

// enter waits for a place, and reports whether it got one; if not, ctx ended.
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

// leave gives the place back. promised means that [lane.promise] has announced it.
func (l *lane) leave(promised bool) {
	if !promised {
		l.promise()
	}
	<-l.places
}

// promise reports whether a load waits for a place, and announces that one will be free.
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

// errGaveWay is the cause of a load that was ended before its timeout.
var errGaveWay = errors.New("segment: the load took unusually long and gave way to loads of other tags")

// errStoodStill is the cause of a load during much of whose time this process did not run, for example because it was
// suspended or got little CPU time: the store may have answered long before.
var errStoodStill = errors.New("segment: this process stood still while the load was under way")

// drive waits for a place in the lane and calls load, with a context that ends after timeout, or when the load must
// give way. gaveWayBefore means that the tag's previous load gave way.
func (l *lane) drive(
	ctx context.Context, gaveWayBefore bool, timeout time.Duration, load func(context.Context) error,
) error {
	if !l.enter(ctx) {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout) //mutant:load-timeout
	defer cancel()
	if l.usual == nil {
		defer l.leave(false)
		return load(ctx)
	}
	start := time.Now()
	patience := l.usual.patience()
	if gaveWayBefore {
		patience = patienceAgain
	}
	d := newDriver(l, patience, cancel)
	err := load(ctx)
	gaveWay, stood := d.arrive(time.Now())
	defer l.leave(gaveWay)
	if err == nil || gaveWay {
		l.usual.note(time.Since(start))
	}
	switch {
	case err != nil && gaveWay:
		err = fmt.Errorf("%w: %w", errGaveWay, err)
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && stood >= timeout/4:
		err = fmt.Errorf("%w: %w", errStoodStill, err)
	}
	return err
}

// A driver looks at a load at intervals. It cancels a load that takes long while another waits for its place: the load
// gives way. It also measures how long the process stood still, as the sum of the delays with which its looks began.
type driver struct {
	lane     *lane
	cancel   context.CancelFunc
	patience time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	pause   time.Duration // until the next look
	looked  time.Time
	yields  time.Time // when the load gives way, if another load waits for a place
	stood   time.Duration
	gaveWay bool
	arrived bool
}

func newDriver(l *lane, patience time.Duration, cancel context.CancelFunc) *driver {
	now := time.Now()
	d := &driver{lane: l, cancel: cancel, patience: patience, yields: now.Add(patience)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next(now)
	d.timer = time.AfterFunc(d.pause, func() { d.look(time.Now()) })
	return d
}

// lookEvery bounds the pause between two looks. In a process that gets little CPU time every look is late.
const lookEvery = unusual * leastUsual

// next begins the pause until the next look.
func (d *driver) next(now time.Time) {
	d.looked, d.pause = now, min(lookEvery, d.yields.Sub(now))
}

// note adds the delay of this look to stood.
func (d *driver) note(now time.Time) { d.stood += max(0, now.Sub(d.looked)-d.pause) }

// look cancels the load if its time is up and another load waits for a place; otherwise it schedules the next look.
func (d *driver) look(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.arrived {
		return
	}
	d.note(now)
	if !now.Before(d.yields) {
		if d.gaveWay = d.lane.promise(); d.gaveWay {
			d.cancel()
			return
		}
		d.yields = now.Add(d.patience)
	}
	d.next(now)
	d.timer.Reset(d.pause)
}

// arrive ends the looks. It reports whether the load gave way, and how long the process stood still.
func (d *driver) arrive(now time.Time) (gaveWay bool, stood time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arrived = true
	d.timer.Stop()
	d.note(now)
	return d.gaveWay, d.stood
}

// usual estimates how long a load takes. Each load moves it by at most 1/16, so a few hanging loads hardly change it,
// and many do: when the whole store has become slow, loads soon get the time that they need.
type usual struct{ d atomic.Int64 }

// A load that takes more than unusual times the usual time is too long. leastUsual is the lower bound of the usual
// time. patienceAgain is the time limit of the load after one that gave way. It does not follow the usual time, which
// hanging loads raise.
const (
	unusual       = 8
	leastUsual    = 3 * time.Millisecond
	patienceAgain = 2 * unusual * leastUsual
)

// note takes in how long a load took, until it ended or gave way.
func (u *usual) note(took time.Duration) {
	d := max(time.Duration(u.d.Load()), leastUsual)
	if took > d {
		d = min(took, d+d/16)
	} else {
		d = max(took, d-d/16)
	}
	u.d.Store(int64(d)) // if two update at once, one update may be lost
}

func (u *usual) patience() time.Duration {
	return unusual * max(time.Duration(u.d.Load()), leastUsual)
}
