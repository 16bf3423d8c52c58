package segment_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
)

func at(t *testing.T, zone, text string) segment.Clock {
	t.Helper()
	location, err := segment.Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	now, err := time.ParseInLocation("2006-01-02 15:04:05", text, location)
	if err != nil {
		t.Fatal(err)
	}
	return func() (time.Time, bool) { return now, true }
}

func unsure(c segment.Clock) segment.Clock {
	return func() (time.Time, bool) {
		now, _ := c()
		return now, false
	}
}

func TestAWindowIsThatOfThePeriodOfTheClockOrOfTheMark(t *testing.T) {
	daily := segment.Rules{Period: segment.Daily}
	const day = 100_000_000
	for _, c := range []struct {
		name          string
		rules         segment.Rules
		mark          int64
		clock         segment.Clock
		lowest, limit int64
		err           error
	}{
		{name: "no rules", mark: 5, lowest: 1, limit: segment.MaxID},
		{name: "bounds", rules: segment.Rules{Min: 10, Max: 20}, mark: 5, lowest: 10, limit: 21},
		{name: "up to the bound", rules: segment.Rules{Min: 10, Max: 20}, mark: 21, err: segment.ErrExhausted},
		{name: "a first day", rules: daily, mark: 1, clock: at(t, "", "2026-11-25 12:00:00"),
			lowest: 20261125*day + 1, limit: 20261126 * day},
		{name: "the same day", rules: daily, mark: 20261125*day + 777, clock: at(t, "", "2026-11-25 12:00:00"),
			lowest: 20261125*day + 1, limit: 20261126 * day},
		{name: "a second before a day, loose", rules: daily, mark: 20261125*day + 777,
			clock: at(t, "", "2026-11-25 23:59:59"), lowest: 20261126*day + 1, limit: 20261127 * day},
		{name: "a second before a day, strict", rules: segment.Rules{Period: segment.Daily, Strict: true},
			mark: 20261125*day + 777, clock: at(t, "", "2026-11-25 23:59:59"),
			lowest: 20261125*day + 1, limit: 20261126 * day},
		{name: "a day never goes back", rules: daily, mark: 20261126*day + 2, clock: at(t, "", "2026-11-24 12:00:00"),
			lowest: 20261126*day + 1, limit: 20261127 * day},
		{name: "a full day", rules: daily, mark: 20261126 * day, clock: at(t, "", "2026-11-25 12:00:00"),
			err: segment.ErrExhausted},
		{name: "after a full day", rules: daily, mark: 20261126 * day, clock: at(t, "", "2026-11-26 12:00:00"),
			lowest: 20261126*day + 1, limit: 20261127 * day},
		{name: "an unsure clock on the day of the mark", rules: daily, mark: 20261125*day + 777,
			clock: unsure(at(t, "", "2026-11-25 12:00:00")), lowest: 20261125*day + 1, limit: 20261126 * day},
		{name: "an unsure clock on a later day", rules: daily, mark: 20261125*day + 777,
			clock: unsure(at(t, "", "2026-11-26 12:00:00")), err: segment.ErrClock},
		{name: "an unsure clock on an earlier day", rules: daily, mark: 20261125*day + 777,
			clock: unsure(at(t, "", "2026-11-24 12:00:00")), lowest: 20261125*day + 1, limit: 20261126 * day},
		{name: "a day in China", rules: segment.Rules{Period: segment.Daily, Zone: "Asia/Shanghai"}, mark: 1,
			clock: at(t, "", "2026-11-25 17:00:00"), lowest: 20261126*day + 1, limit: 20261127 * day},
		{name: "a day in a zone that this worker lacks", rules: segment.Rules{Period: segment.Daily, Zone: "Mars/Base"},
			mark: 20261125*day + 777, clock: at(t, "", "2026-11-25 12:00:00"), err: segment.ErrZone},
		{name: "a day of 25 hours", rules: segment.Rules{Period: segment.Daily, Zone: "Europe/Berlin"}, mark: 1,
			clock: at(t, "", "2026-10-25 22:59:58"), lowest: 20261025*day + 1, limit: 20261026 * day},
		{name: "after a day of 25 hours", rules: segment.Rules{Period: segment.Daily, Zone: "Europe/Berlin"}, mark: 1,
			clock: at(t, "", "2026-10-25 23:00:00"), lowest: 20261026*day + 1, limit: 20261027 * day},
		{name: "a day by an offset", rules: segment.Rules{Period: segment.Daily, Zone: "-03:30"}, mark: 1,
			clock: at(t, "", "2026-11-25 03:29:58"), lowest: 20261124*day + 1, limit: 20261125 * day},
		{name: "a month", rules: segment.Rules{Period: segment.Monthly, Min: 100}, mark: 1,
			clock:  at(t, "", "2026-02-28 12:00:00"),
			lowest: 202602*10_000_000_000 + 100, limit: 202603 * 10_000_000_000},
		{name: "a year", rules: segment.Rules{Period: segment.Yearly, Max: 9}, mark: 1,
			clock:  at(t, "", "2026-12-31 12:00:00"),
			lowest: 2026*1_000_000_000_000 + 1, limit: 2026*1_000_000_000_000 + 10},
	} {
		lowest, limit, err := c.rules.Window(c.mark, c.clock)
		if lowest != c.lowest || limit != c.limit || !errors.Is(err, c.err) {
			t.Errorf("%s: [%d, %d), %v; want [%d, %d), %v", c.name, lowest, limit, err, c.lowest, c.limit, c.err)
		}
	}
}

