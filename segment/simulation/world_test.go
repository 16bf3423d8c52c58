package simulation_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/testkit/schedules"
	"github.com/natsid/natsid/segment"
)

// A world is the stores, the machines that workers run on, and the faults of both.
type world struct {
	*agenda
	conf     conf
	js       *jetStream
	db       *database
	machines []*machine
	tags     map[string]*tag
	names    []string // of the tags, in order
	changes  []*change

	span     time.Duration                // how long faults are injected
	rare     int                          // of how many calls about one fails in each way
	pace     time.Duration                // of faults
	identity atomic.Pointer[era.Identity] // of the bucket; nil until it has one
	owed     int64                        // the highest mark that was lost since the last resume
	seed     uint64
	ordering *ordering // nil without strict tags
	healthy  bool      // no fault is injected
	quiet    bool      // nothing is asked or changed any more, unless to see whether all is well
	over     bool      // nothing begins any more
	acting   *call     // that arrives now
	waiting  map[int]*request
	asked    int
	reports  reports
	breach   error // the first one
}

// A conf is the configuration of a world.
type conf struct {
	kind   kind
	config segment.Config // of each allocator
	limit  int64          // of max_id
	leaf   bool           // Leaf nodes load from the table
	back   bool           // the table loses commits; then Leaf may repeat what it lost
	loss   loss
	batch  int64         // requests ask for up to so many IDs
	every  time.Duration // time between requests to one worker
}

// A kind is which stores there are.
type kind int

const (
	marksAlone kind = iota
	guardedTable
)

func (k kind) String() string { return [...]string{"marks", "guarded table"}[k] }

// A loss is the fate of the marks that JetStream acknowledged.
type loss int

const (
	kept    loss = iota
	wiped        // the bucket is made again, empty, while workers run
	setBack      // the bucket is restored from an earlier state, while one worker runs, which does not end
)

func (l loss) String() string { return [...]string{"kept", "wiped", "set back"}[l] }

// A tag is the world's knowledge of a tag.
type tag struct {
	name    string
	ledger  ledger
	top     int64   // the highest end that was ever loaded
	highest int64   // ID that was issued in an answer
	raised  []raise // acknowledged
	// Deleted is when a deletion was last acknowledged; zero if the tag was created since, or may have been.
	deleted time.Duration
	created time.Duration // when a creation was last begun
	written time.Duration // when its entry was
}

// A raise is a least ID that was acknowledged.
type raise struct {
	least int64
	at    time.Duration
}

