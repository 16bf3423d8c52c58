package lineage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

// A world is a registry, its backups, workers and operators, in virtual time and in one goroutine. What runs inside a
// worker is the real [Member] and its gate, on the real store; the bucket, the table and the files are simulated.
// Between any two requests of one actor the others may act.
type world struct {
	rnd   *rand.Rand
	out   io.Writer // nil prints nothing
	opts  options
	now   time.Duration
	bkt   *bucket
	past  []*bucket // of this history, for reads by a deposed leader
	late  []lateWrite
	snaps []*bucket
	procs []*proc
	ops   [2]*command
	depth int
	quiet bool // nothing fails, and nobody restores
	tight bool // who resumes counts on those who have joined

	issued   map[string][]issue // by tag
	top      map[string]int64   // the highest mark that was ever written, by tag
	answered map[string]int64   // the highest answer of a strict tag
	rows     map[string]int64   // max_id, by tag; nil without a table
	broken   map[string]bool    // tags that a resume began too low, and that nobody knew who had joined
	eras     era.Offsets        // all that ever began
	epoch    int                // restores so far
	restored time.Duration      // the last one
	taken    time.Duration      // when what it brought back was saved
	detected time.Duration      // of the first incident of this epoch; -1 before
	resuming *command           // that began the last era

	wiped, tooLow                                  bool // once, at least
	incidents, restores, resumes, decisions, count int
	breach                                         error
}

type options struct {
	restores int // at most
	volatile int // of four workers
	table    bool
	skewed   bool // clocks are days apart
	noFaults bool
}

type bucket struct {
	made    time.Duration
	last    uint64
	entries map[string]buckets.Entry
	rows    map[string]int64
	at      time.Duration // when another state took its place
	saved   time.Duration // of a backup
}

type lateWrite struct {
	key   string
	value []byte
	last  uint64
	due   time.Duration
}

type issue struct {
	tag   string
	r     segment.Range
	by    string
	epoch int
}

func (b *bucket) with(key string, value []byte, now time.Duration) (*bucket, uint64) {
	next := *b
	next.last++
	next.entries = maps.Clone(b.entries)
	next.entries[key] = buckets.Entry{Key: key, Value: bytes.Clone(value), Revision: next.last, Created: at(now)}
	return &next, next.last
}

func at(now time.Duration) time.Time { return time.UnixMilli(1_800_000_000_000).UTC().Add(now) }

// The tags: of one each load is strict, one has a last number, one has a date, and one is made on first use.
const (
	loose   = "a"
	strict  = "s"
	bounded = "m"
	daily   = "d"
	first   = "f"
)

var (
	tagNames = []string{loose, strict, bounded, daily, first}
	rulesOf  = map[string]segment.Rules{
		bounded: {Max: 4000}, daily: {Period: segment.Daily}, strict: {Strict: true},
	}
)

const (
	ample  = 1_000_000 // a bump above all that is loaded in a schedule
	stepOf = 5
)

func newWorld(seed uint64, o options, out io.Writer) *world {
	w := &world{
		rnd: rand.New(rand.NewPCG(seed, 7)), out: out, opts: o, top: map[string]int64{}, answered: map[string]int64{},
		issued: map[string][]issue{}, broken: map[string]bool{}, eras: era.Offsets{}, detected: -1,
	}
	repeatAfter, jitter.Source = 0, w.rnd.Float64
	w.bkt = &bucket{last: 1000, entries: map[string]buckets.Entry{}}
	if o.table {
		w.rows = map[string]int64{}
	}
	w.put(era.Key, era.Found("kv", at(0)).Encode())
	for _, tag := range tagNames[:4] {
		w.put(tag, encode(map[string]any{"mark": 1, "step": stepOf, "rules": rulesOf[tag]}))
		if o.table {
			w.rows[tag] = 1
		}
	}
	for i := range 4 {
		p := &proc{w: w, name: fmt.Sprintf("w%d", i), volatile: i < o.volatile, disk: &disk{w: w}}
		if o.skewed {
			p.skew = time.Duration(w.rnd.IntN(97)-48) * time.Hour
		}
		w.procs = append(w.procs, p)
		p.start()
	}
	return w
}

func (w *world) log(format string, args ...any) {
	if w.out != nil {
		fmt.Fprintf(w.out, "%8.1fs e%d %s\n", w.now.Seconds(), w.epoch, fmt.Sprintf(format, args...))
	}
}

func (w *world) one(n int) bool { return w.rnd.IntN(n) == 0 }

