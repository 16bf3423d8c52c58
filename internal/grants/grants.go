// Package grants writes down which worker was given which IDs, and reads it again; it is internal to natsid and may
// change.
//
// A grant is a load, that is a range of a tag, or a window of a worker number. Each process collects its grants and
// writes them into one stream, an entry a second at most: see [Log]. `natsid explain` finds the grant of an ID in it,
// and `natsid audit` checks that no two grants overlap.
//
// No ID depends on it: nothing reads the stream to issue one. An entry that is lost costs provenance, never uniqueness.
// What is missing is shown as missing: the entries of a process are numbered, and count what could not be kept.
//
// # Entries
//
// An entry is text: a [Head] as JSON on the first line, then a line for each grant.
//
//	w <number> <from> <until> <how> <time>
//	t <number> <first> <last> <revision> <time> <tag>
//	+ <first> <last> <revision> <time>
//	d <first> <last> <time> <tag>
//
// Times are Unix milliseconds. A line + is a load of the same tag and number as the load before, as differences: first
// from the end of that load, last from first, revision and time from those of that load. So a tag that is loaded a
// thousand times a second costs about 12 bytes a load. A line d is IDs of one or several such loads of the process that
// it discarded: they were never issued.
//
// All entries have one subject, for an entry holds loads of many tags. The loads of a tag rise in the stream, but for
// those of a second or two: so that a load is found by bisection, if the tag is loaded often: see [Reader.FindLoads].
// Windows are found by the time in the snowflake.
package grants

// A Load is a range of a tag that a worker loaded.
type Load struct {
	Tag         string
	First, Last int64
	Number      int    // of the worker at that time; -1 if it had none
	Revision    uint64 // of the tag's mark as the load read it; 0 where there are no marks
	Time        int64  // when it was loaded, by the worker's clock, Unix ms
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
	Discards []Discard
}
