package segment

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A tagSet holds the buffers of all tags in memory, and decides which other tags may be loaded.
//
// Lock order: a buffer's lock, then mu, then that of names.
type tagSet struct {
	index  // read without a lock, changed under mu
	cfg    *Config
	names  *names
	source *source
	clock  clock
	rule   stepRule

	mu      sync.Mutex
	closed  bool
	dated   chan struct{}        // closed once a tag has a period
	periods map[*buffer]struct{} // buffers of daily, monthly and yearly tags
}

func newTagSet(cfg *Config, source *source) *tagSet {
	s := &tagSet{
		cfg: cfg, names: newNames(), source: source, clock: clock{time.Now()}, dated: make(chan struct{}),
		rule: stepRule{max: cfg.MaxStep, time: cfg.StepTime},
	}
	s.index.init()
	return s
}

// getOrKeep returns the buffer of a tag. If there is none, it returns nil, and the tag's next buffer will start at ID
// least or above. Once the set is closed there is no buffer.
func (s *tagSet) getOrKeep(tag string, least int64) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.get(tag)
	if b == nil || s.closed {
		s.names.keepRaise(tag, least)
		return nil
	}
	return b
}

// snapshot returns every buffer that exists now. Unlike all, it waits for a buffer that is being added.
func (s *tagSet) snapshot() []*buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(s.all)
}

// obtain returns the buffer of a tag, which it creates if necessary. Or it returns why the tag is refused: the tag is
// known not to exist, or too many tags that the store's last list lacks are requested.
func (s *tagSet) obtain(tag string) (*buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if b := s.get(tag); b != nil {
		return b, nil
	}
	recent := 2 * s.cfg.Poll
	unlisted, err := s.names.admit(tag, s.clock.now(), recent, s.source.creates(tag))
	if err != nil {
		return nil, err
	}
	b := newBuffer(s, strings.Clone(tag)) // the caller's string may be part of a message
	b.unlisted, b.supply.stock.floor = unlisted, s.names.floor(tag)
	s.put(b)
	return b, nil
}

// close refuses all waiting requests. After it no buffer is created.
func (s *tagSet) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for b := range s.all { // the closed set adds none
		b.close()
	}
}

// dropIdle removes idle tags while too many are in memory. It keeps a tag that the last listing lacks: the store may
// have lost the tag, and the loaded IDs remain valid.
func (s *tagSet) dropIdle() {
	for b := range s.all {
		if s.size() <= s.cfg.MaxIdle || s.source.trouble() != nil {
			return // while loads fail, the IDs in memory are all that can be issued
		}
		if s.names.inListing(b.tag) {
			b.dropIfIdle(s.cfg.Idle)
		}
	}
}

func (s *tagSet) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.size
}

// found is called when a load found a tag that the store's last list lacked. The lock of its buffer is held.
func (s *tagSet) found(tag string, now time.Duration) {
	s.names.release()
	s.names.found(tag, now)
}