func (w *world) put(key string, value []byte) uint64 {
	old := w.bkt
	var revision uint64
	w.bkt, revision = old.with(key, value, w.now)
	old.at = w.now
	w.past = append(w.past, old)
	w.past = w.past[max(0, len(w.past)-20):]
	if mark := markOf(w.bkt.entries[key]); !buckets.IsOwn(key) {
		w.top[key] = max(w.top[key], mark)
	}
	if key == era.Key {
		w.sawIdentity(value)
	}
	return revision
}

// markOf returns the mark of an entry as it is written, 0 for none.
func markOf(e buckets.Entry) int64 {
	var of struct {
		Mark int64 `json:"mark"`
	}
	_ = json.Unmarshal(e.Value, &of)
	return of.Mark
}

func (w *world) identity() (era.Identity, error) { return era.Decode(w.bkt.entries[era.Key].Value) }

func (w *world) sawIdentity(value []byte) {
	id, err := era.Decode(value)
	if err != nil {
		w.fail("an identity is written that cannot be read: %v", err)
		return
	}
	if id.Incident != nil {
		if w.detected < 0 {
			w.detected = w.now
		}
		return
	}
	if _, known := w.eras[id.Era]; !known {
		w.begun(id)
	}
}

// begun checks an era that begins: of each worker that had joined the incident, the marks are above all that it had
// loaded, and the eras that it knew are known.
func (w *world) begun(id era.Identity) {
	for e, offset := range w.eras {
		if e != id.Era && offset > id.Offset() && id.Offsets.Has(era.Offsets{e: offset}) {
			w.fail("era %s has the offset %d, and an earlier one has %d", id.Era[:4], id.Offset(), offset)
		}
	}
	w.eras[id.Era] = id.Offset()
	w.resumes++
	if w.detected < 0 {
		w.detected = w.now // an operator said so
	}
	w.log("era %s begins with the offset %d", id.Era[:4], id.Offset())
	hasJoined := func(p *proc) bool { // a restored bucket may have other facts at that revision
		o := w.resuming
		return p.up && o != nil && o.epoch == w.epoch && o.joined[p.full()] &&
			p.member.own.Incident == o.o.seen.id.Open()
	}
	for _, tag := range tagNames {
		if tag == daily || bytes.Contains(w.bkt.entries[tag].Value, []byte(`"max":`)) {
			continue // an operator is to decide, or its dates are far above
		}
		mark := w.effective(id, tag)
		if mark == 0 {
			continue
		}
		for _, p := range w.procs {
			if f := p.floor[tag]; hasJoined(p) && f.End > mark {
				w.fail("tag %s begins at %d, and %s, which had joined, had loaded up to %d", tag, mark, p.name, f.End)
			}
		}
		if mark >= w.top[tag] {
			w.broken[tag] = false
		} else if !w.broken[tag] {
			w.log("tag %s begins at %d, and was loaded up to %d", tag, mark, w.top[tag])
			w.broken[tag], w.tooLow = true, true
			if w.resuming != nil && w.resuming.bump == enough && w.resuming.epoch == w.epoch {
				w.fail("tag %s begins at %d, below %d, though the operator knew of all", tag, mark, w.top[tag])
			}
		}
	}
	for _, p := range w.procs {
		if hasJoined(p) && !id.Offsets.Has(p.member.own.Eras) {
			w.fail("the identity lacks an era of %s, which had joined", p.name)
		}
	}
}

// effective returns the mark at which a tag goes on in the present era, 0 if the entry is of an era that the identity
// lacks: whoever reads it proves that.
func (w *world) effective(id era.Identity, tag string) int64 {
	var of struct {
		Mark int64  `json:"mark"`
		Era  string `json:"era"`
	}
	_ = json.Unmarshal(w.bkt.entries[tag].Value, &of)
	by, err := id.Since(of.Era)
	if err != nil {
		return 0
	}
	return max(1, of.Mark) + by
}

// cas writes a key if its last revision is the given one.
func (w *world) cas(key string, value []byte, last uint64) (uint64, error) {
	if w.bkt.entries[key].Revision != last {
		return 0, buckets.ErrRevision
	}
	return w.put(key, value), nil
}

func (w *world) fail(format string, args ...any) {
	if w.breach == nil {
		w.breach = fmt.Errorf(format, args...)
		w.log("BREACH %v", w.breach)
	}
}

// issue notes issued IDs.
//
// What an undetected restore repeats is outside the promise. So is what a worker has in memory that has heard of no
// incident since.
func (w *world) issue(i issue, excused bool) {
	tag, r := i.tag, i.r
	for _, o := range w.issued[tag] {
		if o.r.End > r.Start && r.End > o.r.Start && !excused && !w.broken[tag] {
			w.fail("tag %s: %s issues [%d, %d), and %s had issued [%d, %d) in epoch %d",
				tag, i.by, r.Start, r.End, o.by, o.r.Start, o.r.End, o.epoch)
		}
	}
	w.issued[tag] = append(w.issued[tag], i)
	w.count++
}