func TestRulesThatCannotHoldAreRefused(t *testing.T) {
	for _, r := range []segment.Rules{
		{Min: -1}, {Max: -1}, {MaxHole: -1}, {Min: 5, Max: 4},
		{Period: "weekly"}, {Zone: "UTC"},
		{Period: segment.Daily, Max: 100_000_000}, {Period: segment.Daily, Zone: "Local"},
		{Period: segment.Daily, Zone: "Mars/Base"}, {Period: segment.Daily, Zone: "+8"},
		{Period: segment.Daily, Zone: "posixrules"}, {Period: segment.Daily, Zone: "right/UTC"},
		{Period: segment.Daily, Zone: "posix/Asia/Tokyo"}, {Period: segment.Daily, Zone: "Factory"},
		{Period: segment.Daily, Zone: "+24:00"}, {Period: segment.Daily, Zone: "-14:01"},
		{Period: segment.Daily, Zone: "+12:60"}, {Period: segment.Daily, Zone: "+08:00:30"},
	} {
		_, typed := errors.AsType[segment.RuleError](r.Validate())
		if err := r.Validate(); !errors.Is(err, segment.ErrInvalid) || !typed {
			t.Errorf("%+v: %v, want a reason", r, err)
		}
	}
}

// Of a tag in a zone that this worker lacks, an ID in memory would be of an unknown day.
func TestAZoneThatThisWorkerLacksHasNoIDs(t *testing.T) {
	lacked := segment.Rules{Period: segment.Daily, Zone: "Mars/Base"}
	if got := lacked.Begins(time.Now()); got != segment.MaxID {
		t.Errorf("its period begins at %d", got)
	}
	if !segment.IsFinal(segment.ErrZone) {
		t.Error("a load is repeated, though only another worker can make it")
	}
}

func TestTheOrderOfATagNeverChanges(t *testing.T) {
	for _, strict := range []bool{true, false} {
		was := segment.Tag{Name: "a", Step: 10, MaxID: 5, Rules: segment.Rules{Strict: strict}}
		other := segment.Change{Rules: func(r segment.Rules) segment.Rules {
			return segment.Rules{Strict: !r.Strict, Rate: 9}
		}}
		changed, err := other.Apply(was, segment.MaxID)
		if changed.Rules.Strict != strict || errors.Is(err, segment.ErrInvalid) == strict {
			t.Errorf("strict %t: a change makes it %+v, %v", strict, changed, err)
		}
		was.Disabled = true
		by := segment.Tag{Name: "a", Step: 10, Rules: segment.Rules{Strict: !strict}}
		revived, err := was.Revive(by, segment.MaxID)
		if revived.Rules.Strict != strict || errors.Is(err, segment.ErrInvalid) == strict {
			t.Errorf("strict %t: it is revived as %+v, %v", strict, revived, err)
		}
	}
}

