package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// A section is a chunk of united runs on disk: for each run the gap before it, doubled, plus one if it is longer than
// one ID; then, if so, its length less 2. Both are varints.
type section struct {
	from, to int64 // bytes of the file
	runs     int
}

const (
	bufSize = 8 << 10                   // of each section while it is read, and of writes
	runSize = 2 * binary.MaxVarintLen64 // of the longest run
)

var errDamaged = errors.New("ledger: the file is damaged")

// spillLocked writes the runs in memory, which are united, to a new section.
func (l *Ledger) spillLocked() error {
	if l.file == nil {
		f, err := os.CreateTemp(l.dir, "ledger-*")
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		_ = os.Remove(f.Name()) // or else in Close
		l.file = f
	}
	start := l.report.Disk
	last, buf := int64(0), make([]byte, 0, bufSize)
	for i, r := range l.runs {
		buf = appendRun(buf, last, r)
		last = r.Last
		if len(buf) < bufSize-runSize && i < len(l.runs)-1 {
			continue
		}
		n, err := l.file.Write(buf)
		l.report.Disk += int64(n)
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		buf = buf[:0]
	}
	l.parts = append(l.parts, section{start, l.report.Disk, len(l.runs)})
	l.runs = l.runs[:0]
	return nil
}

// appendRun appends a run that begins after last.
func appendRun(b []byte, last int64, r Run) []byte {
	gap := uint64(r.First-last) << 1
	if r.First == r.Last {
		return binary.AppendUvarint(b, gap)
	}
	b = binary.AppendUvarint(b, gap|1)
	return binary.AppendUvarint(b, uint64(r.Last-r.First-1))
}

// A reader reads a section. Its run is the current one.
type reader struct {
	run  Run
	src  *io.SectionReader
	buf  []byte // bytes that are read but not decoded, at the end of mem
	mem  []byte
	done bool // src has ended
	left int  // runs to come
}

func newReader(f io.ReaderAt, s section) *reader {
	return &reader{src: io.NewSectionReader(f, s.from, s.to-s.from), mem: make([]byte, bufSize), left: s.runs}
}

// next moves on to the next run. It returns [io.EOF] after the last.
func (r *reader) next() error {
	if len(r.buf) < runSize && !r.done {
		if err := r.fill(); err != nil {
			return err
		}
	}
	if r.left == 0 && len(r.buf) == 0 {
		return io.EOF
	}
	r.left--
	gap, n := binary.Uvarint(r.buf)
	if gap < 2 { // 0 also says that it is no varint
		return errDamaged
	}
	more := uint64(0)
	if gap&1 == 1 {
		var m int
		if more, m = binary.Uvarint(r.buf[n:]); m <= 0 {
			return errDamaged
		}
		n, more = n+m, more+1
	}
	r.buf = r.buf[n:]
	first := r.run.Last + int64(gap>>1)
	r.run = Run{first, first + int64(more)}
	return nil
}

// fill reads more, behind the bytes that are not decoded yet.
func (r *reader) fill() error {
	n := copy(r.mem, r.buf)
	m, err := io.ReadFull(r.src, r.mem[n:])
	r.buf = r.mem[:n+m]
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		r.done = true
		return nil
	}
	return err
}

// mergeLocked counts the IDs in runs of different sections.
func (l *Ledger) mergeLocked() error {
	var h heap
	for _, s := range l.parts {
		r := newReader(l.file, s)
		if err := r.next(); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		h = append(h, r)
	}
	h.order()
	last := int64(0)
	for len(h) > 0 {
		r := h[0]
		if r.run.First <= last {
			l.countLocked(r.run, last)
		}
		last = max(last, r.run.Last)
		switch err := r.next(); {
		case err == io.EOF:
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
		case err != nil:
			return fmt.Errorf("ledger: %w", err)
		}
		h.sink(0)
	}
	return nil
}

// A heap has the reader with the lowest run on top. A section covers a stretch of time, so the top mostly stays where
// it is: that costs one comparison with its two children, where container/heap makes two calls through an interface.
type heap []*reader

func (h heap) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// sink moves the reader at i down to its place.
func (h heap) sink(i int) {
	for {
		low := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].run.First < h[low].run.First {
				low = child
			}
		}
		if low == i {
			return
		}
		h[i], h[low] = h[low], h[i]
		i = low
	}
}
