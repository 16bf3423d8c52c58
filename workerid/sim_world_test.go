package workerid_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/testkit/schedules"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

// A world is a registry, the machines that workers run on, and the faults of both.
type world struct {
	story *schedules.Story
	rnd   *rand.Rand
	begin time.Time
	conf  workerid.Config // of all workers, but for the layout of some

	// lossy worlds lose the registry's state, but their clocks are right within half the skew, and workers reach one
	// another and the registry: the promise holds within these bounds only. In all others clocks do as they like, and
	// the question who has a number may get a wrong answer.
	lossy bool
	// mixed worlds have programs beside workers, each with its own half of the numbers of a site.
	mixed   bool
	layouts []snowflake.Layout // the second is that of workers which should not be there
	span    time.Duration      // how long faults are injected
	rare    int                // of how many calls about one fails in each way
	ttl     time.Duration      // of heartbeats
	pace    time.Duration      // of faults
	slow    time.Duration      // the longest way to the registry, of most calls

	mu         sync.Mutex
	breach     error // the first one
	reg        registryState
	past       []registryState // for stale reads, the newest last
	backups    []registryState
	aside      registryState // that was swapped for reg, if any
	down       [buckets]bool // the bucket is out of reach
	stale      bool          // reads may be old
	bystander  bool          // somebody hears all questions for holders, and is silent
	slip       time.Duration // of the registry's own clock
	healthy    bool          // no fault is injected
	closing    bool          // no life is started any more
	machines   []*machine
	generators map[kind][]*held
	kinds      []kind // its keys, in the order of their first use
	issued     map[position]*cell
	raw        map[int64]uint64 // all IDs, where layouts differ: ID / 64 and its low bits
	wg         sync.WaitGroup
}

// registryState is the content of the registry. Each change makes a new one.
type registryState struct {
	deployment workerid.Deployment
	records    map[int]workerid.Record
	heartbeats map[int]workerid.Heartbeat
	revision   uint64
}

// A bucket is a part of the registry that is reachable by itself.
type bucket int

const (
	history bucket = iota // records and deployment
	workers               // heartbeats, and the registry's time
	buckets
)

// A kind of generator: no two of a kind may hold the same tick.
type kind struct {
	layout, number int
}

type position struct {
	kind
	tick int64
}

// A cell is the generator that issued in one tick of a number, and its sequences.
type cell struct {
	by        *held
	sequences uint64
}

// held is one generator and the life that holds it.
type held struct {
	*snowflake.Generator
	life    *process
	crashed bool // while it was open
	issued  bool // anything at all
}

// end returns a time at or after which no tick of it ever begins.
func (h *held) end() int64 {
	if !h.crashed && h.closed() {
		return min(h.Close(), h.Until()) // the end of a last tick may lie beyond
	}
	return h.Until()
}

func (h *held) closed() bool { return errors.Is(h.CheckAt(h.From()), snowflake.ErrClosed) }

func newWorld(seed uint64, s *schedules.Story) *world {
	r := rand.New(rand.NewPCG(seed, 4))
	w := &world{
		story: s, rnd: r, begin: time.Now(),
		generators: make(map[kind][]*held), issued: make(map[position]*cell), raw: make(map[int64]uint64),
		lossy: r.IntN(3) == 0, rare: pick(r, 12, 40, 120), ttl: pick(r, time.Second, 20*time.Second),
		slow: pick(r, time.Millisecond, 8*time.Millisecond, 8*time.Millisecond),
		pace: 6 * time.Second, span: time.Duration(20+r.IntN(100)) * time.Second,
		reg: registryState{
			records: map[int]workerid.Record{}, heartbeats: map[int]workerid.Heartbeat{}, revision: uint64(r.IntN(10)),
		},
	}
	if w.lossy {
		w.rare = max(w.rare, 40)
	}
	w.conf = workerid.Config{
		Horizon:      time.Duration(pick(r, 1, 4, 20)*(1000+r.IntN(3000))) * time.Millisecond,
		MaxClockSkew: time.Duration(pick(r, 1, 1, 8)*(100+r.IntN(1500))) * time.Millisecond,
		MaxAhead:     time.Duration(r.IntN(20)) * time.Millisecond,
	}
	w.settle(w.fleet())
	for i, l := range w.layouts {
		w.log("layout %d: %s, ticks of %d ms, epoch at %d, ends at %d",
			i, l, l.Unit, w.rel(l.Epoch), w.rel(l.Ends().UnixMilli()))
	}
	w.log("lossy %t, span %v, rare %d, slow %v", w.lossy, w.span, w.rare, w.slow)
	w.log("horizon %v skew %v ahead %v", w.conf.Horizon, w.conf.MaxClockSkew, w.conf.MaxAhead)
	w.mixed = len(w.machines) > 1 && len(w.layouts) == 1 && rand.New(rand.NewPCG(seed, 6)).IntN(3) == 0
	for i := range w.machines {
		w.machines[i] = w.newMachine(seed, i)
	}
	return w
}

