package segment

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"
)

// What is remembered of tags that are not in an allocator's memory is bounded:
const (
	// refusedFor is how long a tag is refused without a lookup after the store said that it does not exist, or that it
	// cannot be served.
	refusedFor = 3 * time.Second
	// maxRefused is how many such tags are remembered; then each new one replaces the oldest.
	maxRefused = 10_000
	// lookupRate is how many unlisted tags are looked up per second, and how many at once after a rest. maxUnlisted is
	// how many lookups of them may be under way.
	lookupRate  = 1000
	maxUnlisted = 1024
	// maxFresh is how many tags are remembered that were found since the last listing; others count as unlisted, and
	// are looked up, until a listing has them.
	maxFresh = 100_000
	// maxFloors is how many floors are remembered beyond one for each tag in the store.
	maxFloors = 100_000
)

// Names is what an allocator knows of tags that it has no ranges of. A flood of requests for names that do not exist,
// one or very many, ends here: it reaches the store lookupRate times per second at most, in a lane of its own.
//
// Beyond that rate the listing decides: an unlisted tag is refused with ErrUnknownTag, or with ErrTooMany where tags
// are created on first use or the listing is too old. So during a flood, and only then, a tag that was added to the
// store within the last poll interval, without news, may not be found.
type names struct {
	seed maphash.Seed

	mu       sync.Mutex
	listed   map[uint64]struct{}      // hashes of the tags in the last listing; nil before the first
	listedAt time.Duration            // when that began
	fresh    map[uint64]time.Duration // tags that exist, and when that was learnt, since that listing
	refused  map[string]int           // index in refusals
	// refusals is a ring: oldest is the oldest once there are maxRefused.
	refusals []refusal
	oldest   int
	unlisted int // lookups of unlisted tags under way
	lookups  tokenBucket
	// floors are those of tags that were stopped or idle, or that an earlier life loaded, raises those of tags that
	// were raised while they were not in memory: about 300 bytes each.
	//
	// Law: uniqueness does not rest on those that are dropped where there are too many. A floor counts only where the
	// store went back, and then the floors of all workers repair it. A worker that forgot one of its own loads says so
	// there: see [Allocator.Forgot]. A raise is no load.
	floors map[string]Floor
	raises map[string]Floor
	extra  int  // floors of an earlier life, whose tags no listing has confirmed yet
	forgot bool // a floor was dropped
}

// A refusal is a cached answer of the store: it has no such tag, or cannot serve it.
type refusal struct {
	tag   string
	err   error
	until time.Duration
}

func newNames() *names {
	return &names{
		seed: maphash.MakeSeed(), fresh: make(map[uint64]time.Duration), refused: make(map[string]int),
		floors: make(map[string]Floor), raises: make(map[string]Floor), lookups: tokenBucket{tokens: lookupRate},
	}
}

func (n *names) hash(tag string) uint64 { return maphash.String(n.seed, tag) }

// admit reports whether a tag that is not in memory may be loaded, and whether it is unlisted; then [names.release]
// must follow. creates says that the tag will be created if it does not exist. recent is the maximum age of a listing
// that replaces a lookup where there are too many.
func (n *names) admit(tag string, now, recent time.Duration, creates bool) (unlisted bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.refused[tag]; ok && now < n.refusals[i].until {
		return false, n.refusals[i].err
	}
	if n.existsLocked(tag) {
		return false, nil
	}
	if n.unlisted < maxUnlisted && n.lookups.take(now) {
		n.unlisted++
		return true, nil
	}
	if creates || now-n.listedAt > recent {
		return false, ErrTooMany
	}
	return false, ErrUnknownTag
}

// existsLocked reports whether a tag is in the store, as far as is known; before the first listing all are.
func (n *names) existsLocked(tag string) bool {
	if n.listed == nil {
		return true
	}
	h := n.hash(tag)
	_, listed := n.listed[h]
	_, fresh := n.fresh[h]
	return listed || fresh
}

// release ends what admit began for an unlisted tag.
func (n *names) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unlisted--
}

