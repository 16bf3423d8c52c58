//go:build !race

package simulation_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
	"github.com/natsid/natsid/internal/testkit/schedules"
)

// mutants break the law, each in one way.
var mutants = slices.Concat(
	mutantsOfMarks, mutantsOfTables, mutantsOfEras, mutantsOfMemory, mutantsOfOrder, mutantsOfRules,
)

var mutantsOfMarks = []mutant.Mutant{
	{Name: "a load is a put, whatever the revision", Edits: []mutant.Edit{
		mutant.Replace("load-write", "_ = write; _, err := s.own.Put(ctx, tag, e.encode())")}},
	{Name: "a range is used though its write was not acknowledged", Edits: []mutant.Edit{
		mutant.Before("loaded", "if !isOvertaken(err) { return loaded, nil }")}},
	{Name: "a range is used though its write was refused", Edits: []mutant.Edit{
		mutant.Before("loaded", "if isOvertaken(err) { return loaded, nil }")}},
	{Name: "a mark that equals the end of a range proves that the write landed", Edits: []mutant.Edit{
		mutant.Replace("landed", `case (isOurs || old.End > 0) && fits && v.mark == old.End:
			return old, true, nil`)}},
	{Name: "a range whose write is under way counts as reserved", Edits: []mutant.Edit{
		mutant.Replace("ours", "isOurs := outcome != none")}},
	{Name: "a kept range is used below the lowest ID allowed", Edits: []mutant.Edit{
		mutant.Replace("fits", "outcome, fits := old.outcome(v.revision, v.token), true")}},
	{Name: "a kept range is not forgotten when it is used, and used below the floor", Edits: []mutant.Edit{
		mutant.Delete("kept-once"),
		mutant.Replace("fits", "outcome, fits := old.outcome(v.revision, v.token), true")}},
	{Name: "the mark is ignored", Edits: []mutant.Edit{
		mutant.Replace("next-range", "_ = mark; l.Range, err = segment.NextRange(max(v.lowest, 1), 0, n, v.limit)")}},
	{Name: "the floor is ignored", Edits: []mutant.Edit{
		mutant.Delete("load-low"), mutant.Before("marks-floor", "floor = 0"),
		mutant.Replace("check", `if l.Len() < 1 { return fmt.Errorf("no IDs") }`)}},
	{Name: "the range of a load that failed is not kept", Edits: []mutant.Edit{
		mutant.Delete("keep")}},
	{Name: "the range after a lost one is as long as ever", Edits: []mutant.Edit{
		mutant.Delete("halve")}},
	{Name: "a range that is lost to a strict load does not halve the next", In: "../../internal/stores/kvstore",
		Args: []string{"-test.run=^TestARangeThatIsLostToAStrictLoadHalvesTheNext$"}, Edits: []mutant.Edit{
			mutant.Replace("kept-lost", "r.keep(tag, reservation{most: l.most})")}},
	{Name: "a deleted tag is loaded", Edits: []mutant.Edit{
		mutant.Delete("disabled")}},
	{Name: "a revived tag has no least ID", In: "../../internal/stores/kvstore",
		Args: []string{"-test.run=^TestARevivedTagIssuesNothing"}, Edits: []mutant.Edit{
			mutant.Replace("revived", "again.Disabled = false")}},
	{Name: "a raise may lower the mark", Edits: []mutant.Edit{
		mutant.Replace("raise", "case false:"),
		mutant.Replace("changed", "e.Mark = t.MaxID")}},
}