func (w *world) newMachine(seed uint64, i int) *machine {
	m := &machine{
		world: w, name: fmt.Sprintf("m%d", i), rnd: rand.New(rand.NewPCG(seed, uint64(100+i))),
		bare: w.one(5), driftT: w.begin, site: i % w.layouts[0].Sites(), layout: w.rnd.IntN(len(w.layouts)),
	}
	if w.mixed && i/w.layouts[0].Sites()%2 == 1 {
		m.program = m.name
	}
	m.slip = w.skewed()
	return m
}

// fleet chooses how many machines there are and how long their numbers are, in bits.
func (w *world) fleet() (bits int) {
	r := w.rnd
	switch {
	case w.one(4): // more workers than numbers, and each soon changes hands
		w.machines = make([]*machine, 4)
		w.ttl, w.pace, w.stale = time.Second, 2*time.Second, w.one(2)
		w.conf.Horizon = time.Duration(1000+r.IntN(3000)) * time.Millisecond
		w.conf.MaxClockSkew = time.Duration(100+r.IntN(12_000)) * time.Millisecond
		return 1
	case w.one(10):
		w.machines = make([]*machine, 5+r.IntN(8))
		return 2 + r.IntN(3)
	default:
		w.machines = make([]*machine, 1+r.IntN(4))
		return 1 + r.IntN(3)
	}
}

// settle chooses the layout, for worker numbers of that many bits, and the settings that depend
// on the length of its ticks.
func (w *world) settle(numbers int) {
	r := w.rnd
	l := snowflake.Layout{
		Time: 41, Worker: numbers, Business: r.IntN(2), Sequence: 2 + r.IntN(4),
		Unit:  pick(r, 1, 1, 1, 1, 10, 10, 1000, 1000, 10_000, int64(60_000)),
		Epoch: w.begin.UnixMilli() - 86_400_000 - r.Int64N(5000),
	}
	if numbers > 1 && w.one(3) {
		l.Site = 1 + r.IntN(numbers-1)
		l.Worker -= l.Site
	}
	if tick := time.Duration(l.Unit) * time.Millisecond; tick > time.Second {
		w.span += 3 * tick
		w.pace = max(w.pace, tick/3)
		w.conf.Horizon = max(w.conf.Horizon, 4*tick)
	}
	soon := r.Int64N(2 * w.span.Milliseconds())
	switch {
	case w.one(15): // the time field ends
		l.Time = 22
		l.Epoch = w.begin.UnixMilli() + soon - l.Unit<<l.Time
	case w.one(15): // it has not begun
		l.Epoch = w.begin.UnixMilli() + soon
	}
	w.conf.Layout, w.layouts = l, []snowflake.Layout{l}
	if w.one(8) {
		w.layouts = append(w.layouts, w.other(l))
	}
}

// other returns a layout whose IDs are those of l at about the same time, but of other workers, ticks or sequences.
func (w *world) other(l snowflake.Layout) snowflake.Layout {
	switch w.rnd.IntN(4) {
	case 0:
		l.Worker, l.Sequence = l.Worker+1, l.Sequence-1
	case 1:
		l.Business, l.Sequence = l.Business+1, l.Sequence-1
	case 2:
		l.Epoch += pick(w.rnd, -1, int64(1)) * l.Unit
	case 3:
		l.Site, l.Business, l.Sequence = l.Site+1, l.Business+1, l.Sequence-2
	}
	if l.Validate() != nil {
		return w.other(w.layouts[0])
	}
	return l
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// skewed returns an error that clocks within the skew may have.
func (w *world) skewed() time.Duration {
	half := int64(w.conf.MaxClockSkew / 2)
	return time.Duration(w.rnd.Int64N(half) - half/2)
}

// rel shows a time as ms since the begin.
func (w *world) rel(ms int64) int64 { return ms - w.begin.UnixMilli() }
