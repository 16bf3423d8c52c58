package grants

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// A row is a load, or what was discarded, in few bytes: its tag and where it stands are numbers.
type row struct {
	tag         uint32 // index into the tags of the audit
	process     uint32 // index into its processes
	first, last int64
	sequence    uint64 // of the entry
	discard     bool   // the process discarded these IDs; else it loaded them
}

const rowBytes = 32

// discardBit marks, on disk, the process of what was discarded.
const discardBit = 1 << 31

func (a row) compare(b row) int {
	return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.first, b.first), cmp.Compare(a.sequence, b.sequence))
}

// chunk is how many rows are sorted in memory at once: 16 MB.
const chunk = 1 << 19

// A sorter sorts rows on disk: it writes sorted runs of them into one file, and merges these. Its file has no name.
type sorter struct {
	dir  string
	file *os.File // nil while all rows are in memory
	rows []row
	runs []int64 // where each run ends in the file
}

func (s *sorter) add(r row) error {
	if s.rows == nil {
		s.rows = make([]row, 0, chunk)
	}
	s.rows = append(s.rows, r)
	if len(s.rows) < chunk {
		return nil
	}
	return s.spill()
}

// spill writes the rows in memory as a run.
func (s *sorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "natsid-audit-"); err != nil {
			return err
		}
		if err = os.Remove(s.file.Name()); err != nil {
			return err
		}
	}
	slices.SortFunc(s.rows, row.compare)
	end := int64(0)
	if n := len(s.runs); n > 0 {
		end = s.runs[n-1]
	}
	s.runs = append(s.runs, end+int64(len(s.rows))*rowBytes)
	out := bufio.NewWriterSize(s.file, 1<<18)
	var b [rowBytes]byte
	for _, r := range s.rows {
		binary.LittleEndian.PutUint32(b[0:], r.tag)
		process := r.process
		if r.discard {
			process |= discardBit
		}
		binary.LittleEndian.PutUint32(b[4:], process)
		binary.LittleEndian.PutUint64(b[8:], uint64(r.first))
		binary.LittleEndian.PutUint64(b[16:], uint64(r.last))
		binary.LittleEndian.PutUint64(b[24:], r.sequence)
		if _, err = out.Write(b[:]); err != nil {
			return err
		}
	}
	s.rows = s.rows[:0]
	return out.Flush()
}

func (s *sorter) close() {
	if s.file != nil {
		_ = s.file.Close() // it was only read since
	}
}

// each calls f with all rows, in order.
func (s *sorter) each(f func(row) error) error {
	if s.file == nil {
		slices.SortFunc(s.rows, row.compare)
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
	var m merge
	begin := int64(0)
	for _, end := range s.runs {
		r := &run{in: bufio.NewReaderSize(io.NewSectionReader(s.file, begin, end-begin), 1<<16)}
		begin = end
		if err := m.advance(r); err != nil {
			return err
		}
	}
	for len(m) > 0 {
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

// A run is rows in order, of which row is the next.
type run struct {
	in  *bufio.Reader
	row row
}

// A merge is runs that have a next row, as a heap.
type merge []*run

// advance reads the next row of a run and puts the run into the heap, unless it has ended.
func (m *merge) advance(r *run) error {
	b, err := r.in.Peek(rowBytes)
	if len(b) == 0 && err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	process := binary.LittleEndian.Uint32(b[4:])
	r.row = row{
		tag: binary.LittleEndian.Uint32(b[0:]), process: process &^ discardBit, discard: process&discardBit != 0,
		first: int64(binary.LittleEndian.Uint64(b[8:])), last: int64(binary.LittleEndian.Uint64(b[16:])),
		sequence: binary.LittleEndian.Uint64(b[24:]),
	}
	heap.Push(m, r)
	_, err = r.in.Discard(rowBytes)
	return err
}

func (m merge) Len() int           { return len(m) }
func (m merge) Less(i, j int) bool { return m[i].row.compare(m[j].row) < 0 }
func (m merge) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }

// Push implements [heap.Interface].
func (m *merge) Push(r any) { *m = append(*m, r.(*run)) }

// Pop implements [heap.Interface].
func (m *merge) Pop() any {
	last := len(*m) - 1
	r := (*m)[last]
	*m = (*m)[:last]
	return r
}