// mutantsOfRules are found by tests of package segment, in which clocks are apart.
var mutantsOfRules = []mutant.Mutant{
	{Name: "a day goes back with the clock", In: "..", Args: []string{"-test.run=^TestDays|^TestAWindow"},
		Edits: []mutant.Edit{mutant.Text("../rules.go", "today > base", "today != base")}},
	{Name: "a clock that is not sure begins a day", In: "..", Args: []string{"-test.run=^TestAClockThatIsNotSure"},
		Edits: []mutant.Edit{mutant.Text("../rules.go", "if !isSure {", "if !isSure && base > today {")}},
	{Name: "ranges of a past day stay in memory", In: "..", Args: []string{"-test.run=^TestDays|Midnight"},
		Edits: []mutant.Edit{mutant.Text("../calendar.go", "if s.stock.cut(s.ruled().Begins(now), monotonic) {",
			"if false {")}},
	{Name: "a zone that a worker lacks is UTC", In: "..", Args: []string{"-test.run=^TestAWindow"},
		Edits: []mutant.Edit{mutant.Text("../rules.go", "if err != nil {\n\t\t\treturn 0, 0, fmt",
			"if err != nil { today = r.Period.Base(now.UTC()) }\nif false {\n\t\t\treturn 0, 0, fmt")}},
	{Name: "an hour is no use", In: "..", Args: []string{"-test.run=^TestATagThatIsNotInUse"}, Edits: []mutant.Edit{
		mutant.Text("../calendar.go", "recentFor = time.Hour", "recentFor = time.Minute")}},
	{Name: "a new daily tag may be raised to any day", In: "..", Args: []string{"-test.run=^TestNoTagGets"},
		Edits: []mutant.Edit{mutant.Text("../rules.go", "case id >= mark && (base",
			"case id >= mark && mark > 1 && (base")}},
	{Name: "a tag that is revived may be days ahead", In: "..", Args: []string{"-test.run=^TestNoTagGets"},
		Edits: []mutant.Edit{mutant.Text("../rules.go", "AddDate(0, 0, 1)", "AddDate(0, 0, 2)")}},
	{Name: "a strict load that serves nobody is written", In: "..", Args: []string{"-test.run=^TestARequestForMore"},
		Edits: []mutant.Edit{mutant.Text("../segmenttest/memory.go", "err == nil && strict && r", "false && r"),
			mutant.Text("../../internal/stores/kvstore/kept.go", "err == nil && v.strict && l", "false && l")}},
	{Name: "a load ignores the bound on holes", In: "..", Args: []string{"-test.run=^TestABoundOnHoles"},
		Edits: []mutant.Edit{mutant.Text("../rules.go", "min(step, max(1, r.mostHeld()/2))", "step")}},
}

var mutantsOfTables = []mutant.Mutant{
	inKVStore("the first mark is put, not created", "TestAtMostOneOfManyCallsCreatesATag",
		mutant.Replace("first-mark", "return s.own.Put(ctx, tag, value)")),
	{Name: "the mark is not raised", Edits: []mutant.Edit{
		mutant.Replace("reserve", "_ = reserved")}},
	{Name: "the row is not raised", Edits: []mutant.Edit{
		mutant.Replace("advance", "done, err := true, error(nil)")}},
	inKVStore("a range is used though the row had passed its start", "TestALoadUsesNoRangeThatLeafHasBegun",
		mutant.Replace("advanced", "_ = done")),
	{Name: "a range is used though the table did not confirm it", Edits: []mutant.Edit{
		mutant.Before("confirmed", "if err != nil && !errors.Is(err, errOvertaken) { err = nil }")}},
	inKVStore("a row one above the start is raised", "TestALoadUsesNoRangeThatLeafHasBegun",
		mutant.Replace("advance", "done, err := s.cfg.Table.Advance(ctx, tag, l.Start+1, l.End)")),
	{Name: "a created, changed or revived tag ignores the mark", Edits: []mutant.Edit{
		mutant.Before("merged", "e.Mark = 0"), mutant.Replace("changed", "e.Mark = t.MaxID")}},
	{Name: "a deletion forgets the row's max_id", In: "../../internal/stores/kvstore",
		Args: []string{"-test.run=^TestADeletedTagRemembersWhatLeafTook$"}, Edits: []mutant.Edit{
			mutant.Replace("deleted", "e.Seen, e.Disabled = 0, true")}},
	{Name: "a row is made again at an old mark", In: "../../internal/stores/kvstore",
		Args: []string{"-test.run=^TestAnOldReadMakesNoRowOfADeletedTag$"}, Edits: []mutant.Edit{
			mutant.Replace("row-again", `var err error
			if was.kve.Revision == 0 { was, err = s.put(ctx, t.Name, was, e, c) }`)}},
	{Name: "a raise does not reach the mark", Edits: []mutant.Edit{
		mutant.Delete("raised")}},
	{Name: "a poll lowers a mark to its row",
		In: "../../internal/stores/kvstore", Args: []string{"-test.run=^TestAPollLowersNoMark$"},
		Edits: []mutant.Edit{mutant.Before("caught-up", "t.Mark = 0")}},
}