// isBlind reports whether a load of a worker that ends now may rest on a restore that nobody has detected: until those
// who remember a later state have checked, for as long as a check counts, and the write of a load that was sent before.
func (w *world) isBlind(p *proc) bool {
	return w.epoch > 0 && (w.detected < 0 || !p.isAware() && w.now <= w.detected+fresh+writeTimeout)
}

// A proc is where lives of one worker follow one another.
type proc struct {
	w        *world
	name     string
	volatile bool
	disk     *disk
	known    uint64
	member   *Member
	store    segment.Store // behind the gate
	skew     time.Duration // of its clock
	killed   func()        // ends what a command waits for; nil for a worker
	lives    int
	up, busy bool
	deaf     bool // it reaches nobody
	held     bool
	floor    map[string]segment.Floor
	memory   []issue // loaded, and not issued yet

	started, refused time.Duration // this life, and when it was stopped last
	wrote            time.Duration // its own key last, as far as it knows
	wroteKey         string
}

// isAware reports whether this life knows that the registry was stopped since the last restore.
func (p *proc) isAware() bool {
	return p.refused >= p.w.restored || p.w.detected >= 0 && p.started >= p.w.detected
}

func (p *proc) full() string { return fmt.Sprint(p.name, ".", p.lives) }

var errDown = errors.New("down")

// start begins a life.
func (p *proc) start() {
	p.lives++
	p.up, p.busy, p.held, p.known, p.floor, p.memory = true, false, false, 0, map[string]segment.Floor{}, nil
	life := p.lives
	p.started, p.refused = p.w.now, -1
	if p.volatile || p.disk.hangs {
		p.wroteKey = "" // this life may not know its last write
	}
	p.disk.hangs = false
	store := p.newStore(life)
	cfg := Config{
		Bucket: link{p, life}, Tags: store, Bus: link{p, life}, Serving: link{p, life}, Kind: "kv",
		Rows: p.w.rows != nil,
		Name: func() string { return fmt.Sprint(p.name, ".", life) },
		Poll: time.Minute, Links: func() uint64 { return 0 }, Now: func() time.Time { return at(p.w.now + p.skew) },
		Settled: func(string) {},
		Unused:  func(context.Context) (bool, error) { return false, nil },
		Process: fmt.Sprint(p.name, ".", life),
	}
	var of files
	if !p.volatile {
		of = p.disk
	}
	m, err := open(cfg, of)
	if err != nil {
		p.w.fail("%s cannot start: %v", p.name, err)
		return
	}
	p.member, p.store = m, m.Gate(hanging{store, link{p, life}})
	m.Use((*ranges)(p))
	p.w.log("%s starts life %d", p.name, life)
}

// newStore returns the store of a life, on the bucket and the table as that life reaches them.
func (p *proc) newStore(life int) *kvstore.Store {
	cfg := kvstore.Config{
		Bucket:   "id_segments",
		Eras:     func() era.Identity { return p.member.Eras() },
		WentBack: func(why string, need int64) { p.member.WentBack(why, need) },
		Clock:    func() (time.Time, bool) { return at(p.w.now), true },
	}
	if p.w.rows != nil {
		cfg.Table = table{link{p, life}}
	}
	return kvstore.On(link{p, life}, cfg)
}

func (p *proc) die() {
	p.w.log("%s is killed", p.name)
	p.up = false
	p.lives++ // what is under way is of an earlier life
	if p.killed != nil {
		p.killed()
	}
}

// act calls f as something that the worker does, unless it is at something else.
func (p *proc) act(f func(ctx context.Context)) {
	if p.busy || !p.up {
		return
	}
	p.busy = true
	life := p.lives
	f(context.Background())
	if p.lives == life {
		p.busy = false
	}
}

// ranges is the memory of a worker.
type ranges proc

func (r *ranges) Hold(error) { r.held = true }
func (r *ranges) Release()   { r.held = false }
func (r *ranges) Discard()   { r.memory = nil }

func (r *ranges) Floors() map[string]segment.Floor { return maps.Clone(r.floor) }

func (r *ranges) Remember(floors map[string]segment.Floor) {
	for tag, f := range floors {
		if f.End > r.floor[tag].End {
			r.floor[tag] = f
		}
	}
}

// A link is the bucket, the other workers and what serves, as one life of a worker reaches them.
type link struct {
	p    *proc
	life int
}

