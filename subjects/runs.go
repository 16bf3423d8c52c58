package subjects

import (
	"bytes"
	"fmt"
	"strconv"
)

// A Run is a row of successive IDs, from First to Last, both included.
// A valid run has 0 <= First <= Last.
type Run struct {
	First, Last int64
}

// Len returns how many IDs the run holds.
func (r Run) Len() int64 { return r.Last - r.First + 1 }

// String returns the run as the wire has it: "1001-1100", or "1001" for one ID.
func (r Run) String() string { return string(r.append(nil)) }

func (r Run) append(dst []byte) []byte {
	dst = strconv.AppendInt(dst, r.First, 10)
	if r.Last == r.First {
		return dst
	}
	dst = append(dst, '-')
	return strconv.AppendInt(dst, r.Last, 10)
}

// AppendRun appends the run first..last to the body of a reply: one run a
// line, joined by \n, none at the end. dst is the body so far.
func AppendRun(dst []byte, first, last int64) []byte {
	if len(dst) > 0 {
		dst = append(dst, '\n')
	}
	return Run{first, last}.append(dst)
}

// ParseRuns reads the body of a reply. It is strict: what [AppendRun] would
// not write, such as an empty body, a sign, a leading zero, a run that ends
// before it begins or a newline at the end, is an error. That is how a client
// notices that something other than a worker has answered.
func ParseRuns(body []byte) ([]Run, error) {
	runs := make([]Run, 0, bytes.Count(body, []byte{'\n'})+1)
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		run, ok := parseRun(line)
		if !ok {
			return nil, fmt.Errorf("subjects: line %d of the reply is %s, not a run of IDs", len(runs)+1, excerpt(line, 24))
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