// forget removes a closed buffer, whose lock is held. The tag's next buffer will load at floor or above.
func (s *tagSet) forget(b *buffer, floor Floor, unlisted bool) {
	s.names.keepFloor(b.tag, floor)
	if unlisted {
		s.names.release()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(b)
	delete(s.periods, b)
}

// An index finds buffers by tag. A lookup takes no lock and allocates nothing: hash chains are immutable, and a change
// replaces a whole chain. While a change is under way, a lookup may miss the tag that is added, or find the one that is
// removed, whose buffer is closed. The caller must serialize changes.
type index struct {
	seed  maphash.Seed
	table atomic.Pointer[[]chain] // its length is a power of two
	size  int
}

// A chain is the entries whose hashes fall into one place of the table.
type chain = atomic.Pointer[entry]

type entry struct {
	b    *buffer
	next *entry
}

func (x *index) init() {
	x.seed = maphash.MakeSeed()
	x.table.Store(new(make([]chain, 16)))
}

func (x *index) chainOf(table []chain, tag string) *chain {
	return &table[maphash.String(x.seed, tag)&uint64(len(table)-1)]
}

// get returns the buffer of a tag, or nil.
func (x *index) get(tag string) *buffer {
	for e := x.chainOf(*x.table.Load(), tag).Load(); e != nil; e = e.next {
		if e.b.tag == tag {
			return e.b
		}
	}
	return nil
}

// put adds the buffer of a tag that is not in the index.
func (x *index) put(b *buffer) {
	table := *x.table.Load()
	if x.size == len(table) {
		table = x.grow(table)
	}
	x.push(table, b)
	x.size++
}

func (x *index) push(table []chain, b *buffer) {
	c := x.chainOf(table, b.tag)
	c.Store(&entry{b, c.Load()})
}

// grow replaces the table by one twice as long.
func (x *index) grow(old []chain) []chain {
	table := make([]chain, 2*len(old))
	for b := range buffers(old) {
		x.push(table, b)
	}
	x.table.Store(&table)
	return table
}

// remove removes a buffer, if the index has it.
func (x *index) remove(b *buffer) {
	c := x.chainOf(*x.table.Load(), b.tag)
	var rest *entry
	found := false
	for e := c.Load(); e != nil; e = e.next {
		if e.b == b {
			found = true
		} else {
			rest = &entry{e.b, rest}
		}
	}
	if found {
		c.Store(rest)
		x.size--
	}
}

// all calls yield for every buffer, in no order, until it returns false. It needs no lock.
func (x *index) all(yield func(*buffer) bool) { buffers(*x.table.Load())(yield) }

func buffers(table []chain) func(yield func(*buffer) bool) {
	return func(yield func(*buffer) bool) {
		for i := range table {
			for e := table[i].Load(); e != nil; e = e.next {
				if !yield(e.b) {
					return
				}
			}
		}
	}
}

// Bounds of the memory for tags that have no buffer:
const (
	// refusedFor is how long a tag is refused without a lookup after the store reported that the tag does not exist or
	// cannot be served.
	refusedFor = 3 * time.Second
	// maxRefused is how many such tags are remembered; each further one replaces another.
	maxRefused = 10_000
	// maxLookups is how many unlisted tags are looked up in one second, maxUnlisted how many such lookups may be under
	// way.
	maxLookups  = 1000
	maxUnlisted = 1024
	// maxFresh is how many tags found since the last listing are remembered. Further tags count as unlisted, and are
	// looked up, until a listing has them.
	maxFresh = 100_000
)

// names is what an allocator remembers of tags that have no buffer. It stops floods of requests for tags that do not
// exist, however many names they have: they reach the store at most maxLookups times in a second, in a lane of their
// own.
//
// Beyond that rate the listing decides: an unlisted tag is refused with ErrUnknownTag, or with ErrTooMany if tags are
// created on first use or the listing is too old. So a tag that was added to the store within the last poll interval,
// and not announced, may not be found during a flood, and only then.
type names struct {
	seed maphash.Seed

	mu       sync.Mutex
	listed   map[uint64]struct{}      // hashes of the tags in the last listing; nil before the first
	listedAt time.Duration            // when that listing began
	fresh    map[uint64]time.Duration // tags found since that listing, and when
	refused  map[string]refusal
	unlisted int           // lookups of unlisted tags under way
	lookups  int           // of unlisted tags in the second that began at
	second   time.Duration // this time
	// floors has a floor for each tag without a buffer that was stopped or idle, that a former process loaded, or whose
	// mark was raised. The store has or had each of these tags. A floor takes about 300 bytes.
	floors map[string]Floor
}

// A refusal is a cached answer of the store: the tag does not exist, or cannot be served.
type refusal struct {
	err   error
	until time.Duration
}

func newNames() *names {
	return &names{
		seed: maphash.MakeSeed(), fresh: make(map[uint64]time.Duration), refused: make(map[string]refusal),
		floors: make(map[string]Floor),
	}
}

func (n *names) hash(tag string) uint64 { return maphash.String(n.seed, tag) }

// admit returns an error if a tag that has no buffer may not be loaded. It also reports whether the tag is unlisted:
// then [names.release] must follow. creates says that the load creates a missing tag. Beyond the rate of lookups, admit
// answers by the last listing, if that is younger than recent.
func (n *names) admit(tag string, now, recent time.Duration, creates bool) (unlisted bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r, ok := n.refused[tag]; ok && now < r.until {
		return false, r.err
	}
	if n.existsLocked(tag) {
		return false, nil
	}
	if now-n.second >= time.Second {
		n.second, n.lookups = now, 0
	}
	if n.unlisted < maxUnlisted && n.lookups < maxLookups {
		n.unlisted++
		n.lookups++
		return true, nil
	}
	if creates || now-n.listedAt > recent {
		return false, ErrTooMany
	}
	return false, ErrUnknownTag
}

// existsLocked reports whether a tag is known to be in the store; before the first listing it returns true for all.
func (n *names) existsLocked(tag string) bool {
	if n.listed == nil {
		return true
	}
	h := n.hash(tag)
	_, listed := n.listed[h]
	_, fresh := n.fresh[h]
	return listed || fresh
}

// release ends the lookup that admit began for an unlisted tag.
func (n *names) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unlisted--
}

