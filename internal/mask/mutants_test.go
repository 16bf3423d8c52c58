//go:build !race

package mask

import (
	"regexp"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
)

// by names the test that finds a mutant.
func by(test string) []string { return []string{"-test.run=^Test" + test + "$"} }

// mutants are wrong in one way each. Known answers would find most of them, so they stand only for those that no law
// about one mask finds.
var mutants = []mutant.Mutant{
	{Name: "two rounds are dropped", Args: by("KnownAnswers"),
		Edits: []mutant.Edit{mutant.Replace("rounds", "const rounds = 8")}},
	{Name: "two rounds are left", Args: by("Avalanche"),
		Edits: []mutant.Edit{mutant.Replace("rounds", "const rounds = 2")}},
	{Name: "a round does not know its number", Args: by("KnownAnswers"),
		Edits: []mutant.Edit{mutant.Delete("number")}},
	{Name: "halves are swapped on one way", Args: by("AMaskIsABijection"),
		Edits: []mutant.Edit{mutant.Replace("halves", "r, l := x%m.a, x/m.a")}},
	{Name: "a round is not undone", Args: by("RoundTripsOfRandomSizes"),
		Edits: []mutant.Edit{mutant.Replace("undone", "r = add(r, m.round(i-1, l, m.b, buf), m.b)")}},
	{Name: "the cycle is not walked", Args: by("AMaskIsABijection"),
		Edits: []mutant.Edit{mutant.Delete("walk")}},
	{Name: "the walk may end at n", Args: by("AMaskIsABijection"), Edits: []mutant.Edit{
		mutant.Replace("walk", `for y > m.n {
			y = network(y, buf)
		}`)}},
	{Name: "the tweak is ignored", Args: by("MasksOfTwoTweaksSizesOrKeysAreUnrelated"),
		Edits: []mutant.Edit{mutant.Replace("info", `info := string(binary.BigEndian.AppendUint64(nil, n))`)}},
	{Name: "the size is ignored", Args: by("MasksOfTwoTweaksSizesOrKeysAreUnrelated"),
		Edits: []mutant.Edit{mutant.Replace("info", `info := "mask" + tweak`)}},
	{Name: "only half of a block is used", Args: by("ARoundIsTheExactFractionOfABlock"),
		Edits: []mutant.Edit{mutant.Replace("fraction", `_ = over
			return high`)}},
	{Name: "callers share a buffer", Args: by("CallersAtTheSameTimeDoNotDisturbOneAnother"),
		Edits: []mutant.Edit{mutant.Replace("buffer", `shared := new(buffer)
			m.buffers.New = func() any { return shared }`)}},
	{Name: "n is masked", Args: by("ANumberOutOfRangePanics"), Edits: []mutant.Edit{
		mutant.Replace("range", `if x < 0 || uint64(x) > m.n {
			panic("out of range")
		}`)}},
	{Name: "a mask shows its key", Args: by("ASecretIsNotShown"),
		Edits: []mutant.Edit{mutant.Delete("shown")}},
	{Name: "a key file is overwritten", Args: by("AFileIsNeverOverwritten"),
		Edits: []mutant.Edit{mutant.Replace("exclusive", `f, err := os.Create(path)`)}},
	{Name: "a changed key is read", Args: by("AWrongKeyFileIsRefusedWithTheReasonAndWithoutItsContent"),
		Edits: []mutant.Edit{mutant.Delete("fingerprint")}},
	{Name: "nobody is warned of others", Args: by("OthersWhoCanReadAKeyAreAWarning"),
		Edits: []mutant.Edit{mutant.Replace("warning", "_, _ = info, runtime.GOOS")}},
}

func TestMutants(t *testing.T) {
	mutant.Suite{
		Mutants: mutants,
		Args:    []string{"-test.timeout=2m"},
		Finding: regexp.MustCompile(`(?m)^\s*\w+_test.go:\d+: (.*)$`),
	}.Run(t)
}