// inKVStore is a mutant that a test of package kvstore finds.
func inKVStore(name, test string, edits ...mutant.Edit) mutant.Mutant {
	return mutant.Mutant{
		Name: name, In: "../../internal/stores/kvstore", Args: []string{"-test.run=^" + test}, Edits: edits,
	}
}

func inEntry(text, code string) mutant.Edit {
	return mutant.Text("../../internal/stores/kvstore/entry.go", text, code)
}

func inRestore(text, code string) mutant.Edit {
	return mutant.Text("../../internal/stores/kvstore/restore.go", text, code)
}

func inCreate(text, code string) mutant.Edit {
	return mutant.Text("../../internal/stores/kvstore/change.go", text, code)
}

// ofOrder is a mutant by which the order of a tag changes.
func ofOrder(name, text, code string) mutant.Mutant {
	return mutant.Mutant{Name: name, In: "..", Args: []string{"-test.run=^TestTheOrderOfATagNeverChanges$"},
		Edits: []mutant.Edit{mutant.Text("../rules.go", text, code)}}
}

// mutantsOfEras are found without a simulation: in it no registry stops. That of package lineage has members.
var mutantsOfEras = []mutant.Mutant{
	inKVStore("a mark of an earlier era is read as it is written", "TestWhoever", mutant.Delete("offset")),
	inKVStore("who writes a mark in the present era names the one before", "TestWhoever",
		inEntry("\te.Era = e.present\n\treturn nil", "\treturn nil")),
	inKVStore("a tag with a last number is raised by the offset", "TestABounded",
		mutant.Replace("undecided", "case by > 0 && e.Mark > limit-by:")),
	inKVStore("a column is passed by the offset", "TestATagWhoseColumn",
		mutant.Replace("undecided", "case by > 0 && e.Rules.Bounded():")),
	inKVStore("a change of an undecided tag names the present era", "TestABounded",
		inEntry("if e.undecided = t.Undecided; !e.undecided {", "if e.undecided = t.Undecided; true {")),
	inKVStore("a tag is decided while an incident is open", "TestABounded",
		mutant.Text("../../internal/stores/kvstore/change.go", "id.Incident != nil", "id.Incident != nil && false")),
	inKVStore("a row of an undecided tag is lifted", "TestATagWhoseColumn",
		mutant.Text("../../internal/stores/kvstore/poll.go",
			"t.row.MaxID < t.Mark && !t.undecided", "t.row.MaxID < t.Mark")),
	inKVStore("a daily tag decides itself", "TestADailyTagOfAnEarlierDay",
		mutant.Text("../../internal/stores/kvstore/load.go", "if was.undecided {", "if was.undecided && false {")),
	inKVStore("a new tag begins below the offset", "TestANewTag",
		inCreate("if e.First = !c.revive; c.tag.MaxID == 0 && was.isMissing()",
			"if e.First = !c.revive; was.isMissing()"),
		inCreate("case t.MaxID == 0 || s.raw > 0", "case s.raw > 0")),
	inKVStore("a bounded new tag without a start begins at 1", "TestANewTag",
		inCreate("t.Rules.Bounded() && old.MaxID > 1", "false")),
	inKVStore("a new tag without a start begins at 1 in a column that is too narrow", "TestATagWhoseColumn",
		inCreate("(s.undecided || ", "(")),
	inKVStore("a tag is made over a delete marker without a start", "TestARemovedTag",
		inCreate("create := s.kv.CreateFirst", "create := s.kv.Create")),
	inKVStore("a missing entry is written again in the present era", "TestAMissingEntry",
		inRestore("*f.Rules, Era: f.Era}", "*f.Rules, Era: t.present}")),
	inKVStore("a delete marker is replaced", "TestNeitherADeletedTag",
		inCreate("create := s.kv.CreateFirst", "create := s.kv.Create")),
	inKVStore("a tag of first use stays without rules", "TestATagOfFirstUse|TestARestore",
		mutant.Replace("first-use", "case isMade && false:")),
	inKVStore("a tag of first use gets the rules, and keeps what was loaded without", "TestATagOfFirstUse",
		inRestore("if e.Least = e.Mark; e.Rules.Bounded() {", "if e.Rules.Bounded() {")),
	inKVStore("an old worker puts the limits of before over those of an entry", "TestARestoreKeepsTheLimits",
		inRestore("isMade := e.First && e.Rules == segment.Rules{}", "isMade := true")),
	inKVStore("an old worker puts limits over an entry whose limits ended", "TestARestoreKeepsTheLimits",
		inRestore("isMade := e.First && e.Rules", "isMade := e.Rules")),
	inKVStore("a bounded mark stays below a floor", "TestARestore", mutant.Replace("lift", "case false:")),
	inKVStore("a mark that proves that the bucket went back is lifted", "TestARestore",
		mutant.Replace("lift", "case e.Mark < f.End:")),
	inKVStore("a load from a mark below the floor shows nothing", "TestALoadBelow", mutant.Delete("load-low")),
	inKVStore("what is read below the floor is a proof without a write", "TestALowMark",
		inRestore("_, err = s.kv.Update(ctx, tag, was.kve.Value, was.kve.Revision)",
			"_, _ = s.kv.Update(ctx, tag, was.kve.Value, was.kve.Revision)")),
	inKVStore("a confirmation writes the mark in the present era", "TestALowMark|TestALoadBelow",
		inRestore("was.kve.Value, was.kve.Revision", "was.entry.encode(), was.kve.Revision")),
	{Name: "a range that was kept in another era is used", In: "../../internal/stores/kvstore",
		Args: []string{"-test.run=^TestAReservedRange|^TestAWriteThatHasNotLandedIsNot"}, Edits: []mutant.Edit{
			mutant.Replace("fits", "outcome, fits := old.outcome(v.revision, v.token), old.Start >= v.lowest")}},
	{Name: "a load that another worker passed says that a tag has no rules", In: "..",
		Args: []string{"-test.run=^TestAFloorOfWhat"}, Edits: []mutant.Edit{
			mutant.Text("../buffer.go", "	if !l.Passed {\n\t\tb.supply.era", "\tif true {\n\t\tb.supply.era")}},
	{Name: "a floor says nothing of rules that a tag does not have", In: "..",
		Args: []string{"-test.run=^TestAFloorCarries"}, Edits: []mutant.Edit{
			mutant.Text("../supply.go", "if f.Rules == nil && s.isRuled {", "if false {")}},
}

