package stage_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
)

// mutants break the law of the stage, each in one way.
var mutants = []mutant.Mutant{
	{Name: "a write expects the sequence that is read just before it", Edits: []mutant.Edit{
		mutant.Before("write", `if t, err := s.target(ctx); err == nil {
			*last = t.Last
		}`)}},
	{Name: "a write of unknown outcome counts as lost, and is sent behind what is there", Edits: []mutant.Edit{
		mutant.Replace("write", `for s.cfg.Target.Write(ctx, b.msgs, *last) != nil {
			if t, err := s.target(ctx); err == nil {
				*last = t.Last
			}
		}`)}},
	{Name: "the position is remembered, and not read", Edits: []mutant.Edit{
		mutant.Replace("position", `p, err := positionIn(t.Header)
		if seq := s.Progress().Position; seq > 0 {
			p.Seq = seq
		}`)}},
	{Name: "reading begins one message late", Edits: []mutant.Edit{
		mutant.Replace("open", "reader, err := s.cfg.Source.Open(ctx, at.from.Seq+1)")}},
	{Name: "a hint counts whatever was written since", Edits: []mutant.Edit{
		mutant.Replace("hint", "isCurrent := err == nil")}},
	{Name: "a hint does not count where the last message is there", Edits: []mutant.Edit{
		mutant.Before("hint", `if !t.Expired {
			h.Position.Seq = 0
		}`)}},
	{Name: "a hint counts though the last copy was removed", Args: []string{"-test.run=^TestTheLastCopy"},
		Edits: []mutant.Edit{mutant.Before("hint", "t.Removed = false")}},
	{Name: "what no filter selects is never passed", Edits: []mutant.Edit{mutant.Delete("pass")}},
	{Name: "what is ahead is passed, whether it is to be read or not", Edits: []mutant.Edit{
		mutant.Replace("end", `if err != nil || src.Last == at.Seq {
			return false, err
		}`)}},
	{Name: "what expired before it was looked at is passed",
		Args:  []string{"-test.run=^TestWhatExpiresUnseenIsMissed$"},
		Edits: []mutant.Edit{mutant.Replace("later", "_ = later")}},
	{Name: "messages are passed on the word of two leaders",
		Args:  []string{"-test.run=^TestAnElectionBetweenTwoAnswersPassesNothing$"},
		Edits: []mutant.Edit{mutant.Delete("leader")}},
	{Name: "the message at the position may be another one",
		Args:  []string{"-test.run=^TestASourceThatIsSetBackAndWrittenAgainStopsTheStage$"},
		Edits: []mutant.Edit{mutant.Replace("same", "_ = at")}},
	{Name: "a dead letter that was not acknowledged is passed", Edits: []mutant.Edit{
		mutant.Replace("keep", `_ = s.cfg.DeadLetters.Keep(ctx, letterFor(m, at, why, s.cfg.DeadLetters.Largest()))`)}},
	{Name: "a stage that another one has overtaken misses what expired since",
		Args: []string{"-test.run=^TestAStageThatIsOvertakenMissesNothing$"},
		Edits: []mutant.Edit{mutant.Replace("gap", `if src.First > last+1 {
			return gap(o.name, last+1, m.Seq-1)
		}`)}},
	{Name: "headers of NATS are copied", Edits: []mutant.Edit{
		mutant.Replace("headers", `if !strings.EqualFold(name, "") {
			c[name] = values
		}`)}},
	{Name: "messages that left unread are not missed", Args: []string{"-test.run=^TestAMessageThatLeftUnreadIsMissed$"},
		Edits: []mutant.Edit{mutant.Replace("gap", "_ = src")}},
}

func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("they take a minute")
	}
	mutant.Suite{
		Mutants: mutants,
		Folders: []string{"."},
		Args:    []string{"-test.run=^TestSimulation$", "-test.timeout=4m", fmt.Sprint("-sim.n=", *simulated)},
		Finding: regexp.MustCompile(`(?m)^\s*\w+_test.go:\d+: (.*)$`),
	}.Run(t)
}