// before lets others act, and reports why the request does not arrive.
func (l link) before() error {
	w := l.p.w
	if w.depth < 3 && w.one(5) {
		w.depth++
		w.step()
		if w.depth == 1 && w.one(8) { // it takes long
			for range w.rnd.IntN(60) {
				w.step()
			}
		}
		w.depth--
	}
	if l.p.lives != l.life {
		return errDown
	}
	if l.p.deaf || !w.quiet && w.one(60) {
		return context.DeadlineExceeded
	}
	return nil
}

// view returns the bucket as a read finds it: now and then as a deposed leader shows it.
func (l link) view() *bucket {
	w := l.p.w
	if n := len(w.past); !w.quiet && n > 0 && w.one(80) {
		if old := w.past[w.rnd.IntN(n)]; w.now-old.at < 10*time.Second {
			return old
		}
	}
	return w.bkt
}

func (l link) Get(_ context.Context, key string) (buckets.Entry, error) {
	if err := l.before(); err != nil {
		return buckets.Entry{}, err
	}
	e, ok := l.view().entries[key]
	if !ok {
		return e, buckets.ErrNoKey
	}
	l.Saw(e.Revision)
	return e, nil
}

func (l link) Look(context.Context) (buckets.Info, error) {
	if err := l.before(); err != nil {
		return buckets.Info{}, err
	}
	b := l.p.w.bkt
	return buckets.Info{Created: at(b.made), LastSeq: b.last}, nil
}

func (l link) CreateFirst(ctx context.Context, key string, value []byte) (uint64, error) {
	return l.Create(ctx, key, value)
}

func (l link) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := l.Update(ctx, key, value, 0)
	if errors.Is(err, buckets.ErrRevision) {
		err = buckets.ErrKeyExists
	}
	return revision, err
}

func (l link) UpdateSoon(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	return l.Update(ctx, key, value, last)
}

func (l link) Update(_ context.Context, key string, value []byte, last uint64) (uint64, error) {
	known, w := l.p.known, l.p.w
	if err := l.before(); err != nil {
		return 0, err
	}
	if !w.quiet && w.one(40) { // it lands later, if at all
		due := w.now + time.Duration(w.rnd.IntN(12))*time.Second
		w.late = append(w.late, lateWrite{key, bytes.Clone(value), last, due})
		return 0, context.DeadlineExceeded
	}
	revision, err := w.cas(key, value, last)
	if err != nil {
		return 0, err
	}
	landed := w.now
	if !w.quiet && w.one(60) {
		l.p.die()
		return 0, errDown
	}
	if !w.quiet && w.one(40) {
		return 0, context.DeadlineExceeded // the acknowledgement is lost
	}
	if err := l.before(); err != nil && l.p.lives != l.life {
		return 0, errDown
	}
	if revision <= known {
		l.p.member.WentBack(fmt.Sprintf("revision %d after %d", revision, known), 0)
		l.p.known = revision
	}
	l.Saw(revision)
	o, err := decodeOwn(value)
	if err == nil && o.Token == l.p.member.own.Flight.Token && w.now == landed { // else it is a proof
		l.p.wrote, l.p.wroteKey = landed, l.p.member.own.Key
	}
	return revision, nil
}

func (l link) Latest(_ context.Context, prefix string) (map[string]buckets.Entry, error) {
	if err := l.before(); err != nil {
		return nil, err
	}
	all, b := map[string]buckets.Entry{}, l.p.w.bkt
	if prefix == "" {
		b = l.view()
	}
	for key, e := range b.entries {
		if strings.HasPrefix(key, prefix) {
			all[key] = e
		}
	}
	return all, nil
}

func (l link) Enough(_ int, least time.Duration) time.Duration { return least }

func (l link) Ask(_ context.Context, _ string, m []byte, hear func([]byte) bool) error {
	l.p.w.ask(l.p, m, hear)
	return nil
}

func (l link) Announce(m []byte) error { l.p.w.announce(l.p, m); return nil }

// Refuse and those below are those of what serves.
func (l link) Refuse(error, bool) {
	if l.p.lives == l.life {
		l.p.refused = l.p.w.now
	}
}

func (l link) Allow() {}

func (l link) Alarm(cause era.Cause, message string) {
	l.p.w.incidents++
	l.p.w.log("%s alarm %s: %s", l.p.name, cause, message)
}

func (l link) JournalAlarm(string) {}

func (l link) Known() uint64 { return l.p.known }

func (l link) Saw(revision uint64) { l.p.known = max(l.p.known, revision) }

// A table is the rows of a database that may go back.
type table struct{ link }

func (t table) row(tag string) (segment.Row, error) {
	max, ok := t.p.w.rows[tag]
	if !ok {
		return segment.Row{}, segment.ErrUnknownTag
	}
	return segment.Row{Name: tag, MaxID: max, Step: stepOf}, nil
}

