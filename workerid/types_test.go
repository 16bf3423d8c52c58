package workerid

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// These tests use each type without a running keeper. What waits for a disk or compares
// clocks runs in virtual time: no machine is too slow for it.

var errInjected = errors.New("injected")

// A stub is a registry in memory for one goroutine, whose writes can fail.
type stub struct {
	deployment Deployment
	records    map[int]Record
	heartbeats map[int]Heartbeat
	answers    map[int]Who
	after      func() error // called after a write landed; its error is what the writer gets
	offset     time.Duration
	recordErr  error
}

func (s *stub) Deployment(context.Context) (Deployment, error) { return s.deployment, nil }

func (s *stub) Found(context.Context, Deployment) error { return ErrConflict }

func (s *stub) Records(context.Context) (map[int]Record, error) { return maps.Clone(s.records), nil }

func (s *stub) Record(_ context.Context, w int) (Record, error) {
	r, ok := s.records[w]
	if s.recordErr == nil && !ok {
		return Record{}, ErrNoRecord
	}
	return r, s.recordErr
}

func (s *stub) Write(_ context.Context, w int, r Record) (uint64, error) {
	if s.records[w].Revision != r.Revision {
		return 0, ErrConflict
	}
	r.Revision++
	s.records[w] = r
	if s.after != nil {
		if err := s.after(); err != nil {
			return 0, err
		}
	}
	return r.Revision, nil
}

func (s *stub) Time(context.Context) (int64, error) {
	return time.Now().Add(s.offset).UnixMilli(), nil
}

func (s *stub) Report(_ context.Context, w int, h Heartbeat) error {
	s.heartbeats[w] = h
	return nil
}

func (s *stub) Heartbeats(context.Context) (map[int]Heartbeat, error) { return s.heartbeats, nil }

func (s *stub) Leave(_ context.Context, w int) error {
	delete(s.heartbeats, w)
	return nil
}

func (s *stub) Ask(_ context.Context, w int) (Who, error) {
	who, ok := s.answers[w]
	if !ok {
		return Who{}, ErrNoWorker
	}
	return who, nil
}

var small = snowflake.Layout{Time: 41, Worker: 2, Sequence: 12, Epoch: 946684800000 - 86400_000, Unit: 1}

// newStub returns a registry and a keeper that has not run. The keeper has a state file in dir, unless that is "".
func newStub(t *testing.T, dir string) (*stub, *Keeper) {
	t.Helper()
	s := &stub{
		records: make(map[int]Record), heartbeats: make(map[int]Heartbeat), answers: make(map[int]Who),
		deployment: ofStub(),
	}
	k := s.next(t, dir)
	return s, k
}

// next returns the keeper of another process.
func (s *stub) next(t *testing.T, dir string) *Keeper {
	t.Helper()
	k := New(Config{
		Registry: s, Layout: small, Numbers: &Span{0, 3}, Instance: "me", StateDir: dir, Horizon: time.Minute,
		Now: wallClock, Use: func(*snowflake.Generator) {}, Alarm: func(Alarm, string) {},
	})
	k.early, k.process = 0, "p"
	k.clock.start(k.file.isIn)
	if err := k.file.settle(ofStub(), "me"); err != nil {
		t.Fatal(err)
	}
	return k
}

// ofStub returns the deployment of every stub.
func ofStub() Deployment {
	d := DeploymentOf(small)
	d.ID = "stub"
	return d
}

func wallClock() int64 { return time.Now().UnixMilli() }

// opened returns a claim on number 1 with a window of a minute.
func opened(t *testing.T, k *Keeper) *claim {
	t.Helper()
	now := wallClock()
	k.clock.last = reading{now: now, at: time.Now()}
	c := k.claimOn(1, now, ofStub())
	if err := c.write(t.Context(), now, now+60_000); err != nil {
		t.Fatal(err)
	}
	if err := c.open(now); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnUnacknowledgedWriteIsRepeatedAtItsOwnRevision(t *testing.T) {
	s, k := newStub(t, "")
	c := opened(t, k)
	until, writes := c.until.Load(), 0
	s.after = func() error {
		if c.until.Load() != until {
			t.Error("the window grew before the acknowledgement")
		}
		if writes++; writes == 1 {
			return errInjected
		}
		return nil
	}
	if err := c.write(t.Context(), c.from, until+5); err != nil || c.until.Load() != until+5 || writes != 2 {
		t.Errorf("until grew by %d in %d writes, %v, want 5 in 2", c.until.Load()-until, writes, err)
	}
	if r := s.records[1]; r.Token != c.token || r.Revision != c.revision {
		t.Errorf("the claim has revision %d, the record %d", c.revision, r.Revision)
	}
}

func TestARecordOfAnotherTokenLosesTheNumber(t *testing.T) {
	for name, change := range map[string]func(*stub){
		"taken":   func(s *stub) { s.records[1] = Record{Token: "other", Instance: "thief", Revision: 9} },
		"deleted": func(s *stub) { delete(s.records, 1) },
		"set back": func(s *stub) {
			r := s.records[1]
			r.Until--
			s.records[1] = r
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, k := newStub(t, "")
			c := opened(t, k)
			until := c.until.Load()
			change(s)
			if err := c.renew(t.Context(), c.from); !errors.Is(err, errLost) || c.until.Load() != until {
				t.Errorf("renew: %v, window moved by %d", err, c.until.Load()-until)
			}
		})
	}
}

