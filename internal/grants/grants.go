// Package grants writes down which worker was given which IDs, and reads it again; it is internal to natsid and may
// change.
//
// A grant is a load, that is a range of a tag, or a window of a worker number. Each process collects its grants, and
// what else it wrote into the marks of tags, and writes them into one stream, an entry a second at most: see [Log].
// `natsid explain` finds the grant of an ID in it, and `natsid audit` checks that no two grants overlap.
//
// No ID depends on it: nothing reads the stream to issue one. An entry that is lost costs provenance, never uniqueness.
// What is missing is shown as missing: the entries of a process are numbered, and count what could not be kept. Each
// write of a mark names the revision that it replaced and the one that it wrote. So the writes of a tag form a chain,
// in which a write that nobody wrote down is a missing link: see [Audit].
//
// # Entries
//
// An entry is text: a [Head] as JSON on the first line, then a line for each grant and for each other write.
//
//	w <number> <from> <until> <how> <time>
//	t <number> <first> <last> <read> <written> <time> <below> <age> <tag>
//	+ <gap> <longer> <read> <written> <time> <below> <age>
//	c <how> <after> <up> <read> <written> <time> <age> <tag>
//	d <first> <last> <time> <tag>
//
// Times are Unix milliseconds. An empty field is 0. A line t is a load, and a line c another write of the tag's mark,
// which went up to after. Read is the revision that the write replaced. The rest is differences, so that it is short:
// written less read, first less the mark below it, time less when the replaced entry was written (the age). Written is
// empty if it is not known.
//
// A line + is a load of the same tag and number as the load before, as differences from that: first from its end, the
// length from its length, read from what it has written, and time from its time. Fields at its end that are 0 are left
// out, and the age where that load wrote what this one read. So a tag that is loaded a thousand times a second costs
// about 10 bytes a load.
//
// All loads and writes of an entry are of one era of the registry. Where the marks went back, an era ends, and the
// revisions of the next one say nothing of those before.
//
// A line d is IDs of one or several such loads of the process that it discarded: they were never issued.
//
// All entries have one subject, for an entry holds loads of many tags. The loads of a tag rise in the stream, but for
// those of a second or two: so that a load is found by bisection, if the tag is loaded often: see [Reader.FindLoads].
// Windows are found by the time in the snowflake.
package grants

// Key is the key of all entries in their bucket.
const Key = "log"

// A Load is a range of a tag that a worker loaded. Its write raised the mark to Last+1.
type Load struct {
	Tag         string
	First, Last int64
	Number      int    // of the worker at that time; -1 if it had none
	Before      int64  // the mark as the load read it; 0 if there was none
	Read        uint64 // its revision; likewise
	Written     uint64 // revision of the mark that the load wrote; 0 if that is not known
	Replaced    int64  // when the mark that it read was written, by the store's clock, Unix ms; 0 if that is not known
	Time        int64  // when it was loaded, by the worker's clock, Unix ms
	Era         string // of the registry: see [Head]
}

// A Write is a write of a tag's mark that granted nothing, or that of a load which failed: that may be granted later,
// by a [Load] of the same revision.
type Write struct {
	Tag           string
	How           string // load, create, update, raise, delete, revive, lift or poll: see segment.How
	Before, After int64  // the mark; Before is 0 if there was none
	Read          uint64 // revision that it replaced; 0 if there was none
	Written       uint64 // revision that it wrote; 0 if it is not known, and then it may not have landed
	Replaced      int64  // as in a Load
	Time          int64  // when it was written, by the worker's clock, Unix ms
	Era           string // of the registry: see [Head]
}

// A Discard is IDs that a worker loaded and never issued, as after marks that went back.
type Discard struct {
	Tag         string
	First, Last int64
	Time        int64 // when it was discarded, by the worker's clock, Unix ms
}

// A Window is what a worker could put into snowflakes under a number: the times [From, Until), Unix ms.
type Window struct {
	Number      int
	From, Until int64
	How         string // acquired, resumed, renewed or closed: see workerid.How
	Time        int64  // when it was written, by the worker's clock, Unix ms
}

// Closed is the How of a window after which the process issued nothing more under the number in this claim. Resumed is
// that of one that continues the window of an earlier life of the worker.
const (
	Closed  = "closed"
	Resumed = "resumed"
)

// A Head begins an entry.
type Head struct {
	Version  int    `json:"grants"` // 1
	Instance string `json:"instance"`
	Process  string `json:"process"`            // random, one per process
	Segments string `json:"segments,omitempty"` // registry of the marks; "" if it is not known
	Era      string `json:"era,omitempty"`      // of the registry, as the process knew it: that of all loads and writes
	Numbers  string `json:"numbers,omitempty"`  // registry of the worker numbers; "" if it is not known
	Layout   string `json:"layout"`             // of snowflakes, with epoch and unit, both in ms
	Epoch    int64  `json:"epoch"`
	Unit     int64  `json:"unit"`
	Store    string `json:"store"`          // where the tags are
	Entry    uint64 `json:"entry"`          // 1, 2, 3, … of this process
	Lost     uint64 `json:"lost,omitempty"` // grants since the entry before that could not be kept
	End      bool   `json:"end,omitempty"`  // the last entry: the process stopped cleanly
}

// A Batch is an entry.
type Batch struct {
	Head
	Windows  []Window
	Loads    []Load
	Writes   []Write
	Discards []Discard
}

// split leaves the loads and writes of one era in b, and returns those of others.
func (b *Batch) split() (others Batch) {
	switch {
	case len(b.Loads) > 0:
		b.Era = b.Loads[0].Era
	case len(b.Writes) > 0:
		b.Era = b.Writes[0].Era
	}
	loads, writes := b.Loads, b.Writes
	b.Loads, b.Writes = nil, nil
	for _, l := range loads {
		into := &others
		if l.Era == b.Era {
			into = b
		}
		into.Loads = append(into.Loads, l)
	}
	for _, w := range writes {
		into := &others
		if w.Era == b.Era {
			into = b
		}
		into.Writes = append(into.Writes, w)
	}
	return others
}

// empty reports whether the entry has no grant and no write.
func (b *Batch) empty() bool { return len(b.Windows)+len(b.Loads)+len(b.Writes)+len(b.Discards) == 0 }
