package workerid_test

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/natsid/natsid/workerid"
)

// lately is how long ago a worker may have reached a bucket and still counts as reaching it.
const lately = time.Second

var errAway = errors.New("no connection")

// A trip is the way of one call to the registry and back, as its faults make it.
type trip struct {
	there, back, fail time.Duration
	patience          time.Duration // until the connection is given up; long before the call is, mostly
	away, atOnce      bool          // there is no way, and that is known at once
	lost, unheard     bool          // the call, or its reply
	phantom           bool          // what it writes is rolled back
}

// plan chooses a trip to a bucket.
func (l *process) plan(b bucket) trip {
	w, r := l.world, l.rnd
	w.mu.Lock()
	defer w.mu.Unlock()
	short := func() time.Duration { return chance(r, w.slow) }
	t := trip{there: short(), back: short(), fail: short(), away: w.down[b] || l.cut}
	t.patience = time.Second + chance(r, pick(r, time.Millisecond, time.Millisecond, 10*time.Second))
	t.atOnce = t.away && r.IntN(2) == 0
	if w.healthy {
		return t
	}
	switch r.IntN(w.rare) {
	case 0:
		t.lost = true
	case 1, 2:
		t.unheard = true
	case 3:
		t.there = chance(r, 20*time.Second)
	case 4:
		t.back = chance(r, 2*time.Second)
	case 5, 6, 7:
		t.phantom = true
	}
	return t
}

// call makes a call to a bucket of the registry: op runs when it arrives there, if ever.
func (l *process) call(ctx context.Context, b bucket, op func()) error {
	l.step(l.rnd)
	t := l.plan(b)
	if t.atOnce {
		time.Sleep(t.fail)
		l.step(l.rnd)
		return errAway
	}
	done := make(chan struct{})
	if !t.away && !t.lost {
		l.world.wg.Go(func() {
			time.Sleep(t.there)
			if l.world.arrive(b, t, op) {
				time.Sleep(t.back)
				close(done)
			}
		})
	}
	defer l.step(l.rnd)
	select {
	case <-done:
		l.world.mu.Lock()
		l.reached[b] = time.Now()
		l.world.mu.Unlock()
		return nil
	case <-time.After(t.patience):
		return errAway
	case <-ctx.Done():
		time.Sleep(t.fail) // not in the very moment of another timer
		return ctx.Err()
	}
}

// arrive runs op where it arrives, and reports whether its reply is sent.
func (w *world) arrive(b bucket, t trip, op func()) (heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[b] {
		return false
	}
	before := w.reg
	op()
	switch changed := w.reg.revision != before.revision; {
	case changed && !t.phantom:
		w.backups = append(w.backups, w.reg)
	case changed:
		// Stale reads see it, but it is rolled back. Its revision is not used
		// again: where it could be, no compare-and-set holds.
		before.revision = w.reg.revision
		w.past, w.reg = append(w.past, w.reg), before
	}
	return !t.unheard && !t.phantom
}

// read returns the registry's state as one call may see it.
func (l *process) read() registryState {
	w := l.world
	if n := len(w.past); w.stale && n > 0 && l.rnd.IntN(2) == 0 {
		return w.past[max(0, n-1-l.rnd.IntN(6))]
	}
	return w.reg
}

// change changes the registry's records.
func (w *world) change(f func(r *registryState)) {
	w.past = append(w.past, w.reg)
	if len(w.past) > 40 {
		w.past = w.past[1:]
	}
	w.reg.records = maps.Clone(w.reg.records)
	w.reg.revision++
	f(&w.reg)
}

// ask makes a call that reads something. What arrives too late is discarded.
func ask[T any](l *process, ctx context.Context, b bucket, read func() T) (T, error) {
	var got, none T
	if err := l.call(ctx, b, func() { got = read() }); err != nil {
		return none, err
	}
	return got, nil
}

// Deployment implements [workerid.Registry].
func (l *process) Deployment(ctx context.Context) (workerid.Deployment, error) {
	d, err := ask(l, ctx, history, func() workerid.Deployment { return l.world.reg.deployment })
	if err == nil && d.ID == "" {
		err = workerid.ErrNoDeployment
	}
	return d, err
}

// Found implements [workerid.Registry].
func (l *process) Found(ctx context.Context, d workerid.Deployment) error {
	landed, err := ask(l, ctx, history, func() bool {
		if l.world.reg.deployment.ID != "" {
			return false
		}
		if l.program != "" {
			l.world.fail("%s, a program, founds a deployment", l.name)
		}
		l.world.change(func(r *registryState) { r.deployment = d })
		return true
	})
	if err == nil && !landed {
		err = workerid.ErrConflict
	}
	return err
}

