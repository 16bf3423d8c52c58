package segment

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"
)

// What is remembered of tags that are not in an allocator's memory is bounded:
const (
	// unknownFor is how long a tag counts as unknown after the store said so, or
	// as one that cannot be served.
	unknownFor = 3 * time.Second
	// maxUnknown is how many such tags are remembered; then the oldest goes.
	maxUnknown = 10_000
	// lookupRate is how many tags that no listing had are looked up a second, and
	// how many at once after a rest. maxStrangers is how many may be under way.
	lookupRate   = 1000
	maxStrangers = 1024
)

// names is what an allocator knows of tags it has no ranges of. A stampede on
// names that do not exist, one or very many, ends here: it reaches the store
// lookupRate times a second at most, in a lane of its own.
type names struct {
	seed maphash.Seed

	mu      sync.Mutex
	known   map[uint64]struct{}      // hashes of the tags that the last listing had; nil before the first
	listed  time.Duration            // when that began
	fresh   map[uint64]time.Duration // known since, and when that was learnt
	unknown map[string]int           // index in verdicts
	// verdicts is a ring: next is the oldest once there are maxUnknown.
	verdicts  []verdict
	next      int
	strangers int // tags under way that no listing had
	lookups   bucket
	// floors holds, of tags that were stopped, the highest end ever loaded. Should
	// the store lose its memory of them, nothing below is loaded again.
	floors map[string]int64
}

// A verdict is that of a store that has no such tag, or cannot serve it.
type verdict struct {
	tag   string
	err   error
	until time.Duration
}

func newNames() *names {
	return &names{
		seed: maphash.MakeSeed(), fresh: make(map[uint64]time.Duration), unknown: make(map[string]int),
		floors: make(map[string]int64), lookups: bucket{tokens: lookupRate},
	}
}

func (n *names) hash(tag string) uint64 { return maphash.String(n.seed, tag) }

// admit reports whether a tag that is not in memory may be loaded, and whether
// it is a stranger, which must be [names.release]d. makes says that it will be
// made if there is none. recent is how old a listing may be that stands in for a
// look-up where there are too many.
func (n *names) admit(tag string, now, recent time.Duration, makes bool) (stranger bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.unknown[tag]; ok && now < n.verdicts[i].until {
		return false, n.verdicts[i].err
	}
	if n.knownLocked(tag) {
		return false, nil
	}
	if n.strangers < maxStrangers && (makes || n.lookups.take(now)) {
		n.strangers++
		return true, nil
	}
	if makes || now-n.listed > recent {
		return false, ErrTooMany
	}
	return false, ErrUnknownTag
}

// knownLocked reports whether a tag is in the store, as far as is known; all
// are before the first listing.
func (n *names) knownLocked(tag string) bool {
	if n.known == nil {
		return true
	}
	h := n.hash(tag)
	_, known := n.known[h]
	_, fresh := n.fresh[h]
	return known || fresh
}

// release ends what admit began for a stranger.
func (n *names) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.strangers--
}

// refuse remembers for a while that the store does not serve a tag.
func (n *names) refuse(tag string, err error, now time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := verdict{tag, err, now + unknownFor}
	if len(n.verdicts) < maxUnknown {
		n.unknown[tag] = len(n.verdicts)
		n.verdicts = append(n.verdicts, v)
		return
	}
	if old := n.verdicts[n.next].tag; n.unknown[old] == n.next {
		delete(n.unknown, old)
	}
	n.unknown[tag] = n.next
	n.verdicts[n.next] = v
	n.next = (n.next + 1) % maxUnknown
}

// meet notes that the store has a tag, as was learnt at that time.
func (n *names) meet(tag string, at time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.unknown, tag)
	n.fresh[n.hash(tag)] = at
}

// list takes over what a listing had that began at that time. What was learnt
// since stays.
func (n *names) list(tags []Tag, began time.Duration) {
	known := make(map[uint64]struct{}, len(tags))
	for _, t := range tags {
		known[n.hash(t.Name)] = struct{}{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known, n.listed = known, began
	for tag, i := range n.unknown {
		if _, ok := known[n.hash(tag)]; ok && n.verdicts[i].until-unknownFor < began {
			delete(n.unknown, tag)
		}
	}
	maps.DeleteFunc(n.fresh, func(_ uint64, at time.Duration) bool { return at < began })
}

// listedLast reports whether the last listing had a tag.
func (n *names) listedLast(tag string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.known[n.hash(tag)]
	return ok
}

// bury remembers the floor of a tag that is stopped.
func (n *names) bury(tag string, floor int64) {
	if floor == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.floors[tag] = floor
}

func (n *names) floor(tag string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.floors[tag]
}

// A bucket holds lookupRate tokens at most, and gets as many a second.
type bucket struct {
	tokens float64
	at     time.Duration
}

func (b *bucket) take(now time.Duration) bool {
	b.tokens = min(lookupRate, b.tokens+lookupRate*(now-b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
