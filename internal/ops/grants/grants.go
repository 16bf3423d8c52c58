// Package grants records which worker was given which IDs, and reads the records; it is internal to natsid and may
// change.
//
// A grant is a load, which is a range of a tag, or a window of a worker number. Each process writes its grants into one
// stream, once a second: see [Log]. A [History] reads the stream, and answers `natsid explain` and `natsid audit`.
//
// Uniqueness does not depend on the stream: nothing reads it to issue an ID. Each write that raises the mark of a tag
// is recorded by its process and, if the process dies before, by the next process that raises the mark: the mark's
// entry has a [segment.Run], which says who raised the mark, and from where. So an ID below the mark that is in no
// record, nor in a run, was in a load that nobody recorded.
package grants

import (
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/workerid"
)

// Key is the key of all entries in their bucket.
const Key = "log"

// An Entry has the grants of one process since its previous entry: of a second, or of longer if it could not write.
type Entry struct {
	Who
	N       uint64            `json:"n"`               // 1, 2, 3, … per process; one is missing if grants were dropped
	Loads   map[string][]Load `json:"loads,omitempty"` // by tag
	Windows []workerid.Window `json:"windows,omitempty"`

	added int // number of loads, raises and windows, those that others took in included
}

// Who identifies an entry and the process that wrote it, and the kind of snowflakes in its windows.
type Who struct {
	Instance string    `json:"instance"`
	Process  string    `json:"process"`            // random, one per process
	Registry string    `json:"registry,omitempty"` // of the worker numbers
	Layout   string    `json:"layout,omitempty"`
	Epoch    int64     `json:"epoch,omitempty"` // Unix ms
	Unit     int64     `json:"unit,omitempty"`  // ms
	Entry    uint64    `json:"entry,omitempty"` // sequence of the entry in the stream; set by [History.Read]
	Stored   time.Time `json:"stored,omitzero"` // when JetStream stored the entry; set by [History.Read]
}

// String returns the worker and its process, for people.
func (w Who) String() string { return w.Instance + ", process " + w.Process }

// A Load is a range of a tag that a worker loaded, or adjacent ranges that it loaded within a second. A raise of a mark
// that grants nothing is a Load that ends before it begins: Last is First-1.
type Load struct {
	Above int64 `json:"above,string,omitempty"` // if set, the IDs from here to First are a hole
	First int64 `json:"first,string"`
	Last  int64 `json:"last,string"`
	// Before is the run that ends at Above or, without Above, at First, if another process wrote it and it is known.
	Before segment.Run `json:"before,omitzero"`
}

// A Grant is a load, or a claim: the time for which one process had a worker number. All windows of a claim begin at
// the same time, and each replaces the one before. Who is that of its first entry.
type Grant struct {
	Who
	Tag              string `json:"tag,omitempty"` // of a load
	*Load                   // nil of a claim
	*workerid.Window        // nil of a load; of a claim the latest window, with the How of the first
	closed           bool   // Until is the end of the last ID's tick
}