func TestARenewalIsDueOnceAThirdOfTheHorizonIsUsed(t *testing.T) {
	s, k := newStub(t, "")
	c := opened(t, k)
	for _, step := range []struct{ later, want int64 }{{19_999, 60_000}, {20_000, 80_000}} {
		if err := c.renew(t.Context(), c.from+step.later); err != nil {
			t.Fatal(err)
		}
		if got := s.records[1].Until - c.from; got != step.want {
			t.Errorf("after %d ms the window is %d ms long, want %d", step.later, got, step.want)
		}
	}
}

// A renewal whose acknowledgement was lost is written again at once, and the clock may have been set back since. IDs up
// to the acknowledged end of the window may have been issued.
func TestARenewalNeverLowersUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStub(t, "")
		c := opened(t, k)
		s.after = func() error { return errInjected }
		if err := c.renew(t.Context(), c.from+20_000); err == nil {
			t.Fatal("the acknowledgement was not lost")
		}
		s.after = nil
		if err := c.renew(t.Context(), c.from-1000); err != nil || s.records[1].Until < c.from+60_000 {
			t.Errorf("%v, the window is %d ms long, want 60000", err, s.records[1].Until-c.from)
		}
	})
}

// A restored registry gives its revisions again: the one that this worker's last
// write had may be that of another owner's record.
func TestNoWriteHitsAForeignRecordOfTheSameRevision(t *testing.T) {
	for name, write := range map[string]func(*claim, context.Context) error{
		"renewal": func(c *claim, ctx context.Context) error { return c.renew(ctx, c.from+30_000) },
		"release": (*claim).release,
	} {
		t.Run(name, func(t *testing.T) {
			s, k := newStub(t, "")
			c := opened(t, k)
			foreign := Record{Token: "other", Instance: "other", Until: c.from + 90_000, Revision: c.revision}
			s.records[1] = foreign
			if err := write(c, t.Context()); !errors.Is(err, errLost) || s.records[1] != foreign {
				t.Errorf("%v, record %+v; want errLost, and the record as it was", err, s.records[1])
			}
		})
	}
}

// A later life would resume the claim of the file beyond the lowered end.
func TestAReleaseThatIsNotInTheStateFileLowersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStub(t, t.TempDir())
		c := opened(t, k)
		k.file.write = func([]byte) error { return errInjected }
		until := s.records[1].Until
		if err := c.release(t.Context()); !errors.Is(err, ErrStateFile) || s.records[1].Until != until {
			t.Errorf("%v, until lowered by %d ms; want ErrStateFile and nothing", err, until-s.records[1].Until)
		}
	})
}

func TestAReleaseThatFailsNamesTheEndOfTheWindowInTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStub(t, "")
		c := opened(t, k)
		s.recordErr = errInjected
		until := time.UnixMilli(s.records[1].Until).UTC().Format(time.RFC3339)
		if err := k.release(t.Context(), c); !errors.Is(err, errInjected) || !strings.Contains(err.Error(), until) {
			t.Errorf("%v, want that the number is blocked until %s", err, until)
		}
	})
}

// A later life that starts while the registry is out of reach would resume it.
func TestALostClaimDoesNotStayInTheStateFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, k := newStub(t, t.TempDir())
		c := opened(t, k)
		k.life.becomeHolding(c)
		k.life.becomeClosed(c, errLost)
		if err := k.giveUp(t.Context(), c, errLost); err != nil || k.file.Claim != nil {
			t.Errorf("%v, claim %+v; want none", err, k.file.Claim)
		}
	})
}

