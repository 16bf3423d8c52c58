package subjects

import (
	"bytes"
	"fmt"
	"iter"
	"math"
	"strconv"
)

// A Run is consecutive IDs, from First to Last, both included. A valid run has 0 <= First <= Last.
type Run struct {
	First, Last ID
}

// Len returns the number of IDs in the run. It overflows for 0 to 2^63-1 only.
func (r Run) Len() int64 { return int64(r.Last - r.First + 1) }

// String returns the run as on the wire: "1001-1100", or "1001" for one ID.
func (r Run) String() string { return string(AppendRun(nil, r.First, r.Last)) }

// Runs are the IDs of one call, as disjoint runs.
type Runs []Run

// All returns the IDs one after the other, in the order of the runs.
func (r Runs) All() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for _, run := range r {
			for id := run.First; ; id++ {
				if !yield(id) {
					return
				}
				if id == run.Last { // before id can overflow
					break
				}
			}
		}
	}
}

// Len returns the number of IDs.
func (r Runs) Len() int {
	var n int64
	for _, run := range r {
		n += run.Len()
	}
	return int(n)
}

// AppendRun appends the run from first to last to dst, which holds the runs of a reply so far: one run a line, without
// a newline after the last.
func AppendRun(dst []byte, first, last ID) []byte {
	if len(dst) > 0 {
		dst = append(dst, '\n')
	}
	dst = strconv.AppendInt(dst, int64(first), 10)
	if last == first {
		return dst
	}
	return strconv.AppendInt(append(dst, '-'), int64(last), 10)
}

// ParseRuns reads the body of a reply. It rejects every body that [AppendRun] does not write, such as an empty body,
// a sign, a leading zero, a run that ends before it begins, or a newline at the end: so a client notices a reply that
// is not natsid's.
func ParseRuns(body []byte) (Runs, error) {
	runs := make(Runs, 0, bytes.Count(body, []byte{'\n'})+1)
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		run, ok := parseRun(line)
		if !ok {
			return nil, fmt.Errorf("subjects: line %d of the reply is %+.24q, not a run of IDs", len(runs)+1, line)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func parseRun(line []byte) (Run, bool) {
	head, tail, isRange := bytes.Cut(line, []byte{'-'})
	first, ok := parseID(head)
	if !ok || !isRange {
		return Run{first, first}, ok
	}
	last, ok := parseID(tail)
	return Run{first, last}, ok && first < last
}

// parseID reads the one spelling of an ID, or of 0.
func parseID(text []byte) (ID, bool) {
	n, ok := parseDecimal(text, math.MaxInt64)
	return ID(n), ok
}

// parseDecimal reads digits as a decimal 0..limit in canonical form.
func parseDecimal(digits []byte, limit int64) (int64, bool) {
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || n > limit {
		return 0, false
	}
	return n, true
}