// Records implements [workerid.Registry].
func (l *process) Records(ctx context.Context) (map[int]workerid.Record, error) {
	return ask(l, ctx, history, func() map[int]workerid.Record { return l.read().records })
}

// Record implements [workerid.Registry].
func (l *process) Record(ctx context.Context, n int) (workerid.Record, error) {
	r, err := ask(l, ctx, history, func() workerid.Record { return l.read().records[n] })
	if err == nil && r.Token == "" {
		err = workerid.ErrNoRecord
	}
	return r, err
}

// Write implements [workerid.Registry].
func (l *process) Write(ctx context.Context, n int, r workerid.Record) (uint64, error) {
	revision, err := ask(l, ctx, history, func() uint64 {
		if l.world.reg.records[n].Revision != r.Revision {
			return 0
		}
		l.world.change(func(s *registryState) {
			r.Revision = s.revision
			s.records[n] = r
		})
		l.world.log("%s writes record %d: until %d, revision %d", r.Instance, n, l.world.rel(r.Until), r.Revision)
		return r.Revision
	})
	if err == nil && revision == 0 {
		err = workerid.ErrConflict
	}
	return revision, err
}

// Time implements [workerid.Registry].
func (l *process) Time(ctx context.Context) (ms int64, err error) {
	for _, of := range []bucket{workers, history} {
		limited, cancel := context.WithTimeout(ctx, 1200*time.Millisecond)
		ms, err = ask(l, limited, of, l.world.time)
		if cancel(); err == nil {
			break
		}
	}
	return ms, err
}

func (w *world) time() int64 { return time.Now().Add(w.slip).UnixMilli() }

// Report implements [workerid.Registry].
func (l *process) Report(ctx context.Context, n int, h workerid.Heartbeat) error {
	return l.call(ctx, workers, func() {
		h.At = l.world.time()
		l.world.reg.heartbeats[n] = h
	})
}

// Heartbeats implements [workerid.Registry].
func (l *process) Heartbeats(ctx context.Context) (map[int]workerid.Heartbeat, error) {
	return ask(l, ctx, workers, func() map[int]workerid.Heartbeat {
		all := maps.Clone(l.world.reg.heartbeats)
		maps.DeleteFunc(all, func(_ int, h workerid.Heartbeat) bool {
			return l.world.time()-h.At > l.world.ttl.Milliseconds()
		})
		return all
	})
}

// Leave implements [workerid.Registry].
func (l *process) Leave(ctx context.Context, n int) error {
	return l.call(ctx, workers, func() { delete(l.world.reg.heartbeats, n) })
}

// Ask implements [workerid.Registry].
func (l *process) Ask(ctx context.Context, n int) (who workerid.Who, err error) {
	l.step(l.rnd)
	w := l.world
	w.mu.Lock()
	wait := chance(l.rnd, min(w.slow, 5*time.Millisecond))
	w.mu.Unlock()
	time.Sleep(wait)
	w.mu.Lock()
	holder := w.holder(n)
	lie := !w.lossy && !w.healthy && l.rnd.IntN(3) == 0
	mute := holder != nil && time.Now().Before(holder.stoppedTo) && !lie
	alone, overheard := w.lossy && l.alone(), w.bystander
	if holder != nil {
		who = holder.keeper.Who()
	}
	w.mu.Unlock()
	none := holder == nil || lie
	switch {
	case alone:
		err = errAway
	case mute, none && overheard:
		<-ctx.Done()
		time.Sleep(wait)
		if err = ctx.Err(); overheard && errors.Is(err, context.DeadlineExceeded) {
			err = workerid.ErrBystander
		}
	case none:
		err = workerid.ErrNoWorker
	}
	l.step(l.rnd)
	if err != nil {
		return workerid.Who{}, err
	}
	return who, nil
}

// holder returns the process that answers for number n; nil if none does.
func (w *world) holder(n int) *process {
	for _, m := range w.machines {
		l := m.life
		if l == nil || l.dead || time.Now().Before(l.answers) {
			continue
		}
		if s := l.keeper.Status(); s.Held && s.Number == n {
			return l
		}
	}
	return nil
}

// alone reports whether the process does not reach all of the registry: where
// that may lose its state, such a worker may not start.
func (l *process) alone() bool {
	for _, at := range l.reached {
		if time.Since(at) > lately {
			return true
		}
	}
	return false
}
