// Package grants records which worker was given which IDs, and reads the records; it is internal to natsid and may
// change.
//
// A grant is a load, that is a range of a tag, or a window of a worker number. Each process writes its grants into one
// stream, as an [Entry] a second: see [Log]. `natsid explain` finds the grant of an ID in it, and `natsid audit` checks
// that no two grants share an ID: see [Audit]. Both read it by a [Reader].
//
// No ID depends on it: nothing reads the stream to issue one. An entry that is lost costs provenance, never uniqueness.
// What is lost is detected: the entries of a process are numbered, and each write that raises the mark of a tag is
// recorded, so that an ID below the mark that is in no record was in a load that nobody wrote down.
package grants

import (
	"math"
	"slices"
)

// Key is the key of all entries in their bucket.
const Key = "log"

// An Entry is what one process was given within a second or, while JetStream is away, within minutes.
type Entry struct {
	Who
	N       uint64            `json:"n"`               // 1, 2, 3, … of this process
	Lost    uint64            `json:"lost,omitempty"`  // grants and raises before its end for which there was no room
	Era     string            `json:"era,omitempty"`   // of the registry; of all loads
	Loads   map[string][]Load `json:"loads,omitempty"` // by tag
	Raised  map[string][]Span `json:"raised,omitempty"`
	Windows []Window          `json:"windows,omitempty"`

	items, size int // of a log: grants and raises, and about how many bytes
}

// isValid reports whether a natsid of this version may have written the entry.
func (e *Entry) isValid() bool {
	ok := e.N > 0 && e.Process != ""
	for _, all := range e.Loads {
		ok = ok && len(all) > 0 && !slices.ContainsFunc(all, func(l Load) bool {
			return l.First < 1 || l.Last < l.First || l.Last == math.MaxInt64 || l.Above < 0
		})
	}
	for _, all := range e.Raised {
		ok = ok && len(all) > 0 && !slices.ContainsFunc(all, func(s Span) bool { return s[0] < 0 || s[1] <= s[0] })
	}
	return ok
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

// A Load is a range of a tag that a worker loaded, or adjacent ranges that it loaded within a second.
type Load struct {
	First  int64 `json:"f"`
	Last   int64 `json:"l"`
	Above  int64 `json:"a,omitempty"` // the replaced mark, if that is below First: the IDs between are a hole
	Time   int64 `json:"t"`           // of the first range, by the worker's clock, Unix ms
	Strict bool  `json:"s,omitempty"`
}

// A Span is the IDs [Span[0], Span[1]).
type Span [2]int64

// A Window is the times [From, Until) that a worker could put into snowflakes under a number, Unix ms.
type Window struct {
	Number int    `json:"number"`
	From   int64  `json:"from"`
	Until  int64  `json:"until"`
	How    string `json:"how"` // acquired, resumed, renewed or closed: see workerid.How
	Time   int64  `json:"t"`   // when it was written, by the worker's clock, Unix ms
}

// Closed is the How of a window after which the process issued no more IDs under the number in this claim. Resumed is
// the How of a window that ends one of an earlier process of the worker.
const (
	Closed  = "closed"
	Resumed = "resumed"
)
