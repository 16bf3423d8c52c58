//go:build !race

package lineage

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
)

// schedules is the default number of simulated schedules.
const schedules = 2_000

// mutants break the rules, each in one way.
var mutants = []mutant.Mutant{
	{Name: "the chain does not get what provers had", Edits: []mutant.Edit{mutant.Delete("forgotten")}},
	{Name: "a resume adds nothing to the chain but the incident", Edits: []mutant.Edit{
		mutant.Replace("chain", "next.Eras = slices.Clone(next.Eras)")}},
	{Name: "a prover overwrites what the proof rests on", Edits: []mutant.Edit{mutant.Delete("proof-key")}},
	{Name: "an incident that is gone ends", Edits: []mutant.Edit{
		mutant.Replace("gone", `c.own.Incident = ""; return c.begin(ctx, v)`)}},
	{Name: "a prover joins an incident that it had joined before", Edits: []mutant.Edit{
		mutant.Replace("joins", "joins := open != nil")}},
	{Name: "who stops lifts nothing", Edits: []mutant.Edit{mutant.Delete("stop-lift")}},
	{Name: "memory is issued after a stop",
		Args: []string{"-sim.from=641"}, Edits: []mutant.Edit{mutant.Delete("discard")}},
	{Name: "a worker of an old era continues", Edits: []mutant.Edit{
		mutant.Replace("renew", "case false:")}},
	{Name: "an own key with a higher revision is this worker's", Edits: []mutant.Edit{
		mutant.Replace("mine", `case o != nil && (o.Token == m.Written.Token || m.Written.Revision > 0 &&
			revision > m.Written.Revision): return mine`)}},
	{Name: "a token in flight counts whatever its revision", Edits: []mutant.Edit{
		mutant.Replace("flight", `case o != nil && o.Token == m.Flight.Token && m.Flight.Token != "": return landed`)}},
	{Name: "volatile workers take over keys of data directories", Edits: []mutant.Edit{
		mutant.Replace("take-over", "if err != nil || !o.Ended && k.cfg.Now().Sub(o.Time) < silence { continue }")}},
	{Name: "a worker whose journal fails names no tokens", Edits: []mutant.Edit{mutant.Delete("journal-fails")}},
	{Name: "a stopped worker announces revisions", Edits: []mutant.Edit{mutant.Delete("known")}},
	{Name: "that the own key was written is not noted on disk", Edits: []mutant.Edit{mutant.Delete("landed")}},
	{Name: "a load is used however late it ends",
		Args: []string{"-sim.from=141"}, Edits: []mutant.Edit{mutant.Replace("counts", "return l, nil")}},
	{Name: "an operator waits for nobody", Edits: []mutant.Edit{mutant.Replace("wait", "case false:")}},
}

// TestMutants checks that the simulation finds each rule that is broken.
func TestMutants(t *testing.T) {
	mutant.Suite{
		Mutants: mutants, Folders: []string{"."},
		Args: []string{
			"-test.run=Stop|TakenOver|Simulation", "-test.timeout=6m", "-test.failfast",
			fmt.Sprint("-sim.n=", 2*schedules),
		},
		Finding: regexp.MustCompile(`(?m)^\s*\w+_test.go:\d+: (.*)$`),
	}.Run(t)
}
