package workerid_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/natsid/natsid/workerid"
)

// callTimeout is that of the keeper.
const callTimeout = time.Second

var errAway = errors.New("no connection")

// call makes a call to the registry: op runs when it arrives there, if ever.
func (l *process) call(ctx context.Context, op func()) error {
	l.step()
	w := l.world
	lost, unheard, phantom := false, false, false
	w.mu.Lock()
	short := func() time.Duration { return chance(l.rnd, 8*time.Millisecond) }
	there, back, fail := short(), short(), short()
	away := w.down || l.cut
	atOnce := away && l.rnd.IntN(2) == 0
	if !w.healthy {
		switch l.rnd.IntN(w.rare) {
		case 0:
			lost = true
		case 1, 2:
			unheard = true
		case 3:
			there = chance(l.rnd, 20*time.Second)
		case 4:
			back = chance(l.rnd, 2*time.Second)
		case 5, 6, 7:
			phantom = true
		}
	}
	w.mu.Unlock()
	if atOnce {
		time.Sleep(fail)
		l.step()
		return errAway
	}
	done := make(chan struct{})
	if !away && !lost {
		w.wg.Go(func() {
			time.Sleep(there)
			w.mu.Lock()
			heard := !w.down && !unheard && !phantom
			if !w.down {
				before := w.reg
				op()
				switch changed := w.reg.revision != before.revision; {
				case changed && !phantom:
					w.backups = append(w.backups, w.reg)
				case changed:
					// Stale reads see it, but it is rolled back. Its revision is not used
					// again: where it could be, no compare-and-set holds.
					before.revision = w.reg.revision
					w.past, w.reg = append(w.past, w.reg), before
				}
			}
			w.mu.Unlock()
			if heard {
				time.Sleep(back)
				close(done)
			}
		})
	}
	defer l.step()
	select {
	case <-done:
		w.mu.Lock()
		l.reached = time.Now()
		w.mu.Unlock()
		return nil
	case <-ctx.Done():
		time.Sleep(fail) // not in the very moment of another timer
		return ctx.Err()
	}
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
func ask[T any](l *process, ctx context.Context, read func() T) (T, error) {
	var got, none T
	if err := l.call(ctx, func() { got = read() }); err != nil {
		return none, err
	}
	return got, nil
}

// Deployment implements [workerid.Registry].
func (l *process) Deployment(ctx context.Context, d workerid.Deployment) (workerid.Deployment, error) {
	return ask(l, ctx, func() workerid.Deployment {
		if l.world.reg.deployment.ID == "" {
			l.world.change(func(r *registryState) { r.deployment = d })
		}
		return l.world.reg.deployment
	})
}

// Records implements [workerid.Registry].
func (l *process) Records(ctx context.Context) (map[int]workerid.Record, error) {
	return ask(l, ctx, func() map[int]workerid.Record { return l.read().records })
}

// Record implements [workerid.Registry].
func (l *process) Record(ctx context.Context, n int) (workerid.Record, error) {
	r, err := ask(l, ctx, func() workerid.Record { return l.read().records[n] })
	if err == nil && r.Token == "" {
		err = workerid.ErrNoRecord
	}
	return r, err
}

// Write implements [workerid.Registry].
func (l *process) Write(ctx context.Context, n int, r workerid.Record) (uint64, error) {
	revision, err := ask(l, ctx, func() uint64 {
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
func (l *process) Time(ctx context.Context) (int64, error) {
	return ask(l, ctx, l.world.time)
}

func (w *world) time() int64 { return time.Now().Add(w.slip).UnixMilli() }

// Report implements [workerid.Registry].
func (l *process) Report(ctx context.Context, n int, h workerid.Heartbeat) error {
	return l.call(ctx, func() {
		h.At = l.world.time()
		l.world.reg.heartbeats[n] = h
	})
}

// Heartbeats implements [workerid.Registry].
func (l *process) Heartbeats(ctx context.Context) (map[int]workerid.Heartbeat, error) {
	return ask(l, ctx, func() map[int]workerid.Heartbeat {
		all := maps.Clone(l.world.reg.heartbeats)
		maps.DeleteFunc(all, func(_ int, h workerid.Heartbeat) bool {
			return l.world.time()-h.At > l.world.ttl.Milliseconds()
		})
		return all
	})
}

// Leave implements [workerid.Registry].
func (l *process) Leave(ctx context.Context, n int) error {
	return l.call(ctx, func() { delete(l.world.reg.heartbeats, n) })
}

// Ask implements [workerid.Registry].
func (l *process) Ask(ctx context.Context, n int) (who workerid.Who, err error) {
	l.step()
	w := l.world
	w.mu.Lock()
	wait := chance(l.rnd, 5*time.Millisecond)
	w.mu.Unlock()
	time.Sleep(wait)
	w.mu.Lock()
	var holder *process
	for _, m := range w.machines {
		if m.life == nil || m.life.dead {
			continue
		}
		if s := m.life.keeper.Status(); s.Held && s.Number == n {
			holder = m.life
		}
	}
	mute := holder != nil && time.Now().Before(holder.stoppedTo)
	lie := !w.lossy && !w.healthy && l.rnd.IntN(3) == 0
	alone := w.lossy && time.Since(l.reached) > callTimeout // one that reaches nothing may not start either
	w.mu.Unlock()
	if alone {
		l.step()
		return workerid.Who{}, errAway
	}
	if mute && !lie {
		<-ctx.Done()
		time.Sleep(wait)
		l.step()
		return workerid.Who{}, ctx.Err()
	}
	l.step()
	if holder == nil || lie {
		return workerid.Who{}, workerid.ErrNoWorker
	}
	return workerid.Who{Instance: holder.name, Process: holder.name + fmt.Sprint(n)}, nil
}
