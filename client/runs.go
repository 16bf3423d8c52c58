package client

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/natsid/natsid/subjects"
)

// lineBytes is the most bytes that a run takes in a reply: two IDs, a hyphen and a newline.
const lineBytes = 19 + 1 + 19 + 1

// parseRuns reads a reply to a request for n IDs. It returns n different IDs or an error, so calls that share a
// request never get the same ID, even if another program than natsid answered.
func parseRuns(body []byte, n int) (subjects.Runs, error) {
	if len(body) > n*lineBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d IDs need", len(body), n)
	}
	runs, err := subjects.ParseRuns(body)
	if err != nil {
		return nil, err
	}
	left := int64(n)
	for _, r := range runs {
		if r.First < 1 {
			return nil, fmt.Errorf("it holds the ID %d, and IDs begin at 1", r.First)
		}
		if int64(r.Last-r.First) >= left { // not by Len, which can overflow
			return nil, fmt.Errorf("it holds more than the %d IDs requested", n)
		}
		left -= r.Len()
	}
	if left > 0 {
		return nil, fmt.Errorf("it holds %d of the %d IDs requested", int64(n)-left, n)
	}
	byFirst := func(a, b subjects.Run) int { return cmp.Compare(a.First, b.First) }
	sorted := slices.SortedFunc(slices.Values(runs), byFirst)
	for i := range sorted[1:] {
		if sorted[i].Last >= sorted[i+1].First {
			return nil, errors.New("it holds an ID twice")
		}
	}
	return runs, nil
}

// idAt returns the i-th ID of runs, counted from 0. i is less than their length.
func idAt(runs subjects.Runs, i int64) subjects.ID {
	for _, run := range runs {
		if i < run.Len() {
			return run.First + subjects.ID(i)
		}
		i -= run.Len()
	}
	panic("client: fewer IDs than calls") // parseRuns has counted them
}
