package grants

import (
	"fmt"
	"time"
)

// An Audit proves that no ID was granted twice, or reports the IDs for which that is not proven. Add takes the
// entries in the order of the stream, Point the present marks, and Judge judges them. Data that grows with the stream
// is kept on disk.
//
// Law: each write of a tag's mark replaces one revision. So the writes form a chain, and a chain without a missing link
// proves that each ID below the mark was granted once, or is in the gap of a write that granted nothing: see chain. No
// two loads of a tag may share an ID, and no two windows of a worker number a time.
type Audit struct {
	// Tag, if set, is the only tag whose loads are judged.
	Tag string
	// Whole means that the stream has all entries since the first mark: each chain must begin with a tag's creation.
	Whole bool
	// Unread, if set, is why the present marks are unknown.
	Unread string
	// Founding is the era of the registry that no resume began, "" if it is unknown: then each may be one of a resume.
	Founding string

	tags      map[string]uint32
	names     []string
	eras      map[string]uint32 // numbers from 1, in the order of first use; 0 is none
	eraBegan  map[uint32]int64  // when the first entry of an era was stored, Unix ms
	processes map[string]*process
	list      []*process
	rows      sorter
	numbers   numbers
	began     int64  // when the first entry was stored, Unix ms
	past      uint64 // last entry stored before the marks were read: see MarksNow
	cut       bool   // the first entry of a process is missing
	founding  uint32 // the number of Founding

	Outcome
}

// An Outcome is the counts of an audit.
type Outcome struct {
	Entries    int64  `json:"entries"` // that were read; likewise below
	Loads      int64  `json:"loads"`
	Writes     int64  `json:"writes"` // of marks, that granted nothing
	Windows    int64  `json:"windows"`
	Processes  int    `json:"processes"`   // that wrote entries
	Lost       uint64 `json:"lost"`        // grants and writes that workers could not keep
	Missing    uint64 `json:"missing"`     // entries between others of one process
	Unreadable int    `json:"unreadable"`  // entries; the reader of the entries sets it, and Entries
	Held       int64  `json:"held,string"` // IDs of workers that were killed before they wrote their loads down
	Resumed    int    `json:"resumed"`     // tags with writes after a resume, on the assumption of that
	OfTags     Tally  `json:"tags"`
	OfNumbers  Tally  `json:"numbers"`
}

// A Tally counts tags or worker numbers by the outcome of an audit.
type Tally struct {
	Proven    int `json:"proven"`
	Repeated  int `json:"repeated"`
	NotProven int `json:"not_proven"`
}

// A process is the writer of entries.
type process struct {
	index             uint32
	id, instance      string
	entry             uint64 // number of the last entry
	firstSeq, lastSeq uint64 // its entries in the stream
	first             uint64 // number of the first entry
	ended             bool   // the last entry is marked as the last
	lastAt            int64  // when that entry was stored, Unix ms
	until             int64  // end of its last window
}

// NewAudit returns an audit that sorts on disk in dir, "" for the system's directory of temporary files.
func NewAudit(dir string) *Audit {
	return &Audit{
		tags: make(map[string]uint32), eras: make(map[string]uint32), eraBegan: make(map[uint32]int64),
		processes: make(map[string]*process),
		rows:      sorter{dir: dir, chunk: chunk, compare: byRevision}, numbers: make(numbers),
	}
}

// Close frees the audit's space on disk.
func (a *Audit) Close() { a.rows.close() }

// Add takes in an entry. It ignores a second copy of an entry.
func (a *Audit) Add(at At, b *Batch) error {
	p, isNew := a.process(at, b)
	if !isNew {
		return nil
	}
	if era := a.era(b.Era); a.eraBegan[era] == 0 {
		a.eraBegan[era] = at.Time.UnixMilli()
	}
	a.Lost += b.Lost
	for _, w := range b.Windows {
		a.Windows++
		p.until = max(p.until, w.Until)
		a.numbers.add(at, b, w)
	}
	var err error
	add := func(tag string, count *int64, r row) {
		if err == nil {
			r.process, r.sequence, r.era = p.index, at.Sequence, a.era(b.Era)
			err = a.add(tag, count, r)
		}
	}
	for i := range b.Loads {
		l := &b.Loads[i]
		add(l.Tag, &a.Loads, row{kind: aLoad, first: l.First, last: l.Last, before: l.Before, read: l.Read,
			written: l.Written, replaced: l.Replaced, time: l.Time})
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		add(w.Tag, &a.Writes, row{kind: aWrite, first: w.Before, last: w.After - 1, before: w.Before, read: w.Read,
			written: w.Written, replaced: w.Replaced, time: w.Time})
	}
	for _, d := range b.Discards {
		add(d.Tag, new(int64), row{kind: aDiscard, first: d.First, last: d.Last})
	}
	return err
}