func TestTheFenceIsAheadOfTheClockAndWithinTheWindowOfItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, k := newStub(t, t.TempDir())
		now, f := wallClock(), k.file
		for _, c := range []struct{ number, clock, from, until, want int64 }{
			{1, 0, 0, 60_000, 3001}, // 3 s and a tick
			{2, 0, 0, 1000, 1000},
			{3, 100, 0, 60_000, 3101},
			{3, 50, 0, 60_000, 3101}, // the clock was set back, the number is the same
			{4, 50, 10, 60_000, 3051},
		} {
			f.now = func() int64 { return now + c.clock }
			limit, err := f.remember(int(c.number), now+c.from, stateClaim{Until: now + c.until})
			if err != nil || limit-now != c.want || f.Claim.Fence != limit {
				t.Errorf("%+v: limit %d ms ahead, fence %d, %v", c, limit-now, f.Claim.Fence-now, err)
			}
		}
	})
}

func TestAnAbsentStateFileRemembersNothingAndLimitsNothing(t *testing.T) {
	f, err := openState("", 1, wallClock)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := f.remember(3, 0, stateClaim{Until: 77})
	if _, ok := f.number(Span{0, 3}); err != nil || limit != 77 || ok || f.reported() != 0 {
		t.Errorf("limit %d, %v", limit, err)
	}
	if err := errors.Join(f.forget(nil), f.settle(Deployment{ID: "a"}, "me")); err != nil {
		t.Error(err)
	}
	if _, err := openState(filepath.Join(t.TempDir(), "none"), 1, wallClock); err == nil {
		t.Error("a missing directory is no error")
	}
}

func TestEachTransitionHandsOverTheGeneratorItPromises(t *testing.T) {
	_, k := newStub(t, "")
	c := opened(t, k)
	var used []*snowflake.Generator
	l := newLife("me", func(g *snowflake.Generator) { used = append(used, g) }, k.cfg.Log)
	type g = *snowflake.Generator
	for _, step := range []struct {
		name string
		do   func()
		want phase
		uses []g // since the step before
		held bool
	}{
		{"a step while searching", func() { l.becomeSuspended("set") }, searching, nil, false},
		{"acquired", func() { l.becomeHolding(c) }, holding, nil, true},
		{"the record was read again", func() { l.becomeIssuing(c) }, issuing, []g{c.gen}, true},
		{"the next heartbeat", func() { l.becomeIssuing(c) }, issuing, nil, true},
		{"the clock is set", func() { l.becomeSuspended("set") }, suspended, []g{nil}, true},
		{"set again", func() { l.becomeSuspended("set") }, suspended, nil, true},
		{"right again", func() { l.becomeIssuing(c) }, issuing, []g{c.gen}, true},
		{"lost", func() { l.becomeClosed(c, errLost) }, closed, []g{nil}, true},
		{"a step after that", func() { l.becomeSuspended("set") }, closed, nil, true},
		{"over", func() { l.becomeSearching() }, searching, nil, false},
	} {
		used = nil
		step.do()
		if l.phase() != step.want || len(used) != len(step.uses) || l.current().Held != step.held {
			t.Errorf("%s: phase %d, %d uses, %+v", step.name, l.phase(), len(used), l.current())
		}
		for i := range min(len(used), len(step.uses)) {
			if used[i] != step.uses[i] {
				t.Errorf("%s: another generator is used", step.name)
			}
		}
	}
	if err := c.gen.CheckAt(wallClock()); !errors.Is(err, snowflake.ErrClosed) {
		t.Errorf("the generator: %v, want it closed", err)
	}
}

// A claim issues nothing before its record was read again, unless it was resumed while the registry is out of reach.
func TestOnlyAClaimResumedWithoutTheRegistryIssuesBeforeItsRecordIsReadAgain(t *testing.T) {
	for _, away := range []bool{false, true} {
		s, k := newStub(t, "")
		c := opened(t, k)
		c.away = away
		k.life.becomeHolding(c)
		s.recordErr = errInjected
		if err := k.beat(t.Context(), c); err != nil || (k.life.phase() == issuing) != away {
			t.Errorf("resumed without the registry %t: %v, phase %d", away, err, k.life.phase())
		}
		if s.recordErr = nil; k.beat(t.Context(), c) != nil || k.life.phase() != issuing {
			t.Errorf("the record was read, and the phase is %d", k.life.phase())
		}
	}
}