func (t table) Row(_ context.Context, tag string) (segment.Row, error) {
	if err := t.before(); err != nil {
		return segment.Row{}, err
	}
	return t.row(tag)
}

func (t table) Advance(_ context.Context, tag string, start, end int64) (bool, error) {
	if err := t.before(); err != nil {
		return false, err
	}
	r, err := t.row(tag)
	done := err == nil && r.MaxID <= start
	if done {
		t.p.w.rows[tag] = end
	}
	if !t.p.w.quiet && t.p.w.one(40) {
		return false, context.DeadlineExceeded
	}
	return done, err
}

func (t table) Insert(_ context.Context, tag segment.Tag) error {
	if err := t.before(); err != nil {
		return err
	}
	if _, ok := t.p.w.rows[tag.Name]; ok {
		return segment.ErrExists
	}
	t.p.w.rows[tag.Name] = tag.MaxID
	return nil
}

func (t table) Update(_ context.Context, tag string, c segment.Change) error {
	if err := t.before(); err != nil {
		return err
	}
	if r, err := t.row(tag); err == nil {
		t.p.w.rows[tag] = max(r.MaxID, c.MaxID)
	}
	return nil
}

func (t table) Try(context.Context, string, segment.Change) error { return t.before() }
func (t table) Limit() int64                                      { return segment.MaxID }

func (t table) Rows(ctx context.Context, after string, _ int) (rows []segment.Row, err error) {
	all, err := t.AllRows(ctx)
	return slices.DeleteFunc(all, func(r segment.Row) bool { return r.Name <= after }), err
}

func (t table) AllRows(context.Context) (rows []segment.Row, err error) {
	if err := t.before(); err != nil {
		return nil, err
	}
	for _, tag := range slices.Sorted(maps.Keys(t.p.w.rows)) {
		r, _ := t.row(tag)
		rows = append(rows, r)
	}
	return rows, nil
}

// A hanging is a store whose loads may take long.
type hanging struct {
	segment.Store
	l link
}

func (h hanging) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	l, err := h.Store.Load(ctx, tag, n, floor)
	if h.hang(); h.l.p.lives != h.l.life {
		return segment.Loaded{}, errDown
	}
	return l, err
}

func (h hanging) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	l, err := h.Store.LoadStrict(ctx, tag, join, floor)
	if h.hang(); h.l.p.lives != h.l.life {
		return segment.Loaded{}, errDown
	}
	return l, err
}

// hang lets a worker stand still during a load that may rest on a restore, until the registry is resumed.
func (h hanging) hang() {
	p, w := h.l.p, h.l.p.w
	if w.depth > 0 || w.quiet || !w.isBlind(p) || !w.one(2) {
		return
	}
	w.depth++
	deaf, life := p.deaf, p.lives
	p.deaf = true
	defer func() {
		if w.depth--; p.lives == life {
			p.deaf = deaf
		}
	}()
	for resumes := w.resumes; w.resumes == resumes && !w.one(150) || w.one(2); {
		w.step()
	}
}

// load loads a range; half of it is issued at once, and all of a strict tag.
func (p *proc) load(ctx context.Context) {
	w, life := p.w, p.lives
	tag := tagNames[w.rnd.IntN(len(tagNames))]
	if p.held {
		return
	}
	n, sent := 4+w.rnd.Int64N(10), w.answered[tag]
	var l segment.Loaded
	var err error
	switch floor := p.floor[tag].End; {
	case tag == strict:
		l, err = p.store.LoadStrict(ctx, tag, func() int64 { return n }, floor)
	default:
		l, err = p.store.Load(ctx, tag, n, floor)
		if errors.Is(err, segment.ErrUnknownTag) && floor == 0 && p.lives == life && !p.held {
			if _, err = p.store.Create(ctx, segment.Tag{Name: tag, Step: stepOf}, false); err == nil {
				w.log("%s makes tag %s", p.name, tag)
			}
			return
		}
	}
	if err != nil || p.lives != life || p.held {
		return
	}
	w.log("%s loads %s [%d, %d)", p.name, tag, l.Start, l.End)
	rules, known := l.Rules, p.floor[tag].Rules
	if l.End > p.floor[tag].End {
		p.floor[tag] = segment.Floor{End: l.End, Step: l.Step, Live: true, Rules: &rules, Era: l.Era}
	}
	i := issue{tag, l.Range, p.name, w.epoch}
	if tag == strict {
		if known != nil && known.Strict && !l.Rules.Strict {
			w.fail("strict: %s remembers the tag as strict, and finds it loose", p.name)
		}
		if l.Start < sent && !w.isBlind(p) && !w.broken[tag] {
			w.fail("strict: %s answers %d to a request that was sent after %d", p.name, l.Start, sent-1)
		}
		w.answered[tag] = max(w.answered[tag], l.End)
		w.issue(i, w.isBlind(p))
		return
	}
	half := l.Start + l.Len()/2
	i.r.End = half
	w.issue(i, w.isBlind(p))
	i.r = segment.Range{Start: half, End: l.End}
	p.memory = append(p.memory, i)
}

