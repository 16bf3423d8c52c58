//go:build !race

package lineage

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
)

const (
	eraFile   = "../era/identity.go"
	floorFile = "../../../segment/segment.go"
	entryFile = "../../stores/kvstore/entry.go"
)

// from returns the argument for a mutant that is found at a seed from n on.
func from(n int) []string { return []string{fmt.Sprint("-sim.from=", n)} }

// mutants break the rules, each in one way.
var mutants = []mutant.Mutant{
	{Name: "an incident does not get what provers know", Edits: []mutant.Edit{
		mutant.Text(eraFile, "in.Eras, in.Need = open.Eras.Add(proof.Eras), max(open.Need, proof.Need)", "")}},
	{Name: "a new incident forgets what the open one knew", Edits: []mutant.Edit{
		mutant.Text(eraFile, "in.Eras, in.Need = open.Eras.Add(proof.Eras), max(open.Need, proof.Need)",
			"if joins { in.Eras, in.Need = open.Eras.Add(proof.Eras), max(open.Need, proof.Need) }")}},
	{Name: "a resume adds no era but its own", Edits: []mutant.Edit{
		mutant.Text(eraFile, "id = id.Knowing(nil)", "")}},
	{Name: "a resume ends no incident but the open one", Edits: []mutant.Edit{
		mutant.Text(eraFile, "append(slices.Clone(in.Prior), in.ID)", "[]string{in.ID}")}},
	{Name: "an offset is not above those of all eras", Edits: []mutant.Edit{
		mutant.Text(eraFile, "highest = max(highest, offset)", "_ = offset")}},
	{Name: "what the workers who join need counts for nothing", Edits: []mutant.Edit{mutant.Delete("join-need")}},
	{Name: "a prover overwrites what the proof rests on", Edits: []mutant.Edit{mutant.Delete("proof-key")}},
	{Name: "an incident that is gone ends", Edits: []mutant.Edit{
		mutant.Replace("gone", `return c.enter(ctx, v)`)}},
	{Name: "an incident that lacks what its prover knew is the same", Edits: []mutant.Edit{
		mutant.Replace("facts-gone", "case v.missing != nil: return f")}},
	{Name: "a prover joins an incident that it had joined before", Edits: []mutant.Edit{
		mutant.Replace("joins", `joins := open != ""`)}},
	{Name: "memory is issued after a stop", Edits: []mutant.Edit{mutant.Delete("discard")}},
	{Name: "a life that begins in an incident loads", Edits: []mutant.Edit{mutant.Delete("stay")}},
	{Name: "a worker of an old era continues", Edits: []mutant.Edit{mutant.Replace("new-era", "case false:")}},
	{Name: "a worker enters an era in which marks are below its floors", Edits: []mutant.Edit{
		mutant.Replace("resume-low", "case low == nil:")}},
	{Name: "an identity that lacks an era is believed", Edits: []mutant.Edit{
		mutant.Replace("era-proof", "case false:")}},
	{Name: "entries are read by an identity that was merely read", Edits: []mutant.Edit{
		mutant.Text("registry.go", "return valueOf(&r.begun)", "return valueOf(&r.last)")}},
	{Name: "the identity is read before the own key is written", Args: from(2415), Edits: []mutant.Edit{
		mutant.Text("check.go", "wrote = c.own.write(ctx, 0, false)", "inEra = false")}},
	{Name: "an own key with a higher revision is this worker's", Edits: []mutant.Edit{
		mutant.Replace("mine", `case o != nil && (o.Token == m.Written.Token || m.Written.Revision > 0 &&
			revision > m.Written.Revision): return mine`)}},
	{Name: "a token in flight counts whatever its revision", Edits: []mutant.Edit{
		mutant.Replace("flight", `case o != nil && o.Token == m.Flight.Token && m.Flight.Token != "": return landed`)}},
	{Name: "volatile workers take over keys of data directories", Edits: []mutant.Edit{
		mutant.Replace("take-over", "if err != nil || !o.Ended && k.cfg.Now().Sub(o.Time) < silence { continue }")}},
	{Name: "a worker whose journal fails names no tokens", Edits: []mutant.Edit{mutant.Delete("journal-fails")}},
	{Name: "a stopped worker announces revisions", Edits: []mutant.Edit{mutant.Delete("known")}},
	{Name: "that the own key was written is not noted on disk", Args: from(2685), Edits: []mutant.Edit{
		mutant.Delete("landed")}},
	{Name: "a load is used however late it ends", Edits: []mutant.Edit{
		mutant.Replace("counts", "late := g.stops != p.stops")}},
	{Name: "a load of an earlier era is used", Edits: []mutant.Edit{
		mutant.Replace("counts", "late := g.cfg.Now().Sub(p.checked) >= fresh+writeTimeout")}},
	{Name: "an operator waits for nobody", Edits: []mutant.Edit{
		mutant.Text("resume.go", "wait > 0 {", "wait < 0 {")}},
	{Name: "a mark of an earlier era is read as it is written", Edits: []mutant.Edit{
		mutant.Text(entryFile, "e.Mark += by", "e.Mark += 0*by")}},
	{Name: "tags with a last number go on by themselves", Edits: []mutant.Edit{
		mutant.Text(entryFile, "by > 0 && (e.Rules.Bounded() || e.Mark > limit-by)", "false")}},
	{Name: "a proof makes a missing tag a loose one", Args: from(700), Edits: []mutant.Edit{
		mutant.Text("../../stores/kvstore/restore.go", "entry{Mark: 1, First: true}", "entry{Mark: 1}")}},
	{Name: "a strict tag that is written again is a loose one", Edits: []mutant.Edit{
		mutant.Text("../../stores/kvstore/restore.go", "Rules: *f.Rules,",
			"Rules: func(r segment.Rules) segment.Rules { r.Strict = false; return r }(*f.Rules),")}},
	{Name: "a floor of a tag with a last number is a proof", Args: from(220), Edits: []mutant.Edit{
		mutant.Text(floorFile, "|| t.Undecided || t.Rules.Bounded() || f.Rules != nil && f.Rules.Bounded()", "")}},
}

// TestMutants checks that the simulation finds each rule that is broken.
func TestMutants(t *testing.T) {
	mutant.Suite{
		Mutants: mutants, Folders: []string{"."},
		Args: []string{
			"-test.run=Stop|TakenOver|Simulation|Era|Operator", "-test.timeout=6m", "-test.failfast",
			fmt.Sprint("-sim.n=", schedules),
		},
		Finding: regexp.MustCompile(`(?m)^\s*\w+_test.go:\d+: (.*)$`),
	}.Run(t)
}