// process returns the writer of an entry, and reports whether the entry was not added before.
func (a *Audit) process(at At, b *Batch) (p *process, isNew bool) {
	if len(a.list) == 0 {
		a.began = at.Time.UnixMilli()
	}
	p = a.processes[b.Process]
	switch {
	case p == nil:
		p = &process{
			index: uint32(len(a.list)), id: b.Process, instance: b.Instance, first: b.Entry, firstSeq: at.Sequence,
		}
		a.processes[b.Process] = p
		a.list = append(a.list, p)
		a.Processes++
	case b.Entry <= p.entry:
		return p, false
	default:
		a.Missing += b.Entry - p.entry - 1
	}
	p.entry, p.lastSeq, p.lastAt, p.ended = b.Entry, at.Sequence, at.Time.UnixMilli(), b.End
	return p, true
}

// add adds a row of a tag and counts it, if the tag is judged.
func (a *Audit) add(tag string, count *int64, r row) error {
	if a.Tag != "" && tag != a.Tag {
		return nil
	}
	*count++
	n, ok := a.tags[tag]
	if !ok {
		n = uint32(len(a.names))
		a.tags[tag] = n
		a.names = append(a.names, tag)
	}
	r.tag = n
	return a.rows.add(r)
}

// era returns the number of an era, 0 for none.
func (a *Audit) era(name string) uint32 {
	n := a.eras[name]
	if n == 0 && name != "" {
		n = uint32(len(a.eras) + 1)
		a.eras[name] = n
	}
	return n
}

// MarksNow declares that the present marks are read next: all entries added so far were written before.
func (a *Audit) MarksNow() {
	for _, p := range a.list {
		a.past = max(a.past, p.lastSeq)
	}
}

// Point takes in the present entry of a tag, in the present era: its mark as it is written, below which ID nothing is
// loaded in that era, the entry's revision, and when it was written. A tag that was not granted is skipped.
func (a *Audit) Point(tag, era string, raw, mark int64, revision uint64, written time.Time) error {
	n, ok := a.tags[tag]
	if !ok {
		return nil
	}
	at := written.UnixMilli()
	return a.rows.add(row{
		tag: n, era: a.era(era), kind: thePoint, first: mark, before: raw, read: revision, replaced: at, time: at,
	})
}

// Tags returns the tags that were added.
func (a *Audit) Tags() []string { return a.names }

// A Kind classifies a [Finding].
type Kind int

// Kinds of findings.
const (
	Repeated  Kind = iota // two grants share IDs
	NotProven             // it is unknown whether two grants share IDs
	Harmless              // two grants share IDs, but one of them discarded these IDs
)

// A Finding is the result of an audit for a tag or a worker number.
type Finding struct {
	Kind Kind
	What string // "tag order", "worker number 17" or "worker numbers"
	Why  string // reason of a finding that is not proven or harmless
	// By is the two grants that share IDs; without processes if the finding is not about two grants.
	By          [2]Culprit
	First, Last int64 // of the shared range: IDs of a tag; Unix ms of a worker number
	Times       bool  // First and Last are times, as are those of the culprits
}

// A Culprit is a grant that shares IDs with another.
type Culprit struct {
	Instance, Process string
	First, Last       int64
	Sequence          uint64 // of the entry in the stream
}

// String names both culprits and the range that they share, or the reason why the finding is not proven.
func (f Finding) String() string {
	if f.By[0].Process == "" {
		return f.Why
	}
	span := func(first, last int64) string {
		if !f.Times {
			return fmt.Sprintf("%d-%d", first, last)
		}
		const form = "2006-01-02 15:04:05.000"
		return time.UnixMilli(first).UTC().Format(form) + " to " + time.UnixMilli(last+1).UTC().Format(form)
	}
	by := func(k Culprit) string {
		return fmt.Sprintf("%s by worker %s, process %s, in entry %d",
			span(k.First, k.Last), k.Instance, k.Process, k.Sequence)
	}
	text := fmt.Sprintf("%s, and %s, share %s", by(f.By[0]), by(f.By[1]), span(f.First, f.Last))
	if f.Why != "" {
		text += "; " + f.Why
	}
	return text
}

func (a *Audit) culprit(r row) Culprit {
	p := a.list[r.process]
	return Culprit{p.instance, p.id, r.first, r.last, r.sequence}
}
