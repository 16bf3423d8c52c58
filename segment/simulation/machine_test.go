package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

// A machine is where lives of one worker follow one another.
type machine struct {
	world *world
	name  string
	life  *life
	lives int
	side  int // of a database that is split
}

// A life is one process of a worker.
type life struct {
	world   *world
	machine *machine
	number  int
	alloc   *segment.Allocator
	store   *kvstore.Store
	stop    context.CancelFunc
	dead    atomic.Bool // nothing that it does counts any more
	ended   chan struct{}
	duties  map[string]*duty
	wastes  map[string]*waste
	wire    *wire // nil if it passes no load on
}

// A duty is the constraint on each request for a tag that begins now.
type duty struct {
	least int64 // no ID below it
	gone  bool  // no ID
}

func (l *life) name() string { return fmt.Sprintf("%s.%d", l.machine.name, l.number) }

func (l *life) isDead() bool { return l.dead.Load() }

func (l *life) duty(tag string) *duty {
	d := l.duties[tag]
	if d == nil {
		d = new(duty)
		l.duties[tag] = d
	}
	return d
}

// start begins a life.
func (m *machine) start() {
	w := m.world
	m.lives++
	l := &life{world: w, machine: m, number: m.lives, ended: make(chan struct{}), duties: map[string]*duty{},
		wastes: map[string]*waste{}}
	m.life = l
	w.story.Lives++
	w.log("%s starts", l.name())
	l.open()
	cfg := w.conf.config
	cfg.Store = probe{l.store, l}
	passesOn := func(context.Context) {}
	if w.mayPassOn() {
		cfg.Store, passesOn = l.passOn(cfg.Store)
	}
	cfg.Granted = l.granted
	cfg.AutoCreate = func(tag string) bool { return !w.isStrict(tag) }
	cfg.OnCreate = func(tag string) {
		w.post("created "+l.name()+" "+tag, func() { w.announce(tag) })
	}
	l.alloc = segment.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	go func() {
		defer close(l.ended)
		var follower sync.WaitGroup
		follower.Go(func() { l.alloc.Follow(ctx) })
		follower.Go(func() { passesOn(ctx) })
		<-ctx.Done()
		l.alloc.Close()
		follower.Wait()
	}()
}

// open opens the store.
func (l *life) open() {
	w := l.world
	cfg := kvstore.Config{
		Bucket: "id_segments",
		Eras:   w.eras,
		WentBack: func(why string, _ int64) {
			w.post("back "+l.name(), func() { w.log("%s alarms: %s", l.name(), why) })
		},
		RowWentBack: func(tag, message string) {
			w.post("alarm "+l.name()+" "+tag, func() { w.log("%s alarms for %s: %s", l.name(), tag, message) })
		},
		Raised: l.raised,
	}
	if w.conf.kind == guardedTable {
		cfg.Table = &table{w.db, l, l.machine.side}
	}
	l.store = kvstore.New(&streams{w.js, l}, cfg)
}

// kill ends a life: from now on it issues nothing and calls nothing.
func (l *life) kill() {
	l.dead.Store(true)
	l.stop()
}

// A probe sees the calls between an allocator and its store.
type probe struct {
	segment.Store
	life *life
}

// Load implements [segment.Store].
func (p probe) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	p.begins(tag, n)
	loaded, err := p.Store.Load(from(ctx, "load "+tag), tag, n, floor)
	return p.loaded(tag, loaded, err)
}

// LoadStrict implements [segment.Store].
func (p probe) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	p.begins(tag, 0)
	loaded, err := p.Store.LoadStrict(from(ctx, "load "+tag), tag, func() int64 {
		n := join()
		p.life.world.post(p.key(tag), func() { p.life.asks(tag, n) })
		return n
	}, floor)
	return p.loaded(tag, loaded, err)
}

func (p probe) key(tag string) string { return "load " + p.life.name() + " " + tag }

func (p probe) begins(tag string, n int64) {
	p.life.world.post(p.key(tag), func() { p.life.begins(tag, n) })
}

func (p probe) loaded(tag string, loaded segment.Loaded, err error) (segment.Loaded, error) {
	p.life.world.post(p.key(tag), func() { p.life.loaded(tag, loaded.Range, err) })
	return loaded, err
}

// Create implements [segment.Store]: on first use.
func (p probe) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	return p.Store.Create(from(ctx, "load "+t.Name), t, revive)
}

// Look implements [segment.Store].
func (p probe) Look(ctx context.Context, tag string) (segment.Tag, error) {
	return p.Store.Look(from(ctx, "look "+tag), tag)
}

