package workerid

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// These tests use each type without a keeper. What waits for a disk or compares
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
}

func (s *stub) Deployment(context.Context) (Deployment, error) { return s.deployment, nil }

func (s *stub) Found(context.Context, Deployment) error { return ErrConflict }

func (s *stub) Records(context.Context) (map[int]Record, error) { return s.records, nil }

func (s *stub) Record(_ context.Context, w int) (Record, error) {
	r, ok := s.records[w]
	if !ok {
		return Record{}, ErrNoRecord
	}
	return r, nil
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

func newStub() (*stub, terms) {
	s := &stub{records: make(map[int]Record), heartbeats: make(map[int]Heartbeat), answers: make(map[int]Who)}
	s.deployment = ofStub()
	return s, terms{
		registry: s, file: &stateFile{absent: true}, instance: "me", process: "p", layout: small,
		horizon: time.Minute, margin: time.Second, now: wallClock,
	}
}

// ofStub returns the deployment of every stub.
func ofStub() Deployment {
	d := DeploymentOf(small)
	d.ID = "stub"
	return d
}

func wallClock() int64 { return time.Now().UnixMilli() }

// newFile returns an empty state file in dir.
func newFile(t *testing.T, dir string) *stateFile {
	t.Helper()
	f, err := openState(dir, 1, wallClock)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// opened returns a claim on number 1 with a window of a minute.
func opened(t *testing.T, of terms) *claim {
	t.Helper()
	now := wallClock()
	c := &claim{terms: of, number: 1, from: now, compared: reading{now: now, at: time.Now()}, deployment: ofStub()}
	if err := c.write(t.Context(), now, now+60_000); err != nil {
		t.Fatal(err)
	}
	if err := c.open(now); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnUnacknowledgedWriteIsRepeatedAtItsOwnRevision(t *testing.T) {
	s, of := newStub()
	c := opened(t, of)
	until, once := c.until.Load(), true
	s.after = func() error {
		if c.until.Load() != until {
			t.Error("the window grew before the acknowledgement")
		}
		if once {
			once = false
			return errInjected
		}
		return nil
	}
	if err := c.write(t.Context(), c.from, until+5); err != nil || c.until.Load() != until+5 {
		t.Errorf("until grew by %d, %v, want 5", c.until.Load()-until, err)
	}
	if r := s.records[1]; r.Token != c.token || r.Revision != c.revision || c.series.isOpen(c.token) {
		t.Errorf("the claim has revision %d, the record %d", c.revision, r.Revision)
	}
}

func TestARecordOfAnotherTokenLosesTheNumber(t *testing.T) {
	for name, change := range map[string]func(*stub){
		"taken":   func(s *stub) { s.records[1] = Record{Token: "other", Instance: "thief", Revision: 9} },
		"deleted": func(s *stub) { delete(s.records, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s, of := newStub()
			c := opened(t, of)
			until := c.until.Load()
			change(s)
			if err := c.renew(t.Context()); !errors.Is(err, errLost) || c.until.Load() != until {
				t.Errorf("renew: %v, window moved by %d", err, c.until.Load()-until)
			}
		})
	}
}

func TestARenewalIsDueOnceAThirdOfTheHorizonIsUsed(t *testing.T) {
	s, of := newStub()
	c := opened(t, of)
	for _, step := range []struct{ later, want int64 }{{19_999, 60_000}, {20_000, 80_000}} {
		c.compared.now = c.from + step.later
		if err := c.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.records[1].Until - c.from; got != step.want {
			t.Errorf("after %d ms the window is %d ms long, want %d", step.later, got, step.want)
		}
	}
}

func TestAReleaseWithNothingIssuedNeverLowersUntilBelowFrom(t *testing.T) {
	s, of := newStub()
	c := opened(t, of)
	if err := c.heartbeat(t.Context()); err != nil || len(s.heartbeats) != 1 {
		t.Errorf("%d heartbeats, %v", len(s.heartbeats), err)
	}
	if err := c.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.records[1].Until; got != c.from {
		t.Errorf("until is %d ms after from, want 0", got-c.from)
	}
	if len(s.heartbeats) != 0 {
		t.Error("the heartbeat was left")
	}
}

func TestTheFenceIsAheadOfTheClockAndWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t, t.TempDir())
		now := wallClock()
		f.now = func() int64 { return now }
		for _, c := range []struct{ until, want int64 }{
			{60_000, 3001}, // 3 s and a tick
			{1000, 1000},
		} {
			limit, err := f.remember(int(c.until), now, stateClaim{Until: now + c.until})
			if err != nil || limit-now != c.want || f.Claim.Fence != limit {
				t.Errorf("limit %d ms ahead, fence %d, %v, want %d", limit-now, f.Claim.Fence-now, err, c.want)
			}
		}
	})
}

