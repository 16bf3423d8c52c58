package cli

import (
	"io"
	"slices"
	"testing"

	"github.com/natsid/natsid/subjects"
)

func TestRunsThatTouchArePrintedAsOne(t *testing.T) {
	runs := subjects.Runs{{First: 1, Last: 10}, {First: 11, Last: 11}, {First: 12, Last: 20}, {First: 30, Last: 31}}
	want := []runJSON{{1, 20}, {30, 31}}
	if got := joined(runs); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// All but help, whose text is for people, and number, whose program prints.
func TestEachCommandHasJSON(t *testing.T) {
	var listed []string
	for _, o := range Outputs() {
		listed = append(listed, o.Command)
	}
	k := newParser(&session{output: output{stdout: io.Discard, stderr: io.Discard}}, nil)
	for _, n := range k.Model.Leaves(true) {
		if !slices.Contains([]string{"help", "number"}, n.Path()) && !slices.Contains(listed, n.Path()) {
			t.Errorf("what %q prints with --json is not listed", n.Path())
		}
	}
}