// Poll implements [segment.Store]. What was acknowledged before it began is a duty once it has been seen.
func (p probe) Poll(ctx context.Context, see func(segment.Listing)) error {
	l := p.life
	var began time.Duration
	key := "poll " + l.name()
	l.world.post(key, func() { began = l.world.now() })
	return p.Store.Poll(from(ctx, "poll"), func(list segment.Listing) {
		see(list)
		l.world.post(key, func() { l.polled(began) })
	})
}

// polled notes that the life has seen a listing that began at that time. It may show a tag that was written meanwhile
// as it was before.
func (l *life) polled(began time.Duration) {
	for _, name := range l.world.names {
		t, d := l.world.tags[name], l.duty(name)
		if t.written >= began {
			continue
		}
		for _, r := range t.raised {
			if r.at < began {
				d.least = max(d.least, r.least)
			}
		}
		d.gone = d.gone || t.deleted > 0 && t.deleted < began
	}
}

// A request is one request of a caller.
type request struct {
	number   int
	life     *life
	tag      *tag
	n        int64
	duty     duty
	above    int64 // all its IDs must be
	began    time.Duration
	answered bool
	served   bool
	err      error
}

// request lets callers request IDs from the worker, now and from now on.
func (m *machine) request() {
	w := m.world
	if w.quiet || w.over {
		return
	}
	if m.life != nil && !m.life.isDead() {
		burst := 1
		if w.one(8) {
			burst = 1 + w.rnd.IntN(8)
		}
		for range burst {
			w.after(0, func() { m.life.ask(pick(w.agenda, w.names...), 1+w.rnd.Int64N(w.conf.batch)) })
		}
	}
	w.after(w.chance(2*w.conf.every), m.request)
}

// ask makes one request.
func (l *life) ask(name string, n int64) *request {
	w := l.world
	w.asked++
	r := &request{number: w.asked, life: l, tag: w.tags[name], n: n, duty: *l.duty(name), began: w.now()}
	r.above = w.floor(r.tag)
	ranges, err := l.alloc.Next(name, n, nil)
	if !errors.Is(err, segment.ErrWait) {
		r.answer(ranges, err)
		return r
	}
	err = l.alloc.Park(name, n, func(ranges []segment.Range, err error) {
		at := w.now()
		w.post(fmt.Sprintf("answer %6d", r.number), func() {
			delete(w.waiting, r.number)
			if late := at - r.began - w.conf.config.Deadline; late > time.Millisecond && !l.isDead() {
				w.fail("%s answers request %d for %s %v after its deadline", l.name(), r.number, name, late)
			}
			r.answer(ranges, err)
		})
	})
	if err == nil {
		w.waiting[r.number] = r
		return r
	}
	r.answer(nil, err)
	return r
}

// answer takes in the answer to a request.
func (r *request) answer(ranges []segment.Range, err error) {
	w, l := r.life.world, r.life
	if l.isDead() {
		return
	}
	r.answered, r.err = true, err
	if err != nil {
		w.log("%s refuses %d of %s: %v", l.name(), r.n, r.tag.name, err)
		return
	}
	r.served = true
	r.judgeOrder(ranges)
	var sum int64
	for _, ids := range ranges {
		sum += ids.Len()
		w.log("%s issues %d-%d of %s", l.name(), ids.Start, ids.End-1, r.tag.name)
		w.issue(r.tag, span{ids, l.name(), w.now()})
		if ids.Start < r.duty.least {
			w.fail("%s issues %d of %s in a request that began after it had seen the least ID %d",
				l.name(), ids.Start, r.tag.name, r.duty.least)
		}
	}
	if sum != r.n {
		w.fail("%s issues %d IDs of %s, asked for %d", l.name(), sum, r.tag.name, r.n)
	}
	// A stale read may show a tag as it was before it was deleted, and a range that was reserved then is used.
	if r.duty.gone && r.tag.created <= r.began && !w.js.wasStale {
		w.fail("%s issues %v of %s in a request that began after it had seen that the tag was deleted",
			l.name(), ranges, r.tag.name)
	}
}

// issue adds issued IDs to the ledger.
func (w *world) issue(t *tag, s span) {
	w.story.IDs += uint64(s.Len())
	if clash, repeats := t.ledger.add(s); repeats {
		w.fail("tag %s: %s issues %d-%d, and %s had issued %d-%d at %v", t.name, s.by, s.Start, s.End-1,
			clash.by, clash.Start, clash.End-1, clash.at)
	}
}