func TestAClockFailsFourComparisonsBeforeItIsRefusedUnlessItWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStub(t, "")
		var ahead int64
		c := k.clock
		c.cfg.Now = func() int64 { return wallClock() + ahead }
		if r, err := c.read(t.Context()); err != nil || r.offset.Abs() > time.Second {
			t.Fatalf("%+v, %v", r, err)
		}
		s.offset = time.Hour
		time.Sleep(compareEvery)
		for i := range 4 {
			if _, err := c.read(t.Context()); errors.Is(err, errClock) != (i == 3) {
				t.Errorf("comparison %d: %v", i, err)
			}
		}
		s.offset = 0
		if _, err := c.read(t.Context()); err != nil {
			t.Error(err)
		}
		var steps []time.Duration
		c.onStep = func(d time.Duration) { steps = append(steps, d) }
		ahead = 3600_000
		if _, err := c.read(t.Context()); !errors.Is(err, errClock) || len(steps) != 1 {
			t.Errorf("after a step: %v, %d steps", err, len(steps))
		}
	})
}

// When the registry's clock is set, all heartbeats vouch for its old time, and no worker that was started then, or
// whose clock was set, puts another.
func TestAClockInTheWindowOfTheStateFileFailsFourComparisonsBeforeItIsRefused(t *testing.T) {
	for _, c := range []struct {
		name         string
		clock, until int64 // of the last move of the fence, and the end of the window, ms from now
		offset       time.Duration
		passes       int
	}{
		{"in it", -1000, 1000, 0, 3},
		{"behind it", 1, 1000, 0, 0},
		{"beyond it", -1000, 0, 0, 0},
		{"far from the registry's clock", -1000, 1000, 1100 * time.Millisecond, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, k := newStub(t, "")
			now := wallClock()
			for w := range 2 {
				s.heartbeats[w] = Heartbeat{Instance: "other", Time: now + 2000, At: now}
			}
			s.offset = c.offset
			claim := &stateClaim{Clock: now + c.clock, Until: now + c.until}
			k.clock.start((&stateFile{state: state{Claim: claim}}).isIn)
			for i := range 4 {
				if _, _, err := k.clock.compare(t.Context(), true); errors.Is(err, errClock) != (i >= c.passes) {
					t.Errorf("%s: comparison %d: %v", c.name, i, err)
				}
			}
		})
	}
}

// The registry may have lost its state while the first write was under way: then
// the owner answers, or another worker that was as fast.
func TestANumberIsAskedForAgainAfterItsFirstWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStub(t, "")
		for w := range 3 {
			s.records[w] = Record{Token: "t", Until: wallClock() + 60_000, Deployment: ofStub()}
		}
		s.after = func() error {
			s.answers[3] = Who{Instance: "other", Process: "q"}
			return nil
		}
		if c, err := k.find(t.Context()); !errors.Is(err, ErrExhausted) || s.records[3].Token == "" {
			t.Errorf("%+v, %v, record %+v; want number 3 written and given up", c, err, s.records[3])
		}
	})
}

// A write of the file that failed may be on disk. A later life that finds it would resume from its fence, which this
// process has long passed if it continues the claim without a file.
func TestAFailedStateFileLeavesNoPendingClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStub(t, t.TempDir())
		k.file.write = func([]byte) error { return errInjected }
		if c, err := k.find(t.Context()); !errors.Is(err, ErrStateFile) || len(s.records) == 0 {
			t.Fatalf("%+v, %v, %d records; want a number won, and the state file to fail", c, err, len(s.records))
		}
		if k.pending != nil {
			t.Error("the claim can be continued")
		}
	})
}

func TestAStateFileKnowsTheLaterWritesOfItsClaimUpToItsFence(t *testing.T) {
	c := stateClaim{Token: "b", Until: 200, Fence: 100}
	for r, want := range map[Record]bool{
		{Token: "b", Until: 200, Reported: 99}:  true,
		{Token: "b", Until: 300, Reported: 99}:  true,
		{Token: "b", Until: 300, Reported: 100}: false, // the file is a copy
		{Token: "b", Until: 199, Reported: 50}:  false, // the registry was restored
		{Token: "c", Until: 300, Reported: 99}:  false, {}: false,
	} {
		if c.wrote(r) != want {
			t.Errorf("%+v: %t, want %t", r, !want, want)
		}
	}
}

// A restored record may be of an earlier write of the claim that was released.
func TestOnlyTheReleaseItselfProvesThatANumberWasNotUsedSince(t *testing.T) {
	r := &released{Token: "b", Free: 9}
	for of, want := range map[Record]bool{
		{Token: "b", Until: 9}: true, {Token: "b", Until: 8}: false, {Token: "c", Until: 9}: false,
	} {
		if r.wrote(of) != want || (*released)(nil).wrote(of) {
			t.Errorf("%+v: %t, want %t", of, !want, want)
		}
	}
}