// serve issues from memory.
func (p *proc) serve() {
	if !p.up || p.member.Stopped() != nil || len(p.memory) == 0 {
		return
	}
	i := p.memory[0]
	p.memory = p.memory[1:]
	p.w.log("%s issues %s [%d, %d) from memory", p.name, i.tag, i.r.Start, i.r.End)
	p.w.issue(i, p.w.isBlind(p) || p.w.epoch > 0 && !p.isAware())
}

// check checks, as a worker does now and then. One that finds all in order must not remember what a restore undid. Of a
// key that was taken over from one who lives, two histories may have the same revision; then the other one proves.
func (p *proc) check(ctx context.Context, thorough bool) error {
	w, life, key := p.w, p.lives, p.member.own.Key
	remembers := key != "" && key == p.wroteKey && w.taken < p.wrote && p.wrote < w.restored &&
		p.member.Stopped() == nil && (!p.volatile || len(p.member.own.Taken) == 0)
	e := w.bkt.entries[ownPrefix+key]
	if o, err := decodeOwn(e.Value); err == nil && o.Token == p.member.own.Written.Token ||
		e.Revision == p.member.own.Written.Revision {
		remembers = false // a copy of its last write that was late, or two histories have one revision
	}
	epoch := w.epoch
	err := p.member.checkOnce(ctx, thorough)
	if err == nil && remembers && p.lives == life && w.epoch == epoch && p.refused < w.restored {
		w.fail("%s takes a state of %v for the one that it wrote at %v", p.name, w.taken, p.wrote)
	}
	return err
}

func (w *world) ask(from *proc, m []byte, hear func([]byte) bool) {
	for _, i := range w.rnd.Perm(len(w.procs)) {
		p := w.procs[i]
		if p == from || !p.up || p.busy || p.deaf || from.deaf || p.member.Identity().Registry == "" {
			continue
		}
		var answer []byte
		p.act(func(ctx context.Context) { answer = p.member.Answer(ctx, m) })
		if answer != nil && p.up {
			hear(answer)
		}
		return
	}
}

func (w *world) announce(from *proc, m []byte) {
	for _, p := range w.procs {
		if p != from && p.up && !p.deaf && !from.deaf && !w.one(4) {
			p.member.Hear(m)
		}
	}
}

// A disk is the files of a data directory. It keeps what was written. A write may hang: it reaches the disk later or
// never, and no other write of that life does.
type disk struct {
	w     *world
	data  map[string][]byte
	past  [][]byte // journals
	left  int      // writes until the disk hangs; 0 for chance
	hangs bool
}

func (d *disk) read(name string) ([]byte, durable.FileID, error) {
	data, ok := d.data[name]
	if !ok {
		return nil, durable.FileID{}, os.ErrNotExist
	}
	return data, durable.FileID{Inode: 1}, nil
}

func (d *disk) replace(name string, data func(durable.FileID) []byte) error {
	if d.data == nil {
		d.data = map[string][]byte{}
	}
	if d.hangs {
		return errDiskHangs
	}
	if d.left--; d.left == 0 || d.left < 0 && !d.w.quiet && !d.w.opts.noFaults && d.w.one(60) {
		if d.hangs = true; d.w.one(2) {
			d.data[name] = data(durable.FileID{Inode: 1})
		}
		return errDiskHangs
	}
	d.data[name] = data(durable.FileID{Inode: 1})
	if name == journalName {
		d.past = append(d.past, d.data[name])
	}
	return nil
}

// A bump is what an operator adds.
type bump int

const (
	enough bump = iota // above all that was loaded, also in eras that nobody remembers
	usual              // above all that can be loaded in an era
	tight              // little: it counts on those who have joined
)

// A command is an operator's command, which may be slow, and be interrupted between any two steps.
type command struct {
	w      *world
	proc   *proc // its link to the bucket
	name   string
	o      Operator
	joined map[string]bool // workers that had joined what it read last
	epoch  int             // in which it read that
	next   int
	bump   bump
}

