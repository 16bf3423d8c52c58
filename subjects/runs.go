package subjects

import (
	"bytes"
	"fmt"
	"strconv"
)

// A Run is consecutive IDs, from First to Last, both included. A valid run has
// 0 <= First <= Last.
type Run struct {
	First, Last int64
}

// Len returns the number of IDs in the run. It overflows for 0 to 2^63-1 only.
func (r Run) Len() int64 { return r.Last - r.First + 1 }

// String returns the run as on the wire: "1001-1100", or "1001" for one ID.
func (r Run) String() string { return string(r.append(nil)) }

func (r Run) append(dst []byte) []byte {
	dst = strconv.AppendInt(dst, r.First, 10)
	if r.Last == r.First {
		return dst
	}
	dst = append(dst, '-')
	return strconv.AppendInt(dst, r.Last, 10)
}

// AppendRun appends the run first..last to dst, the body of a reply so far: one
// run a line, with no newline after the last.
func AppendRun(dst []byte, first, last int64) []byte {
	if len(dst) > 0 {
		dst = append(dst, '\n')
	}
	return Run{first, last}.append(dst)
}

// ParseRuns reads the body of a reply. It rejects every body that [AppendRun] does not write, such as an empty body,
// a sign, a leading zero, a run that ends before it begins, or a newline at the end: so a client notices a reply that
// is not natsid's.
func ParseRuns(body []byte) ([]Run, error) {
	runs := make([]Run, 0, bytes.Count(body, []byte{'\n'})+1)
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		run, ok := parseRun(line)
		if !ok {
			return nil, fmt.Errorf("subjects: line %d of the reply is %s, not a run of IDs",
				len(runs)+1, excerpt(line, 24))
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func parseRun(line []byte) (Run, bool) {
	head, tail, isRange := bytes.Cut(line, []byte{'-'})
	first, ok := parseDecimal(head, maxID)
	if !ok || !isRange {
		return Run{first, first}, ok
	}
	last, ok := parseDecimal(tail, maxID)
	return Run{first, last}, ok && first < last
}

const maxID = 1<<63 - 1
