package cli

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// Commands that print texts for other programs anyway.
var printAnyway = []string{"completion", "permissions"}

func TestEachCommandHasJSON(t *testing.T) {
	var listed []string
	for _, o := range Outputs() {
		listed = append(listed, strings.TrimSuffix(o.Command, " --stats"))
	}
	k := newParser(&session{stdout: io.Discard, stderr: io.Discard}, nil)
	for _, n := range k.Model.Leaves(true) {
		group, _, _ := strings.Cut(n.Path(), " ")
		if !slices.Contains(listed, n.Path()) && !slices.Contains(printAnyway, group) {
			t.Errorf("what %q prints with --json is not listed", n.Path())
		}
	}
}