func (w *world) newOp(n int) *command {
	p := &proc{w: w, name: fmt.Sprint("op", n), floor: map[string]segment.Floor{}}
	p.member, _ = open(Config{Serving: link{p, 0}}, nil)
	p.member.loaded = (*ranges)(p)
	return &command{w: w, proc: p, name: p.name, o: Operator{
		Bucket: link{p, 0}, Kind: "kv", Name: p.name, Now: func() time.Time { return at(w.now) },
		Announce: func(m []byte) error { w.announce(p, m); return nil },
	}}
}

// step does one step of the command; it reports false once that is over.
func (o *command) step(ctx context.Context) bool {
	ctx, o.proc.killed = context.WithCancel(ctx)
	defer o.proc.killed()
	err := o.try(ctx)
	if err != nil {
		o.w.log("%s: %v", o.name, err)
	}
	if errors.Is(err, errChanged) {
		o.next = 0
		return true
	}
	return err == nil && o.next < 3
}

var errNothing = errors.New("nothing to resume")

func (o *command) try(ctx context.Context) (err error) {
	switch o.next {
	case 0, 1:
		if o.next == 1 && o.o.wait() > 0 {
			return nil
		}
		if err := o.o.look(ctx); err != nil {
			return err
		}
		now := o.o.seen
		if now.id.Incident == nil && now.missing == nil {
			return errNothing
		}
		o.w.log("%s reads incident %.4s", o.name, now.id.Open())
		o.joined, o.epoch = map[string]bool{}, o.w.epoch
		for _, name := range now.stopped {
			o.joined[name] = true
		}
		if o.next == 0 {
			o.o.rouse()
		} else if o.o.wait() > 0 {
			return nil
		}
	case 2:
		before := o.w.resuming
		o.w.resuming = o
		if err = o.o.resume(ctx, o.by(), 0); err != nil && o.w.resuming == o {
			o.w.resuming = before
		}
	}
	if err == nil {
		o.next++
	}
	return err
}

// by returns what the operator adds.
func (o *command) by() int64 {
	switch o.bump {
	case tight:
		return 1 + o.w.rnd.Int64N(20) // with 0 it says that nothing was loaded, not even of tags with a last number
	case usual:
		return ample
	}
	highest, known := int64(0), o.o.seen.id.Offset()
	for _, offset := range o.w.eras {
		highest = max(highest, offset)
	}
	for tag, top := range o.w.top {
		if tag != daily { // a row of an era may have been read like one of none
			highest = max(highest, top)
		}
	}
	return max(0, highest-known) + 2*ample
}

// decide says of an undecided tag where it goes on.
func (o *command) decide(ctx context.Context) {
	w, tag := o.w, []string{bounded, daily}[o.w.rnd.IntN(2)]
	cfg := kvstore.Config{Bucket: "id_segments"}
	if w.rows != nil {
		cfg.Table = table{link{o.proc, 0}}
	}
	store := kvstore.On(link{o.proc, 0}, cfg)
	t, err := store.Look(ctx, tag)
	if err != nil || !t.Undecided {
		return
	}
	n := max(w.top[tag], t.MaxID) // not before: another worker may have loaded meanwhile
	if _, err = store.Update(ctx, tag, segment.Change{MaxID: n}); err == nil {
		w.decisions++
		w.log("%s decides that %s goes on at %d", o.name, tag, n)
	}
}

// step lets someone act.
func (w *world) step() {
	w.now += time.Duration(w.rnd.IntN(700)) * time.Millisecond
	for i := 0; i < len(w.late); i++ {
		if l := w.late[i]; l.due <= w.now {
			_, _ = w.cas(l.key, l.value, l.last) // nobody hears how it ended
			w.late = slices.Delete(w.late, i, i+1)
			i--
		}
	}
	p := w.procs[w.rnd.IntN(len(w.procs))]
	switch x := w.rnd.IntN(100); {
	case x < 30:
		p.act(func(ctx context.Context) {
			if err := p.check(ctx, w.one(5)); err != nil {
				w.log("%s checks: %v", p.name, err)
			}
		})
	case x < 52:
		p.act(p.load)
	case x < 62:
		p.serve()
	case x < 67:
		if p.up && !p.busy {
			p.member.announceIfDue()
		}
	case x < 82:
		w.operate()
	case w.quiet:
		w.now += time.Second
	case x < 85 && !w.opts.noFaults:
		w.changeLife(p)
	case x < 88 && !w.opts.noFaults:
		p.deaf = !p.deaf
		w.log("%s is cut off: %t", p.name, p.deaf)
	case x < 92:
		w.snaps = append(w.snaps, w.save())
		w.log("backup %d", len(w.snaps)-1)
	case x < 95 || x == 95 && w.detected >= 0:
		if w.restores < w.opts.restores && len(w.snaps) > 0 {
			w.restore()
		}
	case x == 96 && w.one(3):
		w.now += time.Duration(w.rnd.IntN(5000)) * time.Second
	case x == 97 && w.one(4):
		w.now += time.Duration(w.rnd.IntN(30)) * time.Hour
	case x == 98 && w.one(4) && w.restores < w.opts.restores:
		w.wipe()
	case x == 99 && w.rows == nil: // with a table, a poll writes with several goroutines
		p.act(func(ctx context.Context) { _ = p.store.Poll(ctx, func(segment.Listing) {}) })
	}
}

