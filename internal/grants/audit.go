package grants

import (
	"fmt"
	"time"
)

// An Audit checks that no ID was granted twice: that no two loads of a tag share an ID, and no two windows of a worker
// number a time. Add takes the entries in the order of the stream, and Judge judges them. It keeps what is as large as
// the stream on disk.
//
// Only what one registry granted is compared: with two of them, IDs of one name may be different things.
type Audit struct {
	// Tag, if set, is the only tag whose loads are judged.
	Tag string

	tags      map[tagKey]uint32
	names     []tagKey
	highest   []int64 // by tag
	processes map[string]*process
	list      []*process
	sorter    sorter
	numbers   numbers

	// Loads and Windows are how many grants were read. Lost is how many the workers could not keep, and Missing how
	// many entries are missing between others of one process.
	Loads, Windows int64
	Lost, Missing  uint64
}

type tagKey struct{ registry, tag string }

// A process is who wrote entries.
type process struct {
	index             uint32
	id, instance      string
	entry             uint64 // the last one
	firstSeq, lastSeq uint64 // its entries in the stream
	ended             bool   // the last one says that it is the last
}

// NewAudit returns an audit that sorts on disk in dir, "" for the system's directory of temporary files.
func NewAudit(dir string) *Audit {
	return &Audit{
		tags: make(map[tagKey]uint32), processes: make(map[string]*process), sorter: sorter{dir: dir},
		numbers: make(numbers),
	}
}

// Close frees what the audit has on disk.
func (a *Audit) Close() { a.sorter.close() }

// Add takes in an entry. Of an entry that was written twice it heeds one.
func (a *Audit) Add(at At, b *Batch) error {
	p := a.processes[b.Process]
	if p == nil {
		p = &process{index: uint32(len(a.list)), id: b.Process, instance: b.Instance, firstSeq: at.Sequence}
		a.processes[b.Process] = p
		a.list = append(a.list, p)
	} else if b.Entry <= p.entry {
		return nil
	} else {
		a.Missing += b.Entry - p.entry - 1
	}
	p.entry, p.lastSeq, p.ended = b.Entry, at.Sequence, b.End
	a.Lost += b.Lost
	for _, w := range b.Windows {
		a.Windows++
		a.numbers.add(at, b, w)
	}
	for i := range b.Loads {
		l := &b.Loads[i]
		if a.Tag != "" && l.Tag != a.Tag {
			continue
		}
		a.Loads++
		tag := a.tag(tagKey{b.Segments, l.Tag})
		a.highest[tag] = max(a.highest[tag], l.Last)
		if err := a.sorter.add(row{tag, p.index, l.First, l.Last, at.Sequence, false}); err != nil {
			return err
		}
	}
	for _, d := range b.Discards {
		if a.Tag != "" && d.Tag != a.Tag {
			continue
		}
		tag := a.tag(tagKey{b.Segments, d.Tag})
		if err := a.sorter.add(row{tag, p.index, d.First, d.Last, at.Sequence, true}); err != nil {
			return err
		}
	}
	return nil
}

func (a *Audit) tag(key tagKey) uint32 {
	n, ok := a.tags[key]
	if !ok {
		n = uint32(len(a.names))
		a.tags[key] = n
		a.names = append(a.names, key)
		a.highest = append(a.highest, 0)
	}
	return n
}

// Highest calls f with each tag of a registry, and the highest ID that was granted of it.
func (a *Audit) Highest(registry string, f func(tag string, highest int64)) {
	for n, key := range a.names {
		if key.registry == registry {
			f(key.tag, a.highest[n])
		}
	}
}

// Tags returns of how many tags there are loads.
func (a *Audit) Tags() int { return len(a.names) }

// Processes returns how many processes wrote entries.
func (a *Audit) Processes() int { return len(a.list) }

// A Conflict is two grants that share IDs.
type Conflict struct {
	Registry string
	What     string // "tag order" or "worker number 17"
	First    int64  // of what both have: IDs of a tag; Unix ms of a worker number
	Last     int64
	Times    bool // First and Last are times, as are those of the culprits
	By       [2]Culprit
	// Unclear says why this may be no conflict, and Harmless why it is none; "" if it is one.
	Unclear, Harmless string
}

// A Culprit is a grant that shares IDs with another.
type Culprit struct {
	Instance, Process string
	First, Last       int64
	Sequence          uint64 // of the entry in the stream
}

// String names both culprits, and what they share.
func (c Conflict) String() string {
	span := func(first, last int64) string {
		if !c.Times {
			return fmt.Sprintf("%d-%d", first, last)
		}
		const form = "2006-01-02 15:04:05.000"
		return time.UnixMilli(first).UTC().Format(form) + " to " + time.UnixMilli(last+1).UTC().Format(form)
	}
	by := func(k Culprit) string {
		return fmt.Sprintf("%s by worker %s, process %s, in entry %d",
			span(k.First, k.Last), k.Instance, k.Process, k.Sequence)
	}
	text := fmt.Sprintf("%s, and %s, share %s", by(c.By[0]), by(c.By[1]), span(c.First, c.Last))
	if why := c.Unclear + c.Harmless; why != "" {
		text += "; " + why
	}
	return text
}

func (a *Audit) culprit(r row) Culprit {
	p := a.list[r.process]
	return Culprit{p.instance, p.id, r.first, r.last, r.sequence}
}
