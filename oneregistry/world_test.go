package oneregistry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A world is registries, workers on them, and the links between their sites. It is played in virtual time.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	cut     map[[2]string]bool // sites that do not reach each other
	workers []*workerSim
	mute    bool // calls and questions pass no link
	sent    int  // announcements, each counted once
	blind   int  // those of them that name no worker
	carried int  // messages that reached someone
	given   map[string]map[int64]time.Time
	repeats int
	last    time.Time // of the last repeat
	rand    *rand.Rand
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, cut: map[[2]string]bool{}, given: map[string]map[int64]time.Time{}, rand: rand.New(rand.NewPCG(1, 2)),
	}
}

func (w *world) link(a, b string, up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[[2]string{a, b}], w.cut[[2]string{b, a}] = !up, !up
}

func (w *world) reach(from, to *workerSim) bool {
	return !w.cut[[2]string{from.site, to.site}] && !from.deaf && !to.deaf
}

// A registrySim is one registry.
type registrySim struct {
	mu      sync.Mutex
	facts   Facts
	counted int // how often its live workers were listed
	away    bool
	damaged string // a tag that cannot be raised
	mute    bool   // takes no verdict
	marks   map[string]*tagSim
	writes  uint64
	decided []Verdict
}

// do lets a story change what workers use.
func (r *registrySim) do(f func()) { r.mu.Lock(); defer r.mu.Unlock(); f() }

func (w *world) do(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

func (r *registrySim) high(tag string) (n int64) {
	r.do(func() { n = r.marks[tag].high })
	return n
}

type tagSim struct {
	high, least int64
	disabled    bool
}

var errAway = errors.New("JetStream is away")

func newRegistry(id string, made time.Time, marks map[string]int64) *registrySim {
	r := &registrySim{marks: map[string]*tagSim{}}
	r.facts = Facts{Segments: "S" + id, Numbers: "N" + id, Made: made}
	for tag, high := range marks {
		r.marks[tag] = &tagSim{high: high}
	}
	return r
}

// A workerSim is a worker: its watch, and an allocator that loads 10 IDs at once.
type workerSim struct {
	world  *world
	name   string
	site   string
	dir    string
	pin    string
	layout string
	reg    *registrySim
	deaf   bool // subscribes, and answers nothing
	joined string

	watch   *Watch
	stop    func()
	mu      sync.Mutex
	refused Refused
	alarms  []string
	memory  map[string][2]int64 // next and end
	floors  map[string]int64
}

func (w *world) add(name, site string, r *registrySim) *workerSim {
	s := &workerSim{world: w, name: name, site: site, reg: r, layout: "41+10+12"}
	w.mu.Lock()
	w.workers = append(w.workers, s)
	w.mu.Unlock()
	return s
}

// start begins a life. It returns what Start returned.
func (s *workerSim) start() error {
	synctest.Wait()
	s.memory, s.floors, s.joined, s.alarms = map[string][2]int64{}, map[string]int64{}, "", nil
	s.watch = New(Config{
		Home: s, Bus: busSim{s}, Process: fmt.Sprintf("%s-%d", s.name, s.world.rand.Uint64()),
		Layout: s.layout, Unit: 1,
		Instance: func() string { return s.name }, Pin: s.pin, StateDir: s.dir,
		Refuse: func(r Refused) { s.mu.Lock(); s.refused = r; s.mu.Unlock() },
		Alarm:  func(_, m string) { s.mu.Lock(); s.alarms = append(s.alarms, m); s.mu.Unlock() },
		Jitter: func(d time.Duration) time.Duration {
			s.world.mu.Lock()
			defer s.world.mu.Unlock()
			return time.Duration(s.world.rand.Int64N(int64(d)))
		},
	})
	ctx, cancel := context.WithCancel(s.world.t.Context())
	if err := s.watch.Start(ctx); err != nil {
		cancel()
		s.joined = ""
		return err
	}
	var done sync.WaitGroup
	s.reg.mu.Lock()
	number := len(s.reg.facts.Live) + 1
	s.reg.facts.Live = append(slices.Clone(s.reg.facts.Live), number)
	s.reg.mu.Unlock()
	done.Go(func() { s.watch.Run(ctx) })
	done.Go(func() { s.serve(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
		s.world.mu.Lock()
		s.joined = ""
		s.world.mu.Unlock()
		s.reg.mu.Lock()
		s.reg.facts.Live = slices.DeleteFunc(slices.Clone(s.reg.facts.Live), func(n int) bool { return n == number })
		s.reg.mu.Unlock()
	})
	return nil
}

// serve issues an ID of each tag every 10 ms.
func (s *workerSim) serve(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.issue("order")
		case <-ctx.Done():
			return
		}
	}
}

func (s *workerSim) issue(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memory[tag]
	if s.refused.Segments != nil {
		return
	}
	if m[0] >= m[1] {
		if m = s.reg.load(tag, s.floors[tag]); m[0] >= m[1] {
			return
		}
		s.floors[tag] = m[1]
	}
	s.world.give(tag, m[0])
	m[0]++
	s.memory[tag] = m
}