var mutantsOfMemory = []mutant.Mutant{
	{Name: "a loaded range raises no floor", Args: []string{"-sim.from=71"}, Edits: []mutant.Edit{
		mutant.Delete("floor")}},
	{Name: "the floor of a tag that was stopped is forgotten", Args: []string{"-sim.from=71"}, Edits: []mutant.Edit{
		mutant.Delete("keep-floor")}},
	{Name: "a load under way brings IDs below the least", In: "..",
		Args: []string{"-test.run=^TestAStockKeepsNothingBelowLeast$"}, Edits: []mutant.Edit{
			mutant.Replace("least", "if r.Len() <= 0 { return }")}},
	{Name: "a raise raises no floor", In: "..",
		Args:  []string{"-test.run=^TestARaiseThatWasSeenOutlastsAStoreThatLosesIt$"},
		Edits: []mutant.Edit{mutant.Replace("least-floor", "s.least = least")}},
	{Name: "a deleted tag in a listing is not stopped", In: "..",
		Args: []string{"-test.run=^TestAPollSeesTags"}, Edits: []mutant.Edit{mutant.Delete("listed-deleted")}},
	{Name: "a worker that deletes a tag does not stop it", Edits: []mutant.Edit{
		mutant.Delete("news-deleted")}},
	{Name: "a worker that raises a tag does not heed that at once", Edits: []mutant.Edit{
		mutant.Delete("news-least")}},
	{Name: "the floor of a tag that was idle is forgotten", Args: []string{"-sim.from=71"}, Edits: []mutant.Edit{
		mutant.Replace("rest-floor", "b.supply.stock.floor = 0; b.stopLocked(nil, false)")}},
	{Name: "a listing by a member that is behind is taken for all",
		Args: []string{"-sim.from=1754"}, Edits: []mutant.Edit{
			mutant.Before("behind", "upTo = 0")}},
	{Name: "a listing brings limits back that were changed since", In: "..",
		Args: []string{"-test.run=^TestAListingOlderThanTheNewsOfATagBringsNoOldLimits$"}, Edits: []mutant.Edit{
			mutant.Text("../buffer.go", "(b.news == 0 || b.news < asOf) && ", "")}},
	{Name: "a poll brings no least ID", Args: []string{"-sim.from=201"}, Edits: []mutant.Edit{
		mutant.Delete("listed-least")}},
	{Name: "a request behind one that expired does not expire", Edits: []mutant.Edit{
		mutant.Delete("expiry")}},
	{Name: "a load has no timeout", Edits: []mutant.Edit{
		mutant.Replace("load-timeout", "ctx, cancel := context.WithCancel(ctx)")}},
}

