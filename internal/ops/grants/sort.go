package grants

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"io"
	"math"
	"os"
	"slices"
)

// A row is a line of an entry as an audit keeps it: its tag and its process are numbers.
type row struct {
	tag     uint32 // index into the tags of the audit
	era     uint32 // index into the audit's eras
	process uint32 // index into its processes
	kind    kind
	// The granted or discarded IDs. A write raised the mark to last+1.
	first, last    int64
	before         int64 // the mark
	read, written  uint64
	replaced, time int64
	sequence       uint64 // of the entry
}

// A kind is the kind of a row.
type kind uint32

const (
	aWrite   kind = iota // a write of a mark that granted nothing
	aLoad                // a load, which granted IDs
	thePoint             // the present mark, before and read
	aDiscard             // discarded IDs
)

// hasLanded reports whether a row is a write that certainly landed.
func (r *row) hasLanded() bool { return r.kind == aLoad || r.kind == aWrite && r.written != 0 }

// order returns the place of a row among the rows of its tag: in the order of the revisions that they wrote. A row
// whose written revision is unknown comes after the revision that it read, and so does the present mark.
func (r *row) order() uint64 {
	switch {
	case r.kind == aDiscard:
		return math.MaxUint64
	case r.kind == thePoint:
		return 4*r.read + 1
	case r.written == 0:
		return 4*r.read + 2
	}
	return 4 * r.written
}

// byRevision compares rows in the order in which a chain is followed.
func byRevision(a, b row) int {
	return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.era, b.era), cmp.Compare(a.order(), b.order()),
		cmp.Compare(a.kind, b.kind), cmp.Compare(a.first, b.first), cmp.Compare(a.sequence, b.sequence))
}

// byID compares rows in the order in which IDs are compared.
func byID(a, b row) int {
	return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.first, b.first), cmp.Compare(a.sequence, b.sequence))
}

// columns is how many numbers a row has on disk.
const columns = 12

// numbers returns the row as numbers, most of which differ little from those of the next row.
func (r *row) numbers() [columns]int64 {
	return [...]int64{
		int64(r.tag), int64(r.era), int64(r.process), int64(r.kind), r.first, r.last, r.before, int64(r.read),
		int64(r.written), r.replaced, r.time, int64(r.sequence),
	}
}

func rowOf(n [columns]int64) row {
	return row{
		tag: uint32(n[0]), era: uint32(n[1]), process: uint32(n[2]), kind: kind(n[3]), first: n[4], last: n[5],
		before: n[6], read: uint64(n[7]), written: uint64(n[8]), replaced: n[9], time: n[10], sequence: uint64(n[11]),
	}
}

// chunk is how many rows an audit sorts in memory at once: 46 MB.
const chunk = 1 << 19

// A sorter sorts rows on disk: it writes sorted runs of rows into one file, each row as differences from the row
// before, and merges the runs. Its file has no name.
type sorter struct {
	dir     string
	chunk   int // how many rows are sorted in memory at once
	compare func(a, b row) int
	file    *os.File // nil while all rows are in memory
	rows    []row
	runs    []int64 // where each run ends in the file
}

func (s *sorter) add(r row) error {
	s.rows = append(s.rows, r)
	if len(s.rows) < s.chunk {
		return nil
	}
	return s.spill()
}

// spill writes the rows in memory as a run.
func (s *sorter) spill() (err error) {
	if len(s.rows) == 0 {
		return nil
	}
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "natsid-audit-"); err != nil {
			return err
		}
		if err = os.Remove(s.file.Name()); err != nil {
			return err
		}
	}
	slices.SortFunc(s.rows, s.compare)
	end := int64(0)
	if n := len(s.runs); n > 0 {
		end = s.runs[n-1]
	}
	out := bufio.NewWriterSize(s.file, 1<<18)
	var last [columns]int64
	b := make([]byte, 0, columns*binary.MaxVarintLen64)
	for i := range s.rows {
		b = b[:0]
		now := s.rows[i].numbers()
		for k, n := range now {
			b = binary.AppendVarint(b, n-last[k])
		}
		last = now
		end += int64(len(b))
		if _, err = out.Write(b); err != nil {
			return err
		}
	}
	s.runs = append(s.runs, end)
	s.rows = s.rows[:0]
	return out.Flush()
}

func (s *sorter) close() {
	if s.file != nil {
		_ = s.file.Close() // after its writes it was only read
	}
}

// each calls f with all rows, in order. It may be called again.
func (s *sorter) each(f func(row) error) error {
	if s.file == nil {
		slices.SortFunc(s.rows, s.compare)
		for _, r := range s.rows {
			if err := f(r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.rows = nil
	m := merge{compare: s.compare}
	begin := int64(0)
	for _, end := range s.runs {
		r := &run{in: bufio.NewReaderSize(io.NewSectionReader(s.file, begin, end-begin), 1<<16)}
		begin = end
		if err := m.advance(r); err != nil {
			return err
		}
	}
	for len(m.runs) > 0 {
		r := heap.Pop(&m).(*run)
		if err := f(r.row); err != nil {
			return err
		}
		if err := m.advance(r); err != nil {
			return err
		}
	}
	return nil
}

// A run is sorted rows. row is the next one.
type run struct {
	in   *bufio.Reader
	row  row
	last [columns]int64 // row, as numbers
}

// read reads the next row. It returns [io.EOF] if there is none.
func (r *run) read() error {
	if _, err := r.in.Peek(1); err != nil {
		return err
	}
	for k := range r.last {
		d, err := binary.ReadVarint(r.in)
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		r.last[k] += d
	}
	r.row = rowOf(r.last)
	return nil
}

// A merge is runs that have a next row, as a heap.
type merge struct {
	compare func(a, b row) int
	runs    []*run
}

// advance reads the next row of a run and puts the run into the heap, unless it has ended.
func (m *merge) advance(r *run) error {
	err := r.read()
	if err == io.EOF {
		return nil
	}
	if err == nil {
		heap.Push(m, r)
	}
	return err
}

func (m *merge) Len() int           { return len(m.runs) }
func (m *merge) Less(i, j int) bool { return m.compare(m.runs[i].row, m.runs[j].row) < 0 }
func (m *merge) Swap(i, j int)      { m.runs[i], m.runs[j] = m.runs[j], m.runs[i] }

// Push implements [heap.Interface].
func (m *merge) Push(r any) { m.runs = append(m.runs, r.(*run)) }

// Pop implements [heap.Interface].
func (m *merge) Pop() any {
	last := len(m.runs) - 1
	r := m.runs[last]
	m.runs = m.runs[:last]
	return r
}
