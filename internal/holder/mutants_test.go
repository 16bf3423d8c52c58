//go:build !race

package holder

import (
	"regexp"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
)

var mutants = []mutant.Mutant{
	{Name: "an ID is issued before the subject of the number is answered", Edits: []mutant.Edit{
		mutant.Delete("answered")}},
	{Name: "an ID is issued while the registry is stopped", Edits: []mutant.Edit{mutant.Delete("stopped")}},
}

func TestMutants(t *testing.T) {
	mutant.Suite{
		Mutants: mutants,
		Args:    []string{"-test.run=^TestNothing", "-test.timeout=1m"},
		Finding: regexp.MustCompile(`(?m)^\s*\w+_test.go:\d+: (.*)$`),
	}.Run(t)
}