// refuse caches for refusedFor that the store does not serve a tag.
func (n *names) refuse(tag string, err error, now time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.refused {
		if len(n.refused) < maxRefused {
			break
		}
		delete(n.refused, other)
	}
	n.refused[tag] = refusal{err, now + refusedFor}
}

// found records that the store had a tag at the given time.
func (n *names) found(tag string, at time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.refused, tag)
	h := n.hash(tag)
	if _, ok := n.fresh[h]; ok || len(n.fresh) < maxFresh {
		n.fresh[h] = at
	}
}

// list replaces the known names by those of a listing that began at the given time, but keeps results of later lookups.
func (n *names) list(tags []Tag, began time.Duration) {
	listed := make(map[uint64]struct{}, len(tags))
	for _, t := range tags {
		listed[n.hash(t.Name)] = struct{}{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listed, n.listedAt = listed, began
	maps.DeleteFunc(n.refused, func(tag string, r refusal) bool {
		_, ok := listed[n.hash(tag)]
		return ok && r.until-refusedFor < began
	})
	maps.DeleteFunc(n.fresh, func(_ uint64, at time.Duration) bool { return at < began })
}

// inListing reports whether the last listing had a tag.
func (n *names) inListing(tag string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.listed[n.hash(tag)]
	return ok
}

// keepFloor keeps the floor of a tag (how far it was loaded) whose buffer was removed, unless that is 0.
func (n *names) keepFloor(tag string, floor Floor) {
	if floor.End == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.floors[tag]
	if floor.Live && floor.Step == 0 { // the removed buffer never saw the tag in the store
		floor.Live, floor.Step, floor.Rules, floor.Era = known.Live, known.Step, known.Rules, known.Era
	}
	floor = floor.with(known)
	n.floors[tag] = floor //mutant:keep-floor
}

// deleted records in the kept floor of a tag, if there is one, that the tag is deleted.
func (n *names) deleted(tag string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, ok := n.floors[tag]; ok {
		n.floors[tag] = Floor{End: f.End}
	}
}

// keepRaise keeps least, the lowest ID to be issued, for a tag that has no buffer; 0 is not kept.
func (n *names) keepRaise(tag string, least int64) {
	if least == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.floors[tag]
	f.End = max(f.End, least)
	n.floors[tag] = f
}

// allFloors returns the floors that keepFloor and keepRaise kept.
func (n *names) allFloors() map[string]Floor {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.floors)
}

// floor returns up to which ID a tag without a buffer was loaded, as far as keepFloor and keepRaise kept it, or 0.
func (n *names) floor(tag string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.floors[tag].End
}
