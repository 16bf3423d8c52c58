package cli

import (
	"io"
	"slices"
	"testing"
)

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
