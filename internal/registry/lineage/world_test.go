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
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// A world is a registry, its backups, workers and operators, in virtual time and in one goroutine. What runs inside a
// worker is the real [Member] and its gate; the bucket, the files and the marks are simulated. Between any two requests
// of one actor the others may act.
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

	issued    map[string][]issue // by tag
	loads     []loaded
	top       map[string]int64 // the highest end that was ever written, by tag
	base      map[string]int64 // marks just after the last restore
	epoch     int              // restores so far
	restored  time.Duration    // the last one
	taken     time.Duration    // when what it brought back was saved
	latest    time.Duration    // when the newest of all that was brought back was saved
	lastEnd   int              // epoch of the last incident that an operator ended
	detected  time.Duration    // of the first incident of this epoch; -1 before
	incidents int
	restores  int
	count     int
	breach    error
}

type options struct {
	restores int // at most
	volatile int // of four workers
	noFaults bool
}

type bucket struct {
	made    time.Duration
	last    uint64
	entries map[string]buckets.Entry
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

// loaded is how far a worker loaded a tag.
type loaded struct {
	by  *proc
	tag string
	end int64
}

func (b *bucket) with(key string, value []byte, now time.Duration) (*bucket, uint64) {
	next := *b
	next.last++
	next.entries = maps.Clone(b.entries)
	next.entries[key] = buckets.Entry{Key: key, Value: bytes.Clone(value), Revision: next.last, Created: at(now)}
	return &next, next.last
}

func at(now time.Duration) time.Time { return time.UnixMilli(1_800_000_000_000).UTC().Add(now) }

var tagNames = []string{"a", "b"}

func newWorld(seed uint64, o options, out io.Writer) *world {
	w := &world{
		rnd: rand.New(rand.NewPCG(seed, 7)), out: out, opts: o, top: map[string]int64{},
		issued: map[string][]issue{}, base: map[string]int64{},
		detected: -1,
	}
	w.bkt = &bucket{last: 1000, entries: map[string]buckets.Entry{}}
	w.put(identityKey, Found("kv", at(0)).Encode())
	for _, tag := range tagNames {
		w.put(tag, []byte("1"))
		w.top[tag] = 1
	}
	for i := range 4 {
		p := &proc{w: w, name: fmt.Sprintf("w%d", i), volatile: i < o.volatile, disk: &disk{w: w}}
		w.procs = append(w.procs, p)
		p.start()
	}
	return w
}

func init() { lifts = 1 }

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
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && !buckets.IsOwn(key) {
		w.top[key] = max(w.top[key], n)
	}
	if key == identityKey {
		w.sawIdentity(value)
	}
	return revision
}

func (w *world) sawIdentity(value []byte) {
	id, err := DecodeIdentity(value)
	switch {
	case err != nil:
		w.fail("an identity is written that cannot be read: %v", err)
	case id.Incident != nil && w.detected < 0:
		w.detected = w.now
	}
	if err == nil && id.Incident != nil && id.Incident.Cause == WentBack {
		// A write that was sent after the backup may land late, on what was restored.
		if since := id.Incident.Since(); since.After(at(w.latest + writeTimeout)) {
			w.fail("provers say that the state found is of %s, and the newest one that was restored is of %s: %+v",
				since, at(w.latest), id.Incident.Provers)
		}
	}
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
		if o.r.End > r.Start && r.End > o.r.Start && !excused {
			w.fail("tag %s: %s issues [%d, %d), and %s had issued [%d, %d) in epoch %d",
				tag, i.by, r.Start, r.End, o.by, o.r.Start, o.r.End, o.epoch)
		}
	}
	w.issued[tag] = append(w.issued[tag], i)
	w.count++
}

// isBlind reports whether a load that ends now may rest on a restore that nobody has detected: until those who remember
// a later state have checked, for as long as a check counts, and the write of a load that was sent before.
func (w *world) isBlind() bool {
	return w.epoch > w.lastEnd && (w.detected < 0 || w.now <= w.detected+fresh+writeTimeout)
}

// A proc is where lives of one worker follow one another.
type proc struct {
	w        *world
	name     string
	volatile bool
	disk     *disk
	known    uint64
	member   *Member
	store    segment.Store
	lives    int
	up, busy bool
	deaf     bool // it reaches nobody
	held     bool
	floor    map[string]int64
	memory   []issue // loaded, and not issued yet

	started, refused time.Duration // this life, and when it was stopped last
	wrote            time.Duration // its own key last, as far as it knows
	wroteKey         string
}