// Two processes may have one name, and one process is asked for the number that it answers for.
func TestAnAnswerIsTheOwnOneByItsProcessNotByItsName(t *testing.T) {
	s, k := newStub(t, "")
	for who, want := range map[Who]error{
		{Instance: "me", Process: "q"}:    errTaken,
		{Instance: "other", Process: "p"}: nil,
	} {
		s.answers[1] = who
		if err := k.ask(t.Context(), k.claimOn(1, 0, ofStub())); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", who, err, want)
		}
	}
}

// A restored record looks free from a time on that the released claim of this worker has passed.
func TestANumberThatWasReleasedIsAcquiredFromItsLastIDOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStub(t, t.TempDir())
		last := opened(t, k)
		if _, err := last.gen.NextAt(last.from+2000, 1); err != nil {
			t.Fatal(err)
		}
		if err := last.release(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.records[1] = Record{Token: "older", Until: last.from - 5, Deployment: ofStub(), Revision: 1}
		c, err := k.acquire(t.Context(), 1, view{now: last.from, deployment: ofStub(), records: s.records})
		if err != nil || c.from <= last.from+2000 {
			t.Errorf("%+v, %v, want a window after %d", c, err, last.from+2000)
		}
	})
}

func TestAllNumbersThatAWorkerMayTakeAreTakenAndNoOther(t *testing.T) {
	for _, span := range []Span{{0, 0}, {63, 63}, {5, 17}, {32, 63}, {0, 63}} {
		synctest.Test(t, func(t *testing.T) {
			s, k := newStub(t, "")
			k.cfg.Layout.Worker, k.cfg.Layout.Sequence, k.cfg.Numbers = 6, 8, &span
			k.numbers = numbersOf(k.cfg)
			s.deployment = DeploymentOf(k.cfg.Layout)
			s.deployment.ID = "stub"
			k.chooseBy(rand.New(rand.NewPCG(1, 1)))
			for range span.count() {
				c, err := k.find(t.Context())
				if err != nil || !span.has(c.number) {
					t.Fatalf("%+v: %+v %v", span, c, err)
				}
			}
			if _, err := k.find(t.Context()); !errors.Is(err, ErrExhausted) || len(s.records) != span.count() {
				t.Errorf("%+v: %v after %d numbers", span, err, len(s.records))
			}
		})
	}
}

// A worker whose numbers were changed leaves the one that its state file remembers, with the registry and without.
func TestANumberThatAWorkerMayNotTakeIsNotResumed(t *testing.T) {
	for _, away := range []bool{false, true} {
		for _, mine := range []Span{{0, 0}, {0, 1}} { // it had number 1
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				s, k := newStub(t, dir)
				opened(t, k) // and now it crashes
				next := s.next(t, dir)
				next.cfg.Numbers = &mine
				next.numbers = numbersOf(next.cfg)
				find := next.find
				if away {
					next.awaySince = time.Now().Add(-awayAfter)
					find = func(ctx context.Context) (*claim, error) { return next.findAway(ctx, errInjected) }
				}
				c, err := find(t.Context())
				switch {
				case mine.has(1):
					if err != nil || c.number != 1 {
						t.Errorf("away %t: %+v %v, want number 1 back", away, c, err)
					}
				case away:
					if err == nil {
						t.Errorf("it resumed number %d", c.number)
					}
				case err != nil || c.number != 0:
					t.Errorf("%+v %v, want number 0", c, err)
				}
			})
		}
	}
}

// The pending claim would begin again before the IDs of the resumed one.
func TestAResumedClaimEndsAPendingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, k := newStub(t, dir)
		opened(t, k) // and now it crashes
		next := s.next(t, dir)
		next.pending = next.claimOn(1, wallClock(), ofStub())
		if _, err := next.resumeAway(t.Context(), 1, next.file.Claim); err != nil || next.pending != nil {
			t.Errorf("%v, pending %+v", err, next.pending)
		}
	})
}

func TestNumbersMustBeThoseOfTheSite(t *testing.T) {
	sites := snowflake.Layout{Time: 41, Site: 1, Worker: 3, Sequence: 12, Epoch: 1, Unit: 1}
	for _, c := range []struct {
		of   Span
		l    snowflake.Layout
		site int
		ok   bool
	}{
		{Span{512, 1023}, snowflake.Leaf, 0, true}, {Span{0, 0}, snowflake.Leaf, 0, true},
		{Span{512, 1024}, snowflake.Leaf, 0, false}, {Span{-1, 5}, snowflake.Leaf, 0, false},
		{Span{5, 4}, snowflake.Leaf, 0, false},
		{Span{8, 15}, sites, 1, true}, {Span{7, 15}, sites, 1, false}, {Span{8, 15}, sites, 0, false},
	} {
		if err := c.of.Within(c.l, c.site); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