// refuse remembers for a while that the store does not serve a tag.
func (n *names) refuse(tag string, err error, now time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := refusal{tag, err, now + refusedFor}
	if len(n.refusals) < maxRefused {
		n.refused[tag] = len(n.refusals)
		n.refusals = append(n.refusals, r)
		return
	}
	if old := n.refusals[n.oldest].tag; n.refused[old] == n.oldest {
		delete(n.refused, old)
	}
	n.refused[tag] = n.oldest
	n.refusals[n.oldest] = r
	n.oldest = (n.oldest + 1) % maxRefused
}

// found notes that the store had a tag at that time.
func (n *names) found(tag string, at time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.refused, tag)
	h := n.hash(tag)
	if _, ok := n.fresh[h]; ok || len(n.fresh) < maxFresh {
		n.fresh[h] = at
	}
}

// list takes over a listing that began at that time. What was learnt since then remains.
func (n *names) list(tags []Tag, began time.Duration) {
	listed := make(map[uint64]struct{}, len(tags))
	for _, t := range tags {
		listed[n.hash(t.Name)] = struct{}{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listed, n.listedAt, n.extra = listed, began, 0
	n.boundFloors()
	for tag, i := range n.refused {
		if _, ok := listed[n.hash(tag)]; ok && n.refusals[i].until-refusedFor < began {
			delete(n.refused, tag)
		}
	}
	maps.DeleteFunc(n.fresh, func(_ uint64, at time.Duration) bool { return at < began })
}

// inListing reports whether the last listing had a tag.
func (n *names) inListing(tag string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.listed[n.hash(tag)]
	return ok
}

// keepFloor remembers the floor of a tag that is not in memory any more, unless it is 0.
func (n *names) keepFloor(tag string, floor Floor) {
	if floor.End == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.floors[tag]
	if floor.Live && floor.Step == 0 { // its buffer has not seen the tag
		floor.Live, floor.Step = known.Live, known.Step
	}
	floor.End = max(floor.End, known.End)
	n.floors[tag] = floor //mutant:keep-floor
	n.boundFloors()
}

// deleted notes that a tag is deleted, so that nothing that is remembered of it brings it back to life.
func (n *names) deleted(tag string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, ok := n.floors[tag]; ok {
		n.floors[tag] = Floor{End: f.End}
	}
}

// keepRaise remembers the least ID of a tag that is not in memory, unless it is 0.
func (n *names) keepRaise(tag string, least int64) {
	if least == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.raises[tag] = Floor{End: max(least, n.raises[tag].End)}
	n.boundFloors()
}

// remember is keepFloor for the floors of an earlier life: none is dropped before the first listing.
func (n *names) remember(floors map[string]Floor) {
	n.mu.Lock()
	n.extra = len(floors)
	n.mu.Unlock()
	for tag, f := range floors {
		n.keepFloor(tag, f)
	}
}

// boundFloors drops floors where there are too many, first those of tags that the store does not have.
func (n *names) boundFloors() {
	most := maxFloors + max(len(n.listed), n.extra)
	n.forgot = n.drop(n.floors, most) || n.forgot
	n.drop(n.raises, most)
}

func (n *names) drop(floors map[string]Floor, most int) (dropped bool) {
	if len(floors) <= most {
		return false
	}
	for _, all := range []bool{false, true} {
		for tag := range floors {
			if len(floors) <= most-maxFloors/10 { // rarely, since it takes long
				return true
			}
			if _, listed := n.listed[n.hash(tag)]; all || !listed {
				delete(floors, tag)
			}
		}
	}
	return true
}

// allFloors returns what keepFloor and keepRaise remembered.
func (n *names) allFloors() map[string]Floor {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := maps.Clone(n.floors)
	for tag, raise := range n.raises {
		if raise.End > all[tag].End {
			all[tag] = raise
		}
	}
	return all
}

// floor returns the floor that is remembered of a tag, or 0.
func (n *names) floor(tag string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.floors[tag].End, n.raises[tag].End)
}

// hasForgotten reports whether a floor was dropped.
func (n *names) hasForgotten() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forgot
}

// A tokenBucket holds lookupRate tokens at most, and gains as many per second.
type tokenBucket struct {
	tokens float64
	at     time.Duration
}

func (b *tokenBucket) take(now time.Duration) bool {
	b.tokens = min(lookupRate, b.tokens+lookupRate*(now-b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