// isAware reports whether this life knows that the registry was stopped since the last restore.
func (p *proc) isAware() bool {
	return p.refused >= p.w.restored || p.w.detected >= 0 && p.started >= p.w.detected
}

var errDown = errors.New("down")

// start begins a life.
func (p *proc) start() {
	p.lives++
	p.up, p.busy, p.held, p.known, p.floor, p.memory = true, false, false, 0, map[string]int64{}, nil
	life := p.lives
	p.started, p.refused = p.w.now, -1
	if p.volatile || p.disk.hangs {
		p.wroteKey = "" // this life may not know its last write
	}
	p.disk.hangs = false
	cfg := Config{
		Bucket: link{p, life}, Tags: link{p, life}, Bus: link{p, life}, Serving: link{p, life}, Kind: "kv",
		Name: func() string { return fmt.Sprint(p.name, ".", life) },
		Poll: time.Minute, Links: func() uint64 { return 0 }, Now: func() time.Time { return at(p.w.now) },
		MayFound: nothing, Reassert: nothing, Reread: nothing, Settled: func(string) {},
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
	p.member, p.store = m, m.Gate(marks{l: link{p, life}})
	m.Use((*ranges)(p))
	p.w.log("%s starts life %d", p.name, life)
}

func nothing(context.Context) error { return nil }

func (p *proc) die() {
	p.w.log("%s is killed", p.name)
	p.up = false
	p.lives++ // what is under way is of an earlier life
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

func (r *ranges) Floors() map[string]segment.Floor {
	all := map[string]segment.Floor{}
	for tag, end := range r.floor {
		all[tag] = segment.Floor{End: end, Step: 1, Live: true}
	}
	return all
}

func (r *ranges) Remember(floors map[string]segment.Floor) {
	for tag, f := range floors {
		r.floor[tag] = max(r.floor[tag], f.End)
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

func (l link) Look(context.Context) (buckets.State, error) {
	if err := l.before(); err != nil {
		return buckets.State{}, err
	}
	b := l.p.w.bkt
	return buckets.State{Info: buckets.Info{Created: at(b.made), LastSeq: b.last}}, nil
}

func (l link) Found(context.Context, buckets.State, string, []byte) error {
	return buckets.ErrKeyExists
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
		l.p.member.WentBack(fmt.Sprintf("revision %d after %d", revision, known))
		l.p.known = revision
	}
	l.Saw(revision)
	o, err := decodeOwn(value)
	if err == nil && o.Token == l.p.member.own.Flight.Token && w.now == landed { // else it is a proof
		l.p.wrote, l.p.wroteKey = landed, l.p.member.own.Key
	}
	return revision, nil
}

func (l link) AllOwn(_ context.Context, prefix string) (map[string]buckets.Entry, error) {
	if err := l.before(); err != nil {
		return nil, err
	}
	all := map[string]buckets.Entry{}
	for key, e := range l.p.w.bkt.entries {
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

func (l link) Alarm(cause Cause, message string) {
	l.p.w.incidents++
	l.p.w.log("%s alarm %s: %s", l.p.name, cause, message)
}

func (l link) JournalAlarm(string) {}

func (l link) Known() uint64 { return l.p.known }

func (l link) Saw(revision uint64) { l.p.known = max(l.p.known, revision) }

// List and Lift are those of a store of tags.
func (l link) List(_ context.Context, after string, _ int) (tags []segment.Tag, err error) {
	if err := l.before(); err != nil {
		return nil, err
	}
	for _, name := range tagNames {
		if e := l.p.w.bkt.entries[name]; name > after && e.Value != nil {
			n, _ := strconv.ParseInt(string(e.Value), 10, 64)
			tags = append(tags, segment.Tag{Name: name, MaxID: n})
		}
	}
	return tags, nil
}

func (l link) Lift(ctx context.Context, tag string, f segment.Floor) (bool, error) {
	for {
		e, err := l.Get(ctx, tag)
		if err != nil && !errors.Is(err, buckets.ErrNoKey) {
			return false, err
		}
		if n, _ := strconv.ParseInt(string(e.Value), 10, 64); n >= f.End {
			return false, nil
		}
		_, err = l.Update(ctx, tag, fmt.Append(nil, f.End), e.Revision)
		if !errors.Is(err, buckets.ErrRevision) {
			return err == nil, err
		}
	}
}

// marks is a store that loads.
type marks struct {
	segment.Store
	l link
}

func (m marks) List(ctx context.Context, after string, limit int) ([]segment.Tag, error) {
	return m.l.List(ctx, after, limit)
}

func (m marks) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	e, err := m.l.Get(ctx, tag)
	if err != nil {
		return segment.Loaded{}, err
	}
	mark, _ := strconv.ParseInt(string(e.Value), 10, 64)
	start := max(mark, floor)
	if _, err := m.l.Update(ctx, tag, fmt.Append(nil, start+n), e.Revision); err != nil {
		return segment.Loaded{}, err
	}
	if m.hang(); m.l.p.lives != m.l.life {
		return segment.Loaded{}, errDown
	}
	if mark < floor {
		m.l.p.member.WentBack("a mark was below a floor")
	}
	return segment.Loaded{Range: segment.Range{Start: start, End: start + n}}, nil
}

// hang lets a worker stand still during a load that may rest on a restore, until the registry is resumed.
func (m marks) hang() {
	p, w := m.l.p, m.l.p.w
	if w.depth > 0 || w.quiet || !w.isBlind() || !w.one(2) {
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
	for epoch := w.epoch; w.epoch == epoch && w.lastEnd < epoch && !w.one(150); {
		w.step()
	}
}

// load loads a range; half of it is issued at once.
func (p *proc) load(ctx context.Context) {
	tag, life := tagNames[p.w.rnd.IntN(2)], p.lives
	if p.held {
		return
	}
	l, err := p.store.Load(ctx, tag, 4+p.w.rnd.Int64N(10), p.floor[tag])
	if err != nil || p.lives != life || p.held {
		return
	}
	p.w.log("%s loads %s [%d, %d)", p.name, tag, l.Start, l.End)
	p.floor[tag] = max(p.floor[tag], l.End)
	half := l.Start + l.Len()/2
	p.w.loads = append(p.w.loads, loaded{p, tag, l.End})
	i := issue{tag, segment.Range{Start: l.Start, End: half}, p.name, p.w.epoch}
	p.w.issue(i, p.w.isBlind())
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
	p.w.issue(i, p.w.isBlind() || !p.isAware())
}

// check checks, as a worker does now and then. One that finds all in order must not remember what a restore undid. Of a
// key that was taken over from one who lives, two histories may have the same revision; then the other one proves.
func (p *proc) check(ctx context.Context, thorough bool) error {
	w, life, key := p.w, p.lives, p.member.own.Key
	remembers := key != "" && key == p.wroteKey && w.taken < p.wrote && p.wrote < w.restored &&
		p.member.Stopped() == nil && (!p.volatile || len(p.member.own.Taken) == 0)
	if o, err := decodeOwn(w.bkt.entries[ownPrefix+key].Value); err == nil && o.Token == p.member.own.Written.Token {
		remembers = false // a copy of its last write that was late
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

func (d *disk) read(name string) ([]byte, durable.Identity, error) {
	data, ok := d.data[name]
	if !ok {
		return nil, durable.Identity{}, os.ErrNotExist
	}
	return data, durable.Identity{Inode: 1}, nil
}

func (d *disk) replace(name string, data func(durable.Identity) []byte) error {
	if d.data == nil {
		d.data = map[string][]byte{}
	}
	if d.hangs {
		return errDiskHangs
	}
	if d.left--; d.left == 0 || d.left < 0 && !d.w.quiet && !d.w.opts.noFaults && d.w.one(60) {
		if d.hangs = true; d.w.one(2) {
			d.data[name] = data(durable.Identity{Inode: 1})
		}
		return errDiskHangs
	}
	d.data[name] = data(durable.Identity{Inode: 1})
	if name == journalName {
		d.past = append(d.past, d.data[name])
	}
	return nil
}

// A command is an operator's command, which may be slow, and be interrupted between any two steps.
type command struct {
	w      *world
	proc   *proc // its link to the bucket
	name   string
	o      Operator
	c      *Case
	raises []Raise
	next   int
	tight  bool // it counts on those who have stopped, which is all that they promise
}

// unknownTo returns how far tags were loaded by those who have not joined an incident, or forgot it. The others lift
// the marks by themselves.
func (w *world) unknownTo(incident string) map[string]int64 {
	joined := map[string]bool{}
	for key, e := range w.bkt.entries {
		if o, err := decodeOwn(e.Value); strings.HasPrefix(key, ownPrefix) && err == nil && o.Incident == incident {
			joined[o.Name] = true
		}
	}
	to := map[string]int64{}
	for _, l := range w.loads {
		known := l.by.up && joined[fmt.Sprint(l.by.name, ".", l.by.lives)] && l.by.floor[l.tag] >= l.end
		if !known {
			to[l.tag] = max(to[l.tag], l.end)
		}
	}
	return to
}

func (w *world) newOp(n int) *command {
	p := &proc{w: w, name: fmt.Sprint("op", n), floor: map[string]int64{}}
	p.member, _ = open(Config{Serving: link{p, 0}}, nil)
	p.member.loaded = (*ranges)(p)
	return &command{w: w, proc: p, name: p.name, o: Operator{
		Bucket: link{p, 0}, Tags: link{p, 0}, Kind: "kv", Name: p.name, Now: func() time.Time { return at(w.now) },
	}}
}

// step does one step of the command; it reports false once that is over.
func (o *command) step(ctx context.Context) bool {
	err := o.try(ctx)
	if err != nil {
		o.w.log("%s: %v", o.name, err)
	}
	if errors.Is(err, ErrChanged) {
		o.next = 0
		return true
	}
	return err == nil && o.next < 5
}

func (o *command) try(ctx context.Context) (err error) {
	switch o.next {
	case 0:
		c, err := o.o.Look(ctx, o.c)
		if err != nil {
			return err
		}
		if o.c = &c; c.Identity.Incident == nil && c.Missing == nil {
			return ErrNoIncident
		}
		o.w.log("%s reads incident %s", o.name, c.Identity.Incident.ID[:4])
	case 1:
		if o.o.mayRaise(*o.c) != nil && o.o.Wait(*o.c) > 0 {
			return nil
		}
		c, err := o.o.Look(ctx, o.c)
		if err != nil {
			return err
		}
		o.c = &c
		if c.Identity.Incident == nil {
			return ErrNoIncident
		}
		to := map[string]int64{}
		for _, tag := range tagNames {
			to[tag] = c.Marks[tag] + max(0, o.w.top[tag]-o.w.base[tag]) + 1
		}
		if o.tight {
			to = o.w.unknownTo(c.Identity.Incident.ID)
		}
		if o.raises, err = o.o.Raises(c, to); err != nil {
			return err
		}
	case 2:
		if err = o.o.Plan(ctx, o.c, o.raises); err == nil {
			o.w.log("%s plans %v", o.name, o.raises)
		}
	case 3:
		err = o.o.Raise(ctx, o.raises, func(int) {})
	case 4:
		before := o.w.epoch
		if err = o.o.End(ctx, o.c, true); err == nil {
			o.w.log("%s ends %s", o.name, o.c.Identity.Era()[:4])
			if before == o.w.epoch {
				o.w.lastEnd = o.w.epoch
			}
		}
	}
	if err == nil {
		o.next++
	}
	return err
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
	saved.saved = w.now
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

func (w *world) bring(b bucket) {
	w.bkt, w.past = &b, nil
	w.epoch++
	w.restores++
	w.restored, w.taken, w.detected = w.now, b.saved, -1
	w.latest = max(w.latest, b.saved)
	for _, tag := range tagNames {
		w.base[tag], _ = strconv.ParseInt(string(b.entries[tag].Value), 10, 64)
	}
	var id Identity
	_ = json.Unmarshal(b.entries[identityKey].Value, &id)
	w.log("RESTORE at revision %d, marks %v, incident open %t", b.last, w.base, id.Incident != nil)
	if id.Incident != nil {
		w.detected = w.now
	}
}

// operate lets an operator act where the registry is stopped.
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
	if id, err := DecodeIdentity(w.bkt.entries[identityKey].Value); err == nil && id.Incident != nil {
		w.ops[n] = w.newOp(n)
		w.ops[n].tight = w.one(3)
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
	for range 900 {
		for _, p := range w.procs {
			if !p.up {
				p.start()
			}
		}
		if w.step(); w.breach != nil {
			return
		}
	}
	id, err := DecodeIdentity(w.bkt.entries[identityKey].Value)
	if err != nil || id.Incident != nil && w.incidents-opened > 6 {
		w.fail("%d incidents in quiet times", w.incidents-opened)
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
	if w.restores < 2 && w.incidents > w.restores { // beyond that nobody may remember what was restored over
		w.fail("%d incidents for %d restores", w.incidents, w.restores)
	}
}
