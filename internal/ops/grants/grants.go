// Package grants records which worker was given which IDs, and reads the records; it is internal to natsid and may
// change.
//
// A grant is a load, that is a range of a tag, or a window of a worker number. Each process collects its grants, and
// its other writes of the marks of tags, and writes them into one stream, an entry a second at most: see [Log].
// `natsid explain` finds the grant of an ID in it, and `natsid audit` checks that no two grants overlap.
//
// No ID depends on it: nothing reads the stream to issue one. An entry that is lost costs provenance, never
// uniqueness. Gaps are detected: the entries of a process are numbered, and count the grants that could not be kept.
// Each write of a mark names the revision that it replaced and the revision that it wrote. So the writes of a tag
// form a chain, in which an unrecorded write is a missing link: see [Audit].
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
// which rose to after. Read is the revision that the write replaced. The other fields are differences, to be short:
// written less read, first less the mark below it, time less the time when the replaced entry was written (the age).
// Written is empty if it is unknown.
//
// A line + is a load of the same tag and number as the load before, as differences from that load: first from its
// end, the length from its length, read from its written, and time from its time. Trailing fields that are 0 are left
// out, and the age is left out if read is the written of the load before. So a tag that is loaded a thousand times a
// second costs about 10 bytes a load.
//
// All loads and writes of an entry are of one era of the registry. Where the marks went back, an era ends, and the
// revisions of the next era cannot be compared with those before.
//
// A line d is IDs of one or several such loads that the process discarded: they were never issued.
//
// All entries have one subject, since an entry holds loads of many tags. The loads of a tag rise in the stream, up to
// a disorder of a second or two: so a load is found by bisection, if the tag is loaded often: see [Reader.FindLoads].
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
	Read        uint64 // revision of that mark; likewise
	Written     uint64 // revision of the mark that the load wrote; 0 if unknown
	Replaced    int64  // when the mark that it read was written, by the store's clock, Unix ms; 0 if unknown
	Time        int64  // when it was loaded, by the worker's clock, Unix ms
	Era         string // of the registry: see [Head]
}

// A Write is a write of a tag's mark that granted nothing, or the write of a failed load: its range may be granted
// later, by a [Load] of the same revision.
type Write struct {
	Tag           string
	How           string // load, create, update, raise, delete, revive, lift or poll: see segment.How
	Before, After int64  // the mark; Before is 0 if there was none
	Read          uint64 // replaced revision; 0 if there was none
	Written       uint64 // revision that it wrote; 0 if unknown, and then it may not have landed
	Replaced      int64  // as in a Load
	Time          int64  // when it was written, by the worker's clock, Unix ms
	Era           string // of the registry: see [Head]
}

// A Discard is IDs that a worker loaded and never issued, for example because the marks went back.
type Discard struct {
	Tag         string
	First, Last int64
	Time        int64 // when it was discarded, by the worker's clock, Unix ms
}

// A Window is the times [From, Until) that a worker could put into snowflakes under a number, Unix ms.
type Window struct {
	Number      int
	From, Until int64
	How         string // acquired, resumed, renewed or closed: see workerid.How
	Time        int64  // when it was written, by the worker's clock, Unix ms
}

// Closed is the How of a window after which the process issued no more IDs under the number in this claim. Resumed is
// the How of a window that continues a window of an earlier process of the worker.
const (
	Closed  = "closed"
	Resumed = "resumed"
)

// A Head is the first line of an entry.
type Head struct {
	Version  int    `json:"grants"` // 1
	Instance string `json:"instance"`
	Process  string `json:"process"`            // random, one per process
	Segments string `json:"segments,omitempty"` // registry of the marks; "" if unknown
	Era      string `json:"era,omitempty"`      // of the registry; of all loads and writes
	Numbers  string `json:"numbers,omitempty"`  // registry of the worker numbers; "" if unknown
	Layout   string `json:"layout"`             // of snowflakes, with epoch and unit, both in ms
	Epoch    int64  `json:"epoch"`
	Unit     int64  `json:"unit"`
	Store    string `json:"store"`          // the store of the tags
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

// split leaves the loads and writes of one era in b, and returns the others.
func (b *Batch) split() (others Batch) {
	switch {
	case len(b.Loads) > 0:
		b.Era = b.Loads[0].Era
	case len(b.Writes) > 0:
		b.Era = b.Writes[0].Era
	}
	b.Loads, others.Loads = partition(b.Loads, func(l Load) bool { return l.Era == b.Era })
	b.Writes, others.Writes = partition(b.Writes, func(w Write) bool { return w.Era == b.Era })
	return others
}

// partition returns the elements for which is holds, and the others.
func partition[T any](all []T, is func(T) bool) (these, others []T) {
	for _, v := range all {
		if is(v) {
			these = append(these, v)
		} else {
			others = append(others, v)
		}
	}
	return these, others
}

// isEmpty reports whether the entry has no grant and no write.
func (b *Batch) isEmpty() bool {
	return len(b.Windows)+len(b.Loads)+len(b.Writes)+len(b.Discards) == 0
}
