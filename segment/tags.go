package segment

import (
	"hash/maphash"
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
// known not to exist, or too many unlisted tags are requested.
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

// found is called when a load found a tag that was not listed. The lock of its buffer is held.
func (s *tagSet) found(tag string, now time.Duration) {
	s.names.release()
	s.names.found(tag, now)
}

// forget removes a closed buffer, whose lock is held. The tag's next buffer will continue at floor.
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