// more lets the load of a strict tag reserve more than its requests ask for, as a loose one does.
var more = mutant.Replace("join", "return s.waiters.demand() + 20")

var mutantsOfOrder = []mutant.Mutant{
	{Name: "a strict tag is served from memory", Edits: []mutant.Edit{
		more, mutant.Delete("left-over"),
		mutant.Replace("sealed", "if b.supply.waiters.any() || b.supply.stock.held() < n { return dst, ErrWait }")}},
	{Name: "what a load of a strict tag leaves is served with the next", Edits: []mutant.Edit{
		more, mutant.Delete("left-over")}},
	{Name: "a strict request joins a load that was sent already", Args: []string{"-sim.from=771"},
		Edits: []mutant.Edit{
			more, mutant.Replace("joined", "answers = s.waiters.serveUpTo(s.waiters.ever, &s.stock, nil)")}},
	{Name: "a tag is loose before its first load", Edits: []mutant.Edit{
		mutant.Delete("order")}},
	ofOrder("a change of a tag changes its order", "r.Strict = old.Strict", ""),
	ofOrder("a loose tag is said to be revived as strict", "r.Strict && !old.Strict", "false"),
	inKVStore("a tag whose row was lost is made again in another order", "TestATagWhoseRowWasRemovedKeepsItsOrder",
		inCreate("s.raw > 0 && !s.isUnmade() { // it", "false { // it")),
	inKVStore("a kept range answers strict requests", "TestAReservedRange",
		mutant.Replace("landed", "case isOurs && fits && v.mark >= old.End: return old, true, nil"),
		mutant.Replace("strict-last", "case false:")),
	inKVStore("a kept range answers strict requests though others have loaded since", "TestAReservedRange",
		mutant.Replace("strict-last", "case v.strict && isOurs && fits: mark = old.Start")),
	{Name: "an ambiguous range answers strict requests", Edits: []mutant.Edit{
		mutant.Before("loaded", "if strict && !isOvertaken(err) { return loaded, nil }")}},
	{Name: "a strict request is served from a load that was passed on before it came",
		In:   "../../internal/fleet",
		Args: []string{"-test.run=^TestRequestsJoinALoadThatIsPassedOnOnlyBeforeItIsSent$"}, Edits: []mutant.Edit{
			mutant.Replace("pass", "n, marks := join()+20, t.cfg.Marks()"),
			mutant.Before("passed", "_ = join()")}},
	{Name: "a strict load takes the revision from the store, and the mark from its memory", Edits: []mutant.Edit{
		mutant.Replace("load-read", "was, err := s.read(ctx, tag); if strict { was.Mark = max(1, floor) }")}},
}

// TestMutants checks that the simulation finds each way in which the law can be broken.
func TestMutants(t *testing.T) {
	mutant.Suite{
		Mutants: mutants,
		Folders: []string{
			"..", "../../internal/stores/kvstore", "../../internal/registry/buckets",
			"../../internal/fleet",
		},
		Args: []string{"-test.run=^TestSimulation$", "-test.timeout=4m", fmt.Sprint("-sim.n=", 4*schedules.Usual)},
		// A number begins what is logged of all schedules.
		Finding: regexp.MustCompile(`(?m)^\s*\w+\.go:\d+: (\D.*)$`),
	}.Run(t)
}
