package fleetview

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// Maximum ages of answers: see Fresh and Stale of [Shared].
const (
	fresh = 1900 * time.Millisecond
	stale = 10 * time.Second
	// freshHour replaces fresh for the figures of the last hour, which change less often.
	freshHour = 9 * time.Second
)

// goneFor is how long after its last report a worker that did not stop cleanly is shown. It is dropped earlier if its
// number becomes free.
const goneFor = time.Hour

// nearEnd is how long the window of a worker number, in which it may be used, may still seem to last after its worker
// has stopped cleanly, since clocks differ.
const nearEnd = 5 * time.Second

// missing is how long a worker that no longer answers is shown, unless JetStream shows that it has stopped.
const missing = 30 * time.Second

// maxQuestions bounds the questions, such as those about single tags, whose answers are kept. maxAsking bounds the
// questions under way at once.
const (
	maxQuestions = 64
	maxAsking    = 4
)

// A Registry has the worker numbers that a [Fleet] reads.
type Registry interface {
	Records(context.Context) (map[int]workerid.Record, error)
	Heartbeats(context.Context) (map[int]workerid.Heartbeat, error)
}

// Config is the connections of a [Fleet]. All fields must be set but Self.
type Config struct {
	Conn      *nats.Conn // must not be the connection on which requests arrive
	Namespace subjects.Namespace
	Registry  Registry
	Patience  time.Duration // how long a question waits for answers
	Quiet     time.Duration // how much longer it waits for unknown workers after all known ones have answered
	Now       func() time.Time
	// Self returns the state of the worker in this process, also while NATS is out of reach; nil if this process is no
	// worker.
	Self func(wire.ViewRequest) wire.WorkerView
}

// A Fleet has the last answers of all workers. It asks them only when [Fleet.Look] is called. It is safe for concurrent
// use.
type Fleet struct {
	cfg Config

	asking  chan struct{} // has a value for each question under way
	mu      sync.Mutex
	answers map[wire.ViewRequest]*Shared[Snapshot]
	met     map[string]Worker // by name: the last answer of each worker
	last    Snapshot
}

// A Snapshot is the fleet at one moment.
type Snapshot struct {
	At      time.Time
	Workers []Worker // by name
	Numbers Numbers
	Alone   bool // no other worker answered, although some should have
}

// Answered returns how many workers have answered.
func (s Snapshot) Answered() int { return len(s.Statistics()) }

// A Worker is the state of one worker. If the worker does not answer, it is that of its last answer; if it never
// answered, only the name is set.
type Worker struct {
	wire.WorkerView
	Answered bool
	Seen     time.Time       // when it last answered; zero means never
	Gone     time.Time       // when its number is free again, if it did not stop cleanly; else zero
	Rates    map[string]Rate // by mode, over the last seconds; nil before there are any
}

// Name returns the worker's name.
func (w Worker) Name() string { return w.Statistics.Instance }

// A Rate is the rates of a worker, per second.
type Rate struct{ Requests, IDs float64 }

// Numbers are the worker numbers as read from the registry.
type Numbers struct {
	Records    map[int]workerid.Record    // of workers
	Heartbeats map[int]workerid.Heartbeat // of workers
	Programs   []Program                  // sorted by number
	Trouble    error                      // why the registry could not be read; the numbers are those read before
}

// A Program draws its own snowflakes, and answers no questions of this package.
type Program struct {
	Number     int
	Name, Host string
	Until      time.Time // the end of its window
}

// separate moves the numbers of programs into Programs. It drops those of programs without a heartbeat.
func (n *Numbers) separate() {
	for w, r := range n.Records {
		if r.Program == "" {
			continue
		}
		if _, live := n.Heartbeats[w]; live {
			n.Programs = append(n.Programs, Program{w, r.Instance, r.Program, time.UnixMilli(r.Until).UTC()})
		}
		delete(n.Heartbeats, w)
		delete(n.Records, w)
	}
	slices.SortFunc(n.Programs, func(a, b Program) int { return a.Number - b.Number })
}

// New returns a fleet that has asked no worker yet.
func New(cfg Config) *Fleet {
	return &Fleet{
		cfg: cfg, asking: make(chan struct{}, maxAsking),
		answers: make(map[wire.ViewRequest]*Shared[Snapshot]), met: make(map[string]Worker),
	}
}

// Look returns the recent answers of the workers to a question, and asks again if they are too old.
func (f *Fleet) Look(ctx context.Context, q wire.ViewRequest) (Snapshot, error) {
	f.mu.Lock()
	a := f.answers[q]
	if a == nil {
		if len(f.answers) >= maxQuestions {
			clear(f.answers)
		}
		read := func() (Snapshot, error) { return f.ask(q), nil }
		a = &Shared[Snapshot]{Now: f.cfg.Now, Read: read, Fresh: fresh, Stale: stale}
		if q.Hour {
			a.Fresh = freshHour
		}
		f.answers[q] = a
	}
	f.mu.Unlock()
	s, _, err := a.Get(ctx)
	return s, err
}

