// Package grants records which worker was given which IDs, and reads the records; it is internal to natsid and may
// change.
//
// A grant is a load, that is a range of a tag, or a window of a worker number. Each process writes its grants into one
// stream, as an [Entry] a second: see [Log]. A [History] is what a [Reader] finds there: `natsid explain` and
// `natsid audit` ask it.
//
// No ID depends on it: nothing reads the stream to issue one. An entry that is lost costs provenance, never uniqueness.
// What is lost is detected: each write that raises the mark of a tag is recorded, so that an ID below the mark that is
// in no record was in a load that nobody wrote down. Where one process alone can have made it, that is no fault.
package grants

import "time"

// Key is the key of all entries in their bucket.
const Key = "log"

// An Entry is what one process was given within a second or, while entries cannot be written, since the one before.
type Entry struct {
	Who
	N       uint64            `json:"n"`               // 1, 2, 3, … of this process; a gap is what found no room
	Loads   map[string][]Load `json:"loads,omitempty"` // by tag
	Windows []Window          `json:"windows,omitempty"`
	Late    bool              `json:"late,omitempty"` // it waited for longer than a moment
	End     bool              `json:"end,omitempty"`  // the process stopped: it was given nothing after that

	Sequence uint64    `json:"-"` // of one that was read: its place in the stream
	Stored   time.Time `json:"-"` // and when JetStream stored it

	grants int       // how many
	began  time.Time // when it got the first one
	sealed bool      // it is being written, and grows no more
}

// Who is the process that wrote an entry, and of which snowflakes its windows are.
type Who struct {
	Instance string `json:"instance"`
	Process  string `json:"process"`            // random, one per process
	Registry string `json:"registry,omitempty"` // of the worker numbers
	Layout   string `json:"layout,omitempty"`
	Epoch    int64  `json:"epoch,omitempty"` // Unix ms
	Unit     int64  `json:"unit,omitempty"`  // ms
}

// A Load is a range of a tag that a worker loaded, or adjacent ranges that it loaded within a second. A raise of a mark
// that grants nothing is a Load that ends before it begins: Last is First-1.
type Load struct {
	Above int64 `json:"a,omitempty"` // if set, the IDs from here to First are a hole
	First int64 `json:"f"`
	Last  int64 `json:"l"`
}

// Raise returns the record of a write that raised a mark or may have, before it is known whether it grants a load. Its
// IDs are in that load, or a hole.
func Raise(from, to int64) Load { return Load{Above: max(1, from), First: to, Last: to - 1} }

// A Window is the times [From, Until) that a worker could put into snowflakes under a number, Unix ms.
type Window struct {
	Number int    `json:"number"`
	From   int64  `json:"from"`
	Until  int64  `json:"until"`
	How    string `json:"how"` // acquired, resumed, renewed or closed: see workerid.How
}

// Closed is the How of a window after which the process issued no more IDs under the number in this claim. Resumed is
// the How of a window that ends one of an earlier process of the worker.
const (
	Closed  = "closed"
	Resumed = "resumed"
)