func TestANewClaimDoesNotAdoptTheFenceOfAnotherNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t, t.TempDir())
		now := wallClock()
		for _, c := range []struct{ number, clock, from, want int64 }{
			{1, 100, 0, 3101},
			{1, 50, 0, 3101}, // the clock was set back, the number is the same
			{2, 50, 10, 3051},
		} {
			f.now = func() int64 { return now + c.clock }
			_, err := f.remember(int(c.number), now+c.from, stateClaim{Until: now + 60_000})
			if got := f.Claim.Fence - now; err != nil || got != c.want {
				t.Errorf("%+v: the fence is at %d, %v", c, got, err)
			}
		}
	})
}

func TestAStateFileRemembersUntilItsRegistryIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := newFile(t, dir)
		if err := f.settle(Deployment{ID: "a"}, "me"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.remember(3, 0, stateClaim{Until: wallClock(), Token: "t"}); err != nil {
			t.Fatal(err)
		}
		again := newFile(t, dir)
		if w, ok := again.number(Span{0, 3}); !ok || w != 3 || again.Claim.Token != "t" || again.Instance != "me" {
			t.Errorf("%+v was read back", again.state)
		}
		if err := again.settle(Deployment{ID: "b"}, "me"); err != nil {
			t.Fatal(err)
		}
		if _, ok := again.number(Span{0, 3}); ok || again.Claim != nil || again.Instance != "me" {
			t.Errorf("%+v is left of another registry", again.state)
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
}

func TestAStateFileInADirectoryThatIsMissingIsReported(t *testing.T) {
	if _, err := openState(filepath.Join(t.TempDir(), "none"), 1, wallClock); err == nil {
		t.Error("no error")
	}
}

func TestEachTransitionHandsOverTheGeneratorItPromises(t *testing.T) {
	_, of := newStub()
	c := opened(t, of)
	var used []*snowflake.Generator
	cfg := Config{}.withDefaults()
	l := newLifecycle("me", func(g *snowflake.Generator) { used = append(used, g) }, cfg.Log)
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
		{"the record was not read again", func() { l.becomeIssuing(c) }, holding, nil, true},
		{"it was", func() { c.rechecked = true; l.becomeIssuing(c) }, issuing, []g{c.gen}, true},
		{"the next heartbeat", func() { l.becomeIssuing(c) }, issuing, nil, true},
		{"the clock is set", func() { l.becomeSuspended("set") }, suspended, []g{nil}, true},
		{"set again", func() { l.becomeSuspended("set") }, suspended, nil, true},
		{"right again", func() { l.becomeIssuing(c) }, issuing, []g{c.gen}, true},
		{"lost", func() { l.becomeClosed(c, errLost) }, closed, []g{nil}, true},
		{"a step after that", func() { l.becomeSuspended("set") }, closed, nil, true},
		{"released", func() { l.becomeReleasing() }, releasing, nil, false},
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

// newClock returns a clock that is right, unless now says otherwise.
func newClock(s *stub, now func() int64) *clock {
	c := &clock{
		now: now, registry: s, self: "me", tolerance: 1000, slack: 5, onStep: func(time.Duration) {},
		rand: rand.New(rand.NewPCG(1, 1)),
	}
	c.start((&stateFile{}).isIn)
	return c
}

func TestAClockFailsFourComparisonsBeforeItIsRefusedUnlessItWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStub()
		var ahead int64
		c := newClock(s, func() int64 { return wallClock() + ahead })
		if r, err := c.compare(t.Context()); err != nil || r.offset.Abs() > time.Second {
			t.Fatalf("%+v, %v", r, err)
		}
		s.offset = time.Hour
		for i := range 4 {
			if _, err := c.compare(t.Context()); errors.Is(err, errClock) != (i == 3) {
				t.Errorf("comparison %d: %v", i, err)
			}
		}
		s.offset = 0
		if _, err := c.compare(t.Context()); err != nil {
			t.Error(err)
		}
		var steps []time.Duration
		c.onStep = func(d time.Duration) { steps = append(steps, d) }
		ahead = 3600_000
		if _, err := c.compare(t.Context()); !errors.Is(err, errClock) || len(steps) != 1 {
			t.Errorf("after a step: %v, %d steps", err, len(steps))
		}
	})
}

