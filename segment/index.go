package segment

import (
	"hash/maphash"
	"sync/atomic"
)

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