func TestTheHighestIDOfEachPeriodFitsAJavaScriptNumber(t *testing.T) {
	last := time.Date(9006, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, p := range []segment.Period{segment.Daily, segment.Monthly, segment.Yearly} {
		if id := p.Base(last) + p.Size() - 1; id >= 1<<53 {
			t.Errorf("%s: %d is beyond 2^53", p, id)
		}
	}
}

// Many loaders with clocks that differ, drift and are set, also back over midnight, load one daily tag.
func TestDaysNeverGoBackWhateverTheClocksDo(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 38))
		zone := []string{"", "Asia/Shanghai", "Europe/Berlin", "-03:30"}[seed%4]
		rules := segment.Rules{Period: segment.Daily, Zone: zone}
		now, mark, loads := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC), int64(1), 0
		offsets := make([]time.Duration, 3)
		began := make(map[int64]time.Time) // when the first load of a day was made
		for now.Before(time.Date(2026, 10, 27, 0, 0, 0, 0, time.UTC)) {
			now = now.Add(rand.N(20 * time.Minute))
			w := rnd.IntN(len(offsets))
			if rnd.IntN(3) == 0 {
				offsets[w] = time.Duration(rnd.Int64N(int64(4*time.Second))) - 2*time.Second
			}
			own, strict := now.Add(offsets[w]), rnd.IntN(2) == 0
			rules.Strict = strict
			lowest, limit, err := rules.Window(mark, func() (time.Time, bool) { return own, true })
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			r, err := segment.NextRange(mark, lowest, 1+rnd.Int64N(1000), limit)
			if err != nil || r.Start < mark {
				t.Fatalf("seed %d: [%d, %d) with the mark at %d, %v", seed, r.Start, r.End, mark, err)
			}
			day := r.Start / 100_000_000
			if last := (r.End - 1) / 100_000_000; last != day {
				t.Fatalf("seed %d: [%d, %d) is of two days", seed, r.Start, r.End)
			}
			if _, ok := began[day]; !ok {
				began[day] = now
			}
			// At most the loader's own clock, and the lead of loose loads, make a date early.
			if early := rules.Begins(now.Add(2*time.Second + time.Second)); r.Start >= early+100_000_000-1 {
				t.Fatalf("seed %d: %d is of a day that no clock shows at %v", seed, r.Start, now)
			}
			if late := rules.Begins(now.Add(-2 * time.Second)); r.Start < late {
				t.Fatalf("seed %d: %d is of a past day at %v", seed, r.Start, now)
			}
			mark, loads = r.End, loads+1
		}
		if len(began) < 3 {
			t.Fatalf("seed %d: %d days in %d loads", seed, len(began), loads)
		}
	}
}

func TestATagGetsNoDatesThatAreFarFromNow(t *testing.T) {
	now := time.Now().UTC()
	daily, yearly := segment.Rules{Period: segment.Daily}, segment.Rules{Period: segment.Yearly}
	for mark, isRefused := range map[int64]bool{
		1: false, 5: true, numbersADay: true, daily.Begins(now) - 1: false, daily.Begins(now) + 7: false,
		daily.Begins(now.AddDate(0, 0, 3)):      true,
		yearly.Begins(now.AddDate(1, 0, 0)) - 2: true, // 99 months
	} {
		created := segment.Tag{Name: "d", Step: 10, MaxID: mark, Rules: daily}
		if err := created.Validate(); errors.Is(err, segment.ErrInvalid) != isRefused {
			t.Errorf("created at %d: %v", mark, err)
		}
		_, err := segment.Tag{Name: "d", MaxID: mark}.Revive(segment.Tag{Step: 10, Rules: daily}, 1<<62)
		if errors.Is(err, segment.ErrInvalid) != (isRefused && mark > numbersADay) {
			t.Errorf("revived at %d: %v", mark, err)
		}
	}
}