func (r *registrySim) load(tag string, floor int64) [2]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.marks[tag]
	if r.away || t == nil || t.disabled {
		return [2]int64{}
	}
	from := max(t.high, floor)
	t.high = from + 10
	return [2]int64{from, t.high}
}

func (w *world) give(tag string, id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given[tag] == nil {
		w.given[tag] = map[int64]time.Time{}
	}
	if _, twice := w.given[tag][id]; twice {
		w.repeats++
		w.last = time.Now()
	}
	w.given[tag][id] = time.Now()
}

// Read implements [Home], as do those that follow.
func (s *workerSim) Read(_ context.Context, count bool) (Facts, error) {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	if s.reg.away {
		return Facts{}, errAway
	}
	f := s.reg.facts
	if !count {
		f.Live = nil
	} else {
		s.reg.counted++
	}
	return f, nil
}

func (s *workerSim) Decide(_ context.Context, v Verdict) error {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	if s.reg.away || s.reg.mute {
		return errAway
	}
	if v.Revision != s.reg.facts.Verdict.Revision {
		return ErrConflict
	}
	s.reg.writes++
	v.Revision = s.reg.writes
	s.reg.facts.Verdict = v
	s.reg.decided = append(s.reg.decided, v)
	return nil
}

func (s *workerSim) Marks(_ context.Context, after string, limit int) (all []Mark, err error) {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	if s.reg.away {
		return nil, errAway
	}
	for _, tag := range slices.Sorted(maps.Keys(s.reg.marks)) {
		if tag > after && len(all) < limit {
			t := s.reg.marks[tag]
			all = append(all, Mark{Tag: tag, High: max(t.high, s.floors[tag]), Step: 10, Disabled: t.disabled})
		}
	}
	return all, nil
}

func (s *workerSim) Lift(_ context.Context, marks []Mark) (spans []Span, failed map[string]string) {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	failed = map[string]string{}
	for _, m := range marks {
		if s.reg.away || m.Tag == s.reg.damaged {
			failed[m.Tag] = "it cannot be raised"
			continue
		}
		t := s.reg.marks[m.Tag]
		if t == nil {
			t = &tagSim{high: 1}
			s.reg.marks[m.Tag] = t
		}
		if end := min(t.high, m.High); end > 1 {
			spans = append(spans, Span{m.Tag, 1, end})
		}
		t.high, t.least = max(t.high, m.High), max(t.least, m.High)
	}
	return spans, failed
}

func (s *workerSim) Renew(context.Context) error {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	if s.reg.away {
		return errAway
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag, m := range s.memory {
		if t := s.reg.marks[tag]; t != nil {
			m[0] = max(m[0], t.least)
			s.memory[tag] = m
		}
	}
	return nil
}

// A busSim is the bus of one worker, or of an operator beside it.
type busSim struct{ self *workerSim }

func (b busSim) Announce(notice []byte) error {
	w := b.self.world
	w.mu.Lock()
	w.sent++
	if n, err := parseNotice(notice); err == nil && n.Workers == 0 {
		w.blind++
	}
	var all []*workerSim
	for _, o := range w.workers {
		if o.joined != "" && w.reach(b.self, o) {
			all = append(all, o)
			w.carried++
		}
	}
	w.mu.Unlock()
	for _, o := range all {
		o.watch.Hear(notice)
	}
	return nil
}

// members returns those that listen for a registry, all for "".
func (b busSim) members() map[string][]*workerSim {
	w := b.self.world
	w.mu.Lock()
	defer w.mu.Unlock()
	groups := map[string][]*workerSim{}
	for _, o := range w.workers {
		if o.joined != "" && !w.cut[[2]string{b.self.site, o.site}] && (!w.mute || b.self.site == o.site) {
			groups[o.joined] = append(groups[o.joined], o)
		}
	}
	return groups
}

func (b busSim) pick(all []*workerSim) *workerSim {
	b.self.world.mu.Lock()
	defer b.self.world.mu.Unlock()
	return all[b.self.world.rand.IntN(len(all))]
}

func (b busSim) Ask(ctx context.Context, question []byte, answer func([]byte) bool) error {
	silent := false
	groups := b.members()
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		o := b.pick(groups[id])
		if o.deaf {
			silent = true
			continue
		}
		if reply := o.watch.Answer(ctx, question); reply != nil && !answer(reply) {
			return nil
		}
	}
	if silent || len(groups) > 0 {
		<-ctx.Done()
	}
	return nil
}

func (b busSim) Call(ctx context.Context, registry string, call []byte) ([]byte, error) {
	all := b.members()[registry]
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(all) == 0 {
		return nil, ErrNoWorker
	}
	o := b.pick(all)
	if o.deaf {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return o.watch.Answer(ctx, call), nil
}

func (b busSim) Join(registry string) error {
	b.self.world.mu.Lock()
	defer b.self.world.mu.Unlock()
	b.self.joined = registry
	return nil
}

func (s *workerSim) why() Refused {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func (s *workerSim) alarmed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.alarms)
}