func newWorld(seed uint64, s *schedules.Story) *world {
	w := &world{agenda: newAgenda(seed, s), seed: seed, tags: map[string]*tag{}, waiting: map[int]*request{}}
	w.rare = pick(w.agenda, 12, 40, 120)
	w.span = time.Duration(10+w.rnd.IntN(25)) * time.Second
	w.pace = pick(w.agenda, time.Second, 3*time.Second)
	w.conf.kind = pick(w.agenda, marksAlone, marksAlone, guardedTable, guardedTable, guardedTable, guardedTable)
	if w.one(4) {
		w.conf.loss = pick(w.agenda, wiped, setBack)
	}
	w.conf.leaf = w.conf.loss == kept && w.conf.kind != marksAlone && w.one(3)
	w.conf.back = w.conf.kind == guardedTable && w.conf.loss != wiped && (!w.conf.leaf || w.one(2))
	w.conf.limit = pick[int64](w.agenda, 1<<63-1, 1<<63-1, 1<<31-1, 4000)
	w.conf.batch = pick[int64](w.agenda, 1, 12, 60)
	w.conf.every = pick(w.agenda, 100*time.Millisecond, 400*time.Millisecond)
	// Odd times, so that no two timers fire at one instant.
	deadline := pick(w.agenda, 300*time.Millisecond, 1500*time.Millisecond) + w.chance(time.Millisecond)
	w.conf.config = segment.Config{
		Deadline: deadline, LoadTimeout: deadline*2/3 + w.chance(time.Millisecond),
		Poll:    time.Duration(2+w.rnd.IntN(8))*time.Second + w.chance(time.Millisecond),
		MaxStep: pick[int64](w.agenda, 20, 1000), StepTime: pick(w.agenda, time.Second, time.Minute),
		MaxWaiting: pick(w.agenda, 3, 100), Preload: pick(w.agenda, 0, time.Minute),
		AutoStep: pick[int64](w.agenda, 0, 1, 5),
		Idle:     500 * time.Millisecond, MaxIdle: -1,
	}
	w.js = &jetStream{world: w, links: newLinks("JetStream")}
	w.db = &database{world: w, links: newLinks("MySQL"), limit: w.conf.limit, locked: map[string]bool{}}
	w.db.copies[0] = &rows{map[string]segment.Row{}}
	w.db.copies[1] = w.db.copies[0]
	for _, name := range []string{"a", "b", "c", "d"} {
		w.names = append(w.names, name)
		w.tags[name] = &tag{name: name}
	}
	machines := 1 + w.rnd.IntN(4)
	if w.conf.loss == setBack {
		machines = 1
	}
	for i := range machines {
		w.machines = append(w.machines, &machine{world: w, name: fmt.Sprintf("m%d", i)})
	}
	w.log("%v, marks %v, Leaf %t, back %t, limit %d, batches of %d every %v, span %v, rare %d", w.conf.kind,
		w.conf.loss, w.conf.leaf, w.conf.back, w.conf.limit, w.conf.batch, w.conf.every, w.span, w.rare)
	return w
}

func newLinks(name string) links { return links{name: name, cut: map[*machine]bool{}} }

func (w *world) now() time.Duration { return time.Since(w.begin) }

// fail notes the first breach of a promise.
func (w *world) fail(format string, args ...any) {
	if w.breach == nil {
		w.breach = fmt.Errorf(format, args...)
		w.log("BREACH %v", w.breach)
	}
}

func (w *world) broken() bool { return w.breach != nil }

// live injects faults, then repairs the world and checks that all is served again.
func (w *world) live() {
	if w.mayOrder(w.seed) {
		w.order()
	}
	w.found()
	for _, m := range w.machines {
		w.after(w.chance(time.Second), m.start)
	}
	for _, m := range w.machines {
		w.after(time.Second, m.request)
	}
	w.after(w.chance(w.pace), w.disturb)
	w.after(w.chance(2*time.Second), w.change)
	if w.conf.leaf {
		w.after(w.chance(time.Second), w.leafLoads)
	}
	w.run(w.begin.Add(w.span), w.broken)
	if w.broken() {
		w.end()
		return
	}
	w.repair()
	w.serves()
	w.end()
}

// found creates the tags that are there from the start.
func (w *world) found() {
	for _, name := range w.names[:1+w.rnd.IntN(3)] {
		row := segment.Row{Name: name, Step: 1 + w.rnd.Int64N(30), MaxID: 1}
		if w.conf.kind != marksAlone && !w.isStrict(name) {
			w.db.set(0, row)
		} else {
			w.after(0, func() { w.changeAt(w.machines[0], createTag, name) })
		}
	}
}

// end stops all workers, and lets operations under way end.
func (w *world) end() {
	for _, m := range w.machines {
		if m.life != nil {
			m.life.kill()
		}
	}
	w.healthy, w.over = true, true
	w.run(time.Now().Add(3*time.Minute), func() bool { return false })
	for _, m := range w.machines {
		if m.life != nil {
			<-m.life.ended
		}
	}
	w.checkReports()
}

// wrote notes that an entry or row of a tag has just changed.
func (w *world) wrote(key string) {
	if c := w.acting; c != nil && c.op != nil && !buckets.IsOwn(key) {
		c.op.wrote()
	}
}
