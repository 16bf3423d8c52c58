//go:build !race

package workerid_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
	"github.com/natsid/natsid/internal/testkit/schedules"
)

// stepped is the generator with package steps in the place of sync/atomic, and
// interleavings how the tests of its package find the fault then.
var (
	stepped = mutant.Text("../snowflake/generator.go", `"sync/atomic"`,
		`atomic "github.com/natsid/natsid/internal/testkit/steps"`)
	interleavings = []string{"-test.run=^TestEveryInterleaving$"}
)

// unit is a test that finds a mutant where no schedule does, or only a rare one.
func unit(name string) []string { return []string{"-test.run=^Test" + name + "$"} }

// mutants break the law, each in one way.
var mutants = []mutant.Mutant{
	// Writes.
	{Name: "a renewal is a put, whatever the revision", Edits: []mutant.Edit{
		mutant.Before("token", `if r, err := c.read(ctx); err == nil {
			c.revision = r.Revision
		}`)}},
	{Name: "the token of a worker, not of a claim", Args: []string{"-sim.from=771"}, Edits: []mutant.Edit{
		mutant.Replace("new-token", "token := k.cfg.Instance")}},
	{Name: "the window is adopted with the revision", Args: unit("AnUnacknowledgedWriteIsRepeatedAtItsOwnRevision"),
		Edits: []mutant.Edit{mutant.Replace("write-again", `c.until.Store(r.Until)
		err = nil`)}},
	{Name: "the window grows though the write was not acknowledged", Args: []string{"-sim.from=2871"},
		Edits: []mutant.Edit{
			mutant.Replace("unacknowledged", `if err != nil {
			if c.until.Store(until); c.gen != nil {
				c.gen.Extend(until)
			}
			return err
		}`)}},
	{Name: "until is not clamped on renewal", Args: unit("ARenewalNeverLowersUntil"), Edits: []mutant.Edit{
		mutant.Replace("renewed-until", "until := now + horizon")}},
	{Name: "IDs are issued while the number rests", Args: unit("NothingIsIssuedWhileTheNumberRests"),
		Edits: []mutant.Edit{mutant.Replace("rest", "func (c *claim) usable() int64 { return c.until.Load() }")}},
	{Name: "a number that rests is released for a clock behind",
		Args:  unit("ANumberWhoseUserMayStillIssueIsNotReleasedForAClockBehind"),
		Edits: []mutant.Edit{mutant.Replace("rests", "case false:")}},
	{Name: "a record of a foreign token is adopted", Edits: []mutant.Edit{
		mutant.Delete("foreign-token")}},

	{Name: "a window that has passed is extended", Args: unit("AWindowThatHasPassedIsNotExtended"),
		Edits: []mutant.Edit{mutant.Delete("ended"), mutant.Delete("ended-meanwhile")}},
	{Name: "a window that has passed is resumed at once", Args: unit("AWindowThatHasPassedIsNotExtended"),
		Edits: []mutant.Edit{mutant.Replace("passed", "c.how = Resumed")}},
	{Name: "a renewal uses a later reading of the clock", Args: unit("ARenewalIsDueOnceAThirdOfTheHorizonIsUsed"),
		Edits: []mutant.Edit{
			mutant.Before("renewed-at", "now = c.k.cfg.Now()")}},
	{Name: "the own record is not read between renewals", Args: unit("ARecordOfAnotherTokenLosesTheNumber"),
		Edits: []mutant.Edit{
			mutant.Replace("reread", "r, err := Record{Until: acknowledged}, error(nil)")}},
	{Name: "a release writes without a read", Args: unit("NoWriteHitsAForeignRecordOfTheSameRevision"),
		Edits: []mutant.Edit{mutant.Delete("release-read")}},
	{Name: "a renewal writes without a read", Args: unit("NoWriteHitsAForeignRecordOfTheSameRevision"),
		Edits: []mutant.Edit{mutant.Replace("reread", `r, err := Record{Until: acknowledged}, error(nil)
			if acknowledged-now > horizon*2/3 {
				r, err = c.recheck(ctx)
			}`)}},
	{Name: "the own record is not read before the first ID",
		Args:  unit("OnlyAClaimResumedWithoutTheRegistryIssuesBeforeItsRecordIsReadAgain"),
		Edits: []mutant.Edit{mutant.Before("rechecked", "k.life.becomeIssuing(c)")}},

	// Programs.
	{Name: "a program founds a deployment", Edits: []mutant.Edit{
		mutant.Replace("guest", `if errors.Is(err, ErrNoDeployment) {
		have, err = k.foundDeployment(ctx)
	}`)}},
	{Name: "a worker takes the numbers of programs",
		Edits: []mutant.Edit{mutant.Replace("left-to-programs", "isFor := true")}},
	{Name: "a program takes the numbers of workers", Edits: []mutant.Edit{mutant.Replace("range", "isFor = true")}},

	// Stopping.
	{Name: "the state file keeps its claim at release", Args: []string{"-sim.from=2461"}, Edits: []mutant.Edit{
		mutant.Delete("forget")}},
	{Name: "a release lowers until although forgetting failed",
		Args:  unit("AReleaseThatIsNotInTheStateFileLowersNothing"),
		Edits: []mutant.Edit{mutant.Replace("forget", "_ = c.k.file.forget(&released{Token: c.token, Free: free})")}},
	{Name: "a lost claim stays in the state file", Args: unit("ALostClaimDoesNotStayInTheStateFile"),
		Edits: []mutant.Edit{mutant.Delete("forget-lost")}},
	{Name: "a generator stays open when its number ends", Args: []string{"-sim.from=12741"}, Edits: []mutant.Edit{
		mutant.Delete("close")}},
	{Name: "a release with nothing issued lowers until to nothing",
		Args: []string{"-sim.from=321"}, Edits: []mutant.Edit{
			mutant.Replace("free", `free := c.gen.Close()
		if free <= c.from+c.k.cfg.Layout.Unit {
			free = 0
		}`)}},
	{Name: "the last tick is read before the generator is closed", Edits: []mutant.Edit{
		mutant.Delete("unuse"),
		mutant.Replace("last-tick", `next := int64(g.state.Load() &^ closedBit)
		time.AfterFunc(time.Second, func() { g.state.Or(closedBit) })`)}},

	// Choosing.
	{Name: "an absent record is free", Edits: []mutant.Edit{
		mutant.Delete("absent-record")}},
	{Name: "no second question is asked", Args: unit("ANumberIsAskedForAgainAfterItsFirstWrite"),
		Edits: []mutant.Edit{
			mutant.Delete("second-question")}},
	{Name: "silence that says nothing is believed", Args: unit("ABystanderStopsNobodyAndHidesNoWindow"),
		Edits: []mutant.Edit{mutant.Delete("unheard")}},
	{Name: "a record that looks free is believed", Args: unit("OnlyTheOwnReleasedNumberIsUsedWithoutTheMargin"),
		Edits: []mutant.Edit{
			mutant.Replace("doubtful", `if r.Token == "" {
			c.caution = k.cfg.margin()
		}`)}},
	{Name: "a pending claim outlives a resumed one", Args: unit("AResumedClaimEndsAPendingOne"),
		Edits: []mutant.Edit{mutant.Delete("begin")}},
	{Name: "a failed state file leaves a doubt", Args: unit("AFailedStateFileLeavesNoPendingClaim"),
		Edits: []mutant.Edit{mutant.Replace("no-doubt", `case errors.Is(err, errTaken):
			return nil, err`)}},
	{Name: "the deployment is not compared after a win", Args: unit("TheDeploymentIsReadAgainAfterANumberIsWon"),
		Edits: []mutant.Edit{mutant.Delete("deployment-won")}},
	{Name: "another layout serves beside records of the old one",
		Args:  unit("ADeploymentReplacedByHandDoesNotServeBesideOldRecords"),
		Edits: []mutant.Edit{mutant.Replace("foreign-record", "_, _ = w, r")}},
	{Name: "a number is taken though a worker answers for it", Edits: []mutant.Edit{
		mutant.Replace("answered", `case err == nil:
			return nil`)}},
	{Name: "the own answer is known by its name", Args: unit("AnAnswerIsTheOwnOneByItsProcessNotByItsName"),
		Edits: []mutant.Edit{mutant.Replace("own-answer",
			`case errors.Is(err, ErrNoWorker) || err == nil && who.Instance == k.cfg.Instance:
			return nil`)}},
	{Name: "the last ID of the own release is ignored", Args: unit("ANumberThatWasReleasedIsAcquiredFromItsLastIDOn"),
		Edits: []mutant.Edit{mutant.Delete("own-free")}},
	{Name: "a claim issues though its record cannot be read",
		Args: unit("OnlyAClaimResumedWithoutTheRegistryIssuesBeforeItsRecordIsReadAgain"),
		Edits: []mutant.Edit{mutant.Replace("unread", `case k.life.phase() == holding:
			k.life.becomeIssuing(c)`)}},
	{Name: "a number is used again before until", Edits: []mutant.Edit{
		mutant.Replace("free-number", "return !live"),
		mutant.Replace("acquire-from", "from := v.now")}},
	{Name: "a lost number's generator stays open", Args: []string{"-sim.from=1731"}, Edits: []mutant.Edit{
		mutant.Delete("close"), mutant.Delete("unuse")}},

	// The state file.
	{Name: "the fence is forgotten", Edits: []mutant.Edit{
		mutant.Replace("resume", `case last != nil && last.wrote(r):
			c, err = k.confirm(ctx, k.claimOn(w, v.now, v.deployment), v)`)}},
	{Name: "the fence is forgotten without the registry", Edits: []mutant.Edit{
		mutant.Replace("resume-away", "from, until := now, last.Until")}},
	{Name: "the fence is written, but not waited for", Edits: []mutant.Edit{
		mutant.Delete("fence-written")}},
	{Name: "without the registry the window is as long as a horizon", Args: []string{"-sim.from=1191"},
		Edits: []mutant.Edit{
			mutant.Replace("resume-away", "from, until := max(last.Fence, now), now+k.cfg.Horizon.Milliseconds()")}},
	{Name: "a claim in the state file is trusted whatever the record's token",
		Args: []string{"-sim.from=1151"}, Edits: []mutant.Edit{
			mutant.Replace("resume", `case last != nil && r.Token != "":
			c, err = k.confirm(ctx, k.claimOn(w, max(last.Fence, v.now), v.deployment), v)`)}},

	// The generator.
	{Name: "milliseconds for coarse ticks", Edits: []mutant.Edit{
		mutant.Replace("first-tick", "first := min(max(l.TickAt(from), 0), l.maxTick()+1)")}},
	{Name: "from is not checked", Edits: []mutant.Edit{
		mutant.Replace("first-tick", "first := int64(0)")}},
	{Name: "a tick that begins at until is issued", Args: []string{"-sim.from=2951"}, Edits: []mutant.Edit{
		mutant.Replace("until", `if l.FirstMs(last) > g.until.Load() {
			return 0, 0, ErrWindow
		}`)}},
	{Name: "one sequence per business", Edits: []mutant.Edit{
		mutant.Replace("position", "state, other atomic.Uint64"),
		mutant.Replace("issue", `word := &g.state
		if n%2 == 0 {
			word = &g.other
			word.CompareAndSwap(0, g.state.Load())
		}
		for {
			state := word.Load()
			start, _, err := g.startAt(now, int64(n), state)
			if err != nil {
				return Runs{}, err
			}
			if word.CompareAndSwap(state, uint64(start+int64(n))) {
				return Runs{layout: &g.layout, worker: g.worker, start: start, n: int64(n)}, nil
			}
		}`)}},

	{Name: "a generator is closed by a load and a store", In: "../snowflake", Args: interleavings, Edits: []mutant.Edit{
		stepped, mutant.Replace("last-tick", `next := int64(g.state.Load() &^ closedBit)
		g.state.Store(uint64(next) | closedBit)`)}},
	{Name: "a window is extended by a load and a store", In: "../snowflake", Args: interleavings, Edits: []mutant.Edit{
		stepped, mutant.Replace("extend", `if until > g.until.Load() {
			g.until.Store(until)
		}`)}},
	{Name: "IDs are issued by a load and a store", In: "../snowflake", Args: interleavings, Edits: []mutant.Edit{
		stepped, mutant.Replace("issue", `state := g.state.Load()
		start, _, err := g.startAt(now, int64(n), state)
		if err != nil {
			return Runs{}, err
		}
		g.state.Store(uint64(start + int64(n)))
		return Runs{layout: &g.layout, worker: g.worker, start: start, n: int64(n)}, nil`)}},

	// Clocks.
	{Name: "a clock is not compared before a window is written", Edits: []mutant.Edit{
		mutant.Before("clock-agrees", `case true:
			c.proven, c.doubts, c.compared = true, 0, r.at`)}},
}

// TestMutants checks that tests find each way in which the law can be broken: the
// simulation, where no other test is named.
func TestMutants(t *testing.T) {
	mutant.Suite{
		Mutants: mutants,
		Folders: []string{".", "../snowflake"},
		Args:    []string{"-test.run=^TestSimulation$", "-test.timeout=4m", fmt.Sprint("-sim.n=", 10*schedules.Usual)},
		Finding: regexp.MustCompile(`(?m)^\s*\w+\.go:\d+: (.*)$`),
	}.Run(t)
}