func (w *world) changeLife(p *proc) {
	switch {
	case !p.up:
		p.start()
	case w.one(2):
		p.act(func(ctx context.Context) {
			_ = p.member.Stop(ctx)
			p.w.log("%s stops", p.name)
			p.up = false
			p.lives++
		})
	default:
		p.die()
	}
}

func (w *world) save() *bucket {
	saved := *w.bkt
	saved.saved, saved.rows = w.now, maps.Clone(w.rows)
	return &saved
}

// restore puts a backup back: by files, or by the interface, which makes another stream.
func (w *world) restore() {
	b := *w.snaps[w.rnd.IntN(len(w.snaps))]
	if w.one(3) {
		b.made = w.now
	}
	w.bring(b)
}

// wipe makes another bucket, which is empty.
func (w *world) wipe() {
	w.wiped = true
	w.bring(bucket{made: w.now, last: w.bkt.last + 1000, entries: map[string]buckets.Entry{}, saved: w.now})
}

func (w *world) bring(b bucket) {
	if w.rows != nil && b.rows != nil && w.one(2) {
		w.rows = maps.Clone(b.rows)
	}
	w.bkt, w.past = &b, nil
	w.epoch++
	w.restores++
	w.restored, w.taken, w.detected = w.now, b.saved, -1
	id, _ := w.identity()
	w.log("RESTORE at revision %d, rows %v, incident open %t", b.last, w.rows, id.Incident != nil)
	if id.Incident != nil {
		w.detected = w.now
	}
}

// operate lets an operator act where the registry is stopped, or a tag is undecided.
func (w *world) operate() {
	n := w.rnd.IntN(2)
	if o := w.ops[n]; o != nil {
		if o.proc.busy {
			return
		}
		o.proc.busy = true
		more := o.step(context.Background())
		o.proc.busy = false
		if !more || !w.quiet && w.one(25) {
			w.ops[n] = nil
		}
		return
	}
	id, err := w.identity()
	switch {
	case err != nil || id.Incident != nil:
		w.ops[n] = w.newOp(n)
		w.ops[n].bump = bump(w.rnd.IntN(3))
		if err != nil { // nobody may remember, so more is demanded
			w.ops[n].bump = enough
		}
	case w.one(3):
		o := w.newOp(n)
		w.ops[n] = o
		o.proc.busy = true
		o.decide(context.Background())
		w.ops[n] = nil
	}
}

// live plays a schedule: faults, then quiet, in which all must be resumed and served.
func (w *world) live(steps int) {
	for range steps {
		if w.breach != nil {
			return
		}
		w.step()
	}
	w.log("no more faults")
	w.quiet = true
	w.late = nil
	for _, p := range w.procs {
		p.deaf = false
	}
	opened := w.incidents
	for range 500 {
		for _, p := range w.procs {
			if !p.up {
				p.start()
			}
		}
		if w.step(); w.breach != nil {
			return
		}
	}
	id, err := w.identity()
	if err != nil || id.Incident != nil && w.incidents-opened > 6 {
		w.fail("%d incidents in quiet times", w.incidents-opened)
	}
	for _, tag := range tagNames[:2] {
		for _, p := range w.procs {
			mark := w.effective(id, tag)
			if w.bkt.entries[tag].Revision > 0 && 0 < mark && mark < p.floor[tag].End {
				w.fail("after all was repaired, tag %s is at %d, and %s had loaded up to %d",
					tag, mark, p.name, p.floor[tag].End)
			}
		}
	}
	for _, p := range w.procs {
		var err error
		for range 40 {
			p.act(func(ctx context.Context) {
				if err = p.member.Ready(ctx); err != nil {
					err = p.member.checkOnce(ctx, false)
				}
			})
			if err == nil {
				break
			}
			w.step()
		}
		if err != nil {
			w.fail("%s is not served after all was repaired: %v", p.name, err)
		}
	}
	// Beyond that nobody may remember what was restored over; nor may who resumes after all was lost. A resume that
	// begins too low is a reason of its own.
	if w.restores < 2 && !w.wiped && !w.tooLow && w.incidents > w.restores {
		w.fail("%d incidents for %d restores", w.incidents, w.restores)
	}
}