// ask asks all workers, and returns their answers.
func (f *Fleet) ask(q wire.ViewRequest) Snapshot {
	f.asking <- struct{}{}
	defer func() { <-f.asking }()
	ctx, cancel := context.WithTimeout(context.Background(), f.cfg.Patience)
	defer cancel()
	expected, last := f.expected()
	half, end := context.WithTimeout(ctx, f.cfg.Patience/2) // the other half is for the answers of workers
	defer end()
	n := f.numbers(half, last)
	if len(expected) == 0 { // no question was asked before
		for _, h := range n.Heartbeats {
			expected[h.Instance] = true
		}
	}
	heard := make(map[string]wire.WorkerView)
	enough, stop := context.WithCancel(ctx)
	defer stop()
	hear := func(v wire.WorkerView) {
		heard[v.Statistics.Instance] = v
		if delete(expected, v.Statistics.Instance); len(expected) == 0 {
			time.AfterFunc(f.cfg.Quiet, stop)
		}
	}
	self := ""
	if f.cfg.Self != nil {
		v := f.cfg.Self(q)
		self = v.Statistics.Instance
		hear(v)
	}
	body, err := json.Marshal(q)
	if err != nil {
		panic(err) // cannot be: texts and flags
	}
	// Without a connection or a worker there are no answers; the snapshot shows that.
	_ = natsbus.Gather(enough, f.cfg.Conn, wire.View(f.cfg.Namespace), body, func(m *nats.Msg) (last bool) {
		var v wire.WorkerView
		if json.Unmarshal(m.Data, &v) == nil && v.Statistics.Instance != "" {
			hear(v)
		}
		return false
	})
	return f.keep(self, heard, n)
}

// expected returns the names of the workers that answered last time, and the numbers read then, unless they are stale.
func (f *Fleet) expected() (names map[string]bool, last Numbers) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names = make(map[string]bool)
	for name, w := range f.met {
		if w.Answered {
			names[name] = true
		}
	}
	if f.cfg.Now().Sub(f.last.At) > stale {
		return names, last
	}
	return names, f.last.Numbers
}

// numbers reads the worker numbers. If that fails it returns the last ones, with the error.
func (f *Fleet) numbers(ctx context.Context, last Numbers) (n Numbers) {
	if n.Heartbeats, n.Trouble = f.cfg.Registry.Heartbeats(ctx); n.Trouble == nil {
		n.Records, n.Trouble = f.cfg.Registry.Records(ctx)
	}
	if n.Trouble != nil {
		return Numbers{last.Records, last.Heartbeats, last.Programs, n.Trouble}
	}
	n.separate()
	return n
}

// keep returns the answers as a snapshot. self is the name of this worker, "" if this process is none.
func (f *Fleet) keep(self string, heard map[string]wire.WorkerView, n Numbers) Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.cfg.Now()
	_, here := heard[self]
	others := len(heard) > 1 || len(heard) == 1 && !here
	f.meet(heard, n, now, !others && n.Trouble != nil)
	s := Snapshot{At: now, Numbers: n}
	for name, w := range f.met {
		s.Alone = s.Alone || name != self && !others
		if v, ok := heard[name]; ok {
			w.WorkerView = v // includes the requested parts
		}
		s.Workers = append(s.Workers, w)
	}
	slices.SortFunc(s.Workers, func(x, y Worker) int { return strings.Compare(x.Name(), y.Name()) })
	f.last = s
	return s
}

// meet updates the known workers from those that answered and those that should have. A process that is cut off cannot
// know which workers have begun or stopped: it adds and drops none.
func (f *Fleet) meet(heard map[string]wire.WorkerView, n Numbers, now time.Time, isCutOff bool) {
	should := n.workers(now)
	for name, w := range f.met {
		_, isThere := should[name]
		if _, w.Answered = heard[name]; !isCutOff {
			w.Gone = should[name].Gone
		}
		f.met[name] = w
		stopped := n.Trouble == nil && w.Statistics.Number != nil || now.Sub(w.Seen) > missing
		if stopped && !isThere && !w.Answered && !isCutOff {
			delete(f.met, name)
		}
	}
	for name, w := range should {
		if _, known := f.met[name]; !known && !isCutOff {
			f.met[name] = w
		}
	}
	for name, v := range heard {
		f.met[name] = f.met[name].answered(v, now)
	}
}

// workers returns the workers that have a heartbeat, and those that did not stop cleanly, by name.
func (n Numbers) workers(now time.Time) map[string]Worker {
	all := make(map[string]Worker)
	for number, h := range n.Heartbeats {
		var w Worker
		w.Statistics.Instance, w.Statistics.Number = h.Instance, &number
		all[h.Instance] = w
	}
	for number, r := range n.Records {
		w := Worker{Seen: time.UnixMilli(r.Reported).UTC(), Gone: time.UnixMilli(r.Until).UTC()}
		w.Statistics.Instance, w.Statistics.Number, w.Until = r.Instance, &number, w.Gone
		other, known := all[r.Instance]
		isLive := known && other.Gone.IsZero()
		if !isLive && w.Gone.Sub(now) > nearEnd && now.Sub(w.Seen) < goneFor && w.Gone.After(other.Gone) {
			all[r.Instance] = w
		}
	}
	delete(all, "")
	return all
}

// answered returns w updated with an answer that came now.
func (w Worker) answered(v wire.WorkerView, now time.Time) Worker {
	v.Tag, v.Hour, v.Statistics.Busiest, v.Stages = nil, nil, nil, nil // these belong to one question
	passed := now.Sub(w.Seen).Seconds()
	if w.Seen.IsZero() || !v.Started.Equal(w.Started) {
		return Worker{WorkerView: v, Answered: true, Seen: now}
	}
	if passed < 1 {
		w.Answered = true // rates over less than a second say little
		return w
	}
	rates := make(map[string]Rate)
	for mode, m := range v.Modes {
		before := w.Modes[mode]
		rates[mode] = Rate{float64(m.Requests-before.Requests) / passed, float64(m.IDs-before.IDs) / passed}
	}
	return Worker{WorkerView: v, Answered: true, Seen: now, Rates: rates}
}