// When the registry's clock is set, all heartbeats vouch for its old time, and no worker that was started then, or
// whose clock was set, puts another.
func TestAClockInTheWindowOfTheStateFileFailsFourComparisonsBeforeItIsRefused(t *testing.T) {
	for _, c := range []struct {
		name        string
		clock       int64 // of the last move of the fence, ms from now
		until       int64 // the same of the end of the window
		offset, set time.Duration
		passes      int
	}{
		{name: "in it", clock: -1000, until: 1000, passes: 3},
		{name: "behind it", clock: 1, until: 1000},
		{name: "beyond it", clock: -1000, until: 0},
		{name: "far from the registry's clock", clock: -1000, until: 1000, offset: 1100 * time.Millisecond},
		{name: "set since", clock: -1000, until: 1000, set: 6 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newStub()
				now, set := wallClock(), time.Duration(0)
				for w := range 2 {
					s.heartbeats[w] = Heartbeat{Instance: "other", Time: now + 2000, At: now}
				}
				s.offset = c.offset
				clock := newClock(s, func() int64 { return wallClock() + set.Milliseconds() })
				claim := &stateClaim{Clock: now + c.clock, Until: now + c.until}
				clock.start((&stateFile{state: state{Claim: claim}}).isIn)
				set = c.set
				for i := range 4 {
					if _, _, err := clock.compareFresh(t.Context()); errors.Is(err, errClock) != (i >= c.passes) {
						t.Errorf("comparison %d: %v", i, err)
					}
				}
			})
		})
	}
}

func TestTheMedianIsTheMiddleOrBothInTheMiddle(t *testing.T) {
	for _, c := range []struct {
		others    []int64
		low, high int64
	}{
		{nil, 0, 0}, {[]int64{9}, 0, 9}, {[]int64{9, -9}, 0, 0}, {[]int64{5, 5}, 5, 5}, {[]int64{3, 7, 5}, 3, 5},
	} {
		if low, high := (&clock{others: c.others}).median(); low != c.low || high != c.high {
			t.Errorf("%v: %d, %d, want %d, %d", c.others, low, high, c.low, c.high)
		}
	}
}

// choose returns the claim that a chooser of s finds.
func choose(t *testing.T, s *stub, of terms) (*claim, error) {
	t.Helper()
	return newChooser(s, of).find(t.Context())
}

func newChooser(s *stub, of terms) *chooser {
	r := rand.New(rand.NewPCG(1, 1))
	return &chooser{
		terms: of, mine: Config{Layout: of.layout}.numbers(),
		clock: newClock(s, wallClock), alarms: newAlarms(func(Alarm, string) {}),
		rand: r, joined: func(string, time.Duration) {}, log: Config{}.withDefaults().Log,
		founder: founder{
			registry: of.registry, layout: of.layout, rand: r, mayFound: func(context.Context) error { return nil },
		},
	}
}

func TestAChooserAcquiresTheOneNumberThatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		now := wallClock()
		s.records[0] = Record{Token: "t", Until: now + 60_000, Deployment: ofStub()} // its window has not ended
		s.heartbeats[1] = Heartbeat{Instance: "other"}                               // its worker is alive
		s.answers[2] = Who{Instance: "other", Process: "q"}                          // and this one answers
		s.records[3] = Record{Token: "t", Until: now - 5, Deployment: ofStub()}
		c, err := choose(t, s, of)
		if err != nil || c.number != 3 || c.from < now || s.records[3].Token != c.token {
			t.Errorf("%+v, %v, want number 3", c, err)
		}
	})
}

func TestAChooserWaitsAsLongAsTheShortestWindowLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		now := wallClock()
		for w := range 4 {
			s.records[w] = Record{Token: "t", Until: now + int64(1+w)*400, Deployment: ofStub()}
		}
		_, err := choose(t, s, of)
		wait, ok := errors.AsType[*waitError](err)
		if !errors.Is(err, ErrExhausted) || !ok || wait.atMost != 400*time.Millisecond {
			t.Errorf("%v, wait %+v", err, wait)
		}
	})
}

func TestAChooserResumesTheWindowOfTheStateFileFromItsFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		of.file = newFile(t, t.TempDir())
		if err := of.file.settle(ofStub(), "me"); err != nil {
			t.Fatal(err)
		}
		last := opened(t, of) // and now it crashes
		of.process = "next"
		c, err := choose(t, s, of)
		if err != nil || c.number != last.number || c.from != last.gen.Until() || c.from != last.from+3001 {
			t.Errorf("%+v, %v, want number %d from %d", c, err, last.number, last.gen.Until())
		}
	})
}

func TestAProcessKilledBetweenARenewalAndItsEntryInTheStateFileIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		of.file = newFile(t, t.TempDir())
		if err := of.file.settle(ofStub(), "me"); err != nil {
			t.Fatal(err)
		}
		last := opened(t, of)
		if err := last.write(t.Context(), last.from, last.from+80_000); err != nil { // and now it is killed
			t.Fatal(err)
		}
		of.process = "next"
		c, err := choose(t, s, of)
		if err != nil || c.number != last.number || c.from != last.gen.Until() {
			t.Errorf("%+v, %v, want number %d from %d", c, err, last.number, last.gen.Until())
		}
	})
}

func TestAStateFileKnowsTheLaterWritesOfItsClaimUpToItsFence(t *testing.T) {
	c := stateClaim{Token: "b-3", Fence: 100}
	for r, want := range map[Record]bool{
		{Token: "b-3", Reported: 500}: true,
		{Token: "b-4", Reported: 99}:  true, {Token: "b-12", Reported: 99}: true,
		{Token: "b-4", Reported: 100}: false, // the file is a copy
		{Token: "b-2", Reported: 50}:  false, // the registry was restored
		{Token: "c-4", Reported: 99}:  false, {Token: "b-", Reported: 99}: false, {}: false,
	} {
		if c.wrote(r) != want || (&stateClaim{Token: "b"}).wrote(r) {
			t.Errorf("%+v: %t, want %t", r, !want, want)
		}
	}
}

// A restored record may be of an earlier write of the claim that was released.
func TestOnlyTheReleaseItselfProvesThatANumberWasNotUsedSince(t *testing.T) {
	r := &released{Base: "b-", Writes: 3}
	for token, want := range map[string]bool{"b-3": false, "b-4": true, "b-5": true, "c-4": false, "b-": false} {
		if r.wrote(token) != want || (*released)(nil).wrote(token) {
			t.Errorf("token %q: %t, want %t", token, !want, want)
		}
	}
}