// Each bound holds on each way to a mark: created, raised, and revived with other rules.
func TestNoTagGetsAMarkBeyondItsNumbers(t *testing.T) {
	now := time.Now().UTC()
	today := segment.Daily.Base(now)
	yesterday, tomorrow := segment.Daily.Base(now.AddDate(0, 0, -1)), segment.Daily.Base(now.AddDate(0, 0, 1))
	daily, bounded := segment.Rules{Period: segment.Daily, Max: 999}, segment.Rules{Min: 10, Max: 20}
	apply := func(r segment.Rules, mark int64, c segment.Change) error {
		c.Force = true
		_, err := c.Apply(segment.Tag{Name: "d", Step: 10, MaxID: mark, Rules: r}, 1<<62)
		return err
	}
	created := func(r segment.Rules, _, start int64) error {
		return segment.Tag{Name: "d", Step: 10, MaxID: start, Rules: r}.Validate()
	}
	raised := func(r segment.Rules, mark, to int64) error { return apply(r, mark, segment.Change{MaxID: to}) }
	raisedBy := func(r segment.Rules, mark, by int64) error { return apply(r, mark, segment.Change{RaiseBy: by}) }
	revived := func(r segment.Rules, mark, start int64) error {
		was := segment.Tag{Name: "d", Step: 10, MaxID: mark, Disabled: true}
		_, err := was.Revive(segment.Tag{Step: 10, MaxID: start, Rules: r}, 1<<62)
		return err
	}
	for _, c := range []struct {
		name     string
		way      func(r segment.Rules, mark, id int64) error
		rules    segment.Rules
		mark, id int64
		isFine   bool
	}{
		{"created below min", created, bounded, 0, 9, false},
		{"created new, where it says so", created, bounded, 0, 1, true},
		{"created at min", created, bounded, 0, 10, true},
		{"created at max", created, bounded, 0, 20, true},
		{"created above max", created, bounded, 0, 21, false},
		{"raised up to max", raised, bounded, 10, 21, true},
		{"raised above max", raised, bounded, 10, 22, false},
		{"raised by as many as there are", raisedBy, bounded, 10, 11, true},
		{"raised by more", raisedBy, bounded, 10, 12, false},
		{"revived where one is left", revived, bounded, 20, 0, true},
		{"revived where none is left", revived, bounded, 21, 0, false},
		{"revived at a start above max", revived, bounded, 5, 21, false},
		{"created without a date", created, daily, 0, 5, false},
		{"created today", created, daily, 0, today + 999, true},
		{"created beyond today's numbers", created, daily, 0, today + 1000, false},
		{"created tomorrow", created, daily, 0, tomorrow + 5, false},
		{"new, and raised without a date", raised, daily, 1, 500, false},
		{"new, and raised by some", raisedBy, daily, 1, 500, false},
		{"new, and raised today", raised, daily, 1, today + 500, true},
		{"new, and raised beyond 2^53", raised, daily, 1, 10 * today, false},
		{"of yesterday, and raised today", raised, daily, yesterday + 5, today + 500, true},
		{"of today, and raised to its end", raised, daily, today + 5, today + 1000, true},
		{"of today, and raised beyond", raised, daily, today + 5, today + 1001, false},
		{"of today, and raised to tomorrow", raised, daily, today + 5, tomorrow + 1, false},
		{"of tomorrow by another clock, and raised", raised, daily, tomorrow + 5, tomorrow + 9, true},
		{"revived, of a full day", revived, daily, today + 1000, 0, true},
		{"revived, of tomorrow by another clock", revived, daily, tomorrow + 5, 0, true},
		{"revived, in two days", revived, daily, segment.Daily.Base(now.AddDate(0, 0, 2)) + 5, 0, false},
		{"revived, of no day", revived, daily, today/1e10*1e10 + 99e8 + 5, 0, false},
		{"revived, of a plain tag", revived, daily, 700, 0, true},
	} {
		if err := c.way(c.rules, c.mark, c.id); errors.Is(err, segment.ErrInvalid) == c.isFine {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
