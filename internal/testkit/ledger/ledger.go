// Package ledger finds every repeated ID among those that were issued: exactly, in bounded memory, for a billion single
// IDs and more. An [Order] finds every ID of a strict tag that came too late.
//
// The number of repeats in a multiset is its size minus that of its union. A chunk of runs in memory is sorted and
// united when it is full. Dense runs shrink to almost nothing and stay in memory; others are written to a file as one
// section, and all sections are merged in the end. Whenever runs are united, what lies in two of them is a repeat:
//
//	runs      [1 ---- 5]   [8]  [8]
//	             [4 ---- 7]              4-5 and 8 are repeats
//	united    [1 ------- 7][8]           = [1-8]
package ledger

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
)

var (
	// ErrRun is returned for an Add that is not a run of positive IDs.
	ErrRun = errors.New("ledger: not a run of positive IDs")
	// ErrClosed is returned for an Add after [Ledger.Close].
	ErrClosed = errors.New("ledger: closed")
)

// A Run is all IDs from First to Last, both included.
type Run struct{ First, Last int64 }

// A Report is the result of a ledger. Counts that exceed MaxInt64 stay at MaxInt64.
type Report struct {
	// IDs counts all IDs that were added, repeats included.
	IDs int64
	// Repeats is IDs minus the number of different IDs: an ID added three times
	// counts 2. Zero means that no ID was added twice.
	Repeats int64
	// Examples are the repeated IDs that were found first, at most ten runs in no order.
	Examples []Run
	// Disk is the size of the file in bytes; 0 if memory sufficed.
	Disk int64
}

const (
	// chunk is the most runs that memory holds: 16 MB, and as much again to sort them.
	chunk = 1 << 20
	// chunkMin is how many it holds at first. A ledger of dense IDs never needs
	// more, so there may be one for each of many tags.
	chunkMin = 1 << 10

	examples = 10
)

// A Ledger records which IDs were issued. It is safe for concurrent use. An Add that fills the memory sorts and writes
// it, which takes a tenth of a second, while others wait: nothing else would bound the memory.
type Ledger struct {
	dir string

	mu     sync.Mutex
	chunk  int   // the constant, but for tests
	full   int   // how many runs to hold before they are united
	runs   []Run // in no order
	spare  []Run // to sort with
	file   *os.File
	parts  []section // of the file
	report Report
	err    error // the first one of the disk, or ErrClosed
	failed error // what Close returned
}

// New returns an empty ledger. It creates at most one file, in dir, and only if memory does not suffice; "" is the
// system's directory for temporary files. Where the system allows it the file has no name, so that a process that is
// killed leaves nothing behind. It takes about 2 bytes per snowflake of a few workers, and 7 per random ID.
func New(dir string) *Ledger {
	return &Ledger{dir: dir, chunk: chunk, full: chunkMin}
}

// Add records that the IDs from first to last were issued, both included. It refuses with ErrRun, and records nothing,
// unless they are a run of positive IDs. An error of the disk is final: all later calls return it.
func (l *Ledger) Add(first, last int64) error {
	if err := checkRun(first, last); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if n := len(l.runs); n > 0 && l.runs[n-1].Last == first-1 {
		l.runs[n-1].Last = last
	} else {
		if n >= l.full {
			if l.err = l.makeRoomLocked(); l.err != nil {
				return l.err
			}
		}
		l.runs = append(l.runs, Run{first, last})
	}
	l.report.IDs = capped(l.report.IDs, last-first+1)
	return nil
}

func checkRun(first, last int64) error {
	if first < 1 || last < first {
		return fmt.Errorf("%w: %d-%d", ErrRun, first, last)
	}
	return nil
}

// Close returns the report on all that was added, and frees memory and disk. To read a billion single IDs back takes
// about 15 s. With an error the report has what had been found by then. Called again, it returns the same.
func (l *Ledger) Close() (Report, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.err, ErrClosed) {
		return l.report, l.failed
	}
	if l.err == nil {
		l.err = l.finishLocked()
	}
	if l.file != nil {
		_ = l.file.Close()
		_ = os.Remove(l.file.Name()) // for systems on which an open file cannot be removed
	}
	l.failed, l.err = l.err, ErrClosed
	l.runs, l.spare, l.parts = nil, nil, nil
	return l.report, l.failed
}

// finishLocked counts the repeats among all runs, those in memory and those in the sections on disk.
func (l *Ledger) finishLocked() error {
	l.uniteLocked()
	if len(l.parts) == 0 {
		return nil
	}
	if err := l.spillLocked(); err != nil {
		return err
	}
	l.runs, l.spare = nil, nil
	return l.mergeLocked()
}

// makeRoomLocked unites the runs in memory. If that does not free half of it, it
// lets the memory grow, up to a chunk, and then writes the chunk to disk.
func (l *Ledger) makeRoomLocked() error {
	l.uniteLocked()
	if len(l.runs) <= l.full/2 {
		return nil
	}
	if l.full < l.chunk {
		l.full = min(2*l.full, l.chunk)
		l.runs = slices.Grow(l.runs, l.full-len(l.runs))
		return nil
	}
	return l.spillLocked()
}

// uniteLocked makes the runs in memory disjoint and sorted, with a gap after each, and counts the IDs that were in two.
func (l *Ledger) uniteLocked() {
	l.runs, l.spare = sortRuns(l.runs, l.spare)
	united := l.runs[:0]
	for _, r := range l.runs {
		if n := len(united); n > 0 && r.First-1 <= united[n-1].Last {
			top := &united[n-1]
			l.countLocked(r, top.Last)
			top.Last = max(top.Last, r.Last)
			continue
		}
		united = append(united, r)
	}
	l.runs = united
}

// countLocked counts the IDs of r up to last as repeats: earlier runs, which begin no later than r, hold them already.
func (l *Ledger) countLocked(r Run, last int64) {
	r.Last = min(r.Last, last)
	if r.Last < r.First {
		return
	}
	l.report.Repeats = capped(l.report.Repeats, r.Last-r.First+1)
	known := func(e Run) bool { return e.First <= r.First && r.Last <= e.Last }
	if len(l.report.Examples) < examples && !slices.ContainsFunc(l.report.Examples, known) {
		l.report.Examples = append(l.report.Examples, r)
	}
}

// capped returns a+b, or MaxInt64 if that is beyond it. Both are 0 or more.
func capped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
