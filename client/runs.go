package client

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/natsid/natsid/subjects"
)

// Runs are the IDs of one reply, as disjoint runs of consecutive IDs.
type Runs []subjects.Run

// All returns the IDs one after the other, in the order of the reply.
func (r Runs) All() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for _, run := range r {
			for id := run.First; ; id++ {
				if !yield(ID(id)) {
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

// at returns the i-th ID, counted from 0. i is less than Len.
func (r Runs) at(i int64) ID {
	for _, run := range r {
		if n := run.Len(); i < n {
			return ID(run.First + i)
		} else {
			i -= n
		}
	}
	panic("client: fewer IDs than calls") // parseRuns has counted them
}

// lineBytes is the length limit of a run in a reply: two IDs, a hyphen and a newline.
const lineBytes = 19 + 1 + 19 + 1

// parseRuns reads a reply to a request for n IDs.
func parseRuns(body []byte, n int) (Runs, error) {
	if len(body) > n*lineBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d IDs need", len(body), n)
	}
	parsed, err := subjects.ParseRuns(body)
	if err != nil {
		return nil, err
	}
	runs, left := Runs(parsed), int64(n)
	for _, r := range runs {
		if r.First < 1 {
			return nil, fmt.Errorf("it holds the ID %d, and IDs begin at 1", r.First)
		}
		if r.Last-r.First >= left { // not by Len, which can overflow
			return nil, fmt.Errorf("it holds more than the %d IDs requested", n)
		}
		left -= r.Len()
	}
	if left > 0 {
		return nil, fmt.Errorf("it holds %d of the %d IDs requested", int64(n)-left, n)
	}
	if runs.overlap() {
		return nil, errors.New("it holds an ID twice")
	}
	return runs, nil
}

// overlap reports whether an ID is in two runs.
func (r Runs) overlap() bool {
	if len(r) < 2 {
		return false
	}
	sorted := slices.SortedFunc(slices.Values(r), func(a, b subjects.Run) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	for i := range sorted[1:] {
		if sorted[i].Last >= sorted[i+1].First {
			return true
		}
	}
	return false
}
