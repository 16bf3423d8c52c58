package segment

import (
	"fmt"
	"sync"
	"time"
)

// A Period is the time after which the numbers of a tag begin again. Its values are [Daily], [Monthly] and [Yearly];
// "" is none. The IDs of such a tag carry the date, so that no number repeats:
//
//	daily      yyyyMMdd × 10^8  + number
//	monthly    yyyyMM   × 10^10 + number
//	yearly     yyyy     × 10^12 + number
//
// All are below 2^53, so that a JavaScript number holds them.
type Period string

// The periods.
const (
	Daily   Period = "daily"
	Monthly Period = "monthly"
	Yearly  Period = "yearly"
)

// Size returns how many numbers a period has, counting from 0; 0 if there is no period.
func (p Period) Size() int64 {
	switch p {
	case Daily:
		return 100_000_000
	case Monthly:
		return 10_000_000_000
	case Yearly:
		return 1_000_000_000_000
	}
	return 0
}

// Base returns the ID of number 0 in the period that contains t, by the date in t's location; 0 if there is no period.
func (p Period) Base(t time.Time) int64 {
	date := int64(t.Year())
	if p != Yearly {
		date = date*100 + int64(t.Month())
	}
	if p == Daily {
		date = date*100 + int64(t.Day())
	}
	return date * p.Size()
}

// Rules are an operator's settings of a tag, except its step. They are kept in the tag's entry in the store, which each
// load replaces by a compare-and-set. So that also confirms the rules by which the load decided. The zero value sets
// nothing.
type Rules struct {
	Min int64 `json:"min,omitempty"` // the lowest number, 1 if 0; with a period, of each period
	Max int64 `json:"max,omitempty"` // the highest number; 0 for the highest possible one
	// MaxHole bounds how many IDs a crash of one worker can turn into holes, not counting those of unanswered requests;
	// 0 means a hundredth of the tag's numbers.
	MaxHole int64  `json:"max_hole,omitempty"`
	Period  Period `json:"period,omitempty"`
	Zone    string `json:"zone,omitempty"` // of the period's dates: see [Zone]; "" is UTC
	// Strict says that the tag is strict: its IDs rise over all workers. It is fixed when the tag is made.
	Strict bool `json:"strict,omitempty"`
	// MaxBatch limits the IDs of one request, and Rate the IDs per second of all workers together; 0 is no limit. An
	// allocator does not enforce them: its caller does, by [Allocator.RulesOf].
	MaxBatch int   `json:"max_batch,omitempty"`
	Rate     int64 `json:"rate,omitempty"`
}

// A Clock returns the wall time. isSure reports whether the clock was compared with those of other workers, as for
// snowflakes.
type Clock func() (now time.Time, isSure bool)

// SystemClock is the machine's clock, taken as sure.
func SystemClock() (time.Time, bool) { return time.Now(), true }

// turnEarly is how long before a period begins a load of a loose tag may reserve its IDs: then the first range is in
// memory in time.
const turnEarly = time.Second

// A RuleError says why rules, or a change of a tag, are invalid. It is an [ErrInvalid].
type RuleError string

func ruleError(format string, args ...any) error { return RuleError(fmt.Sprintf(format, args...)) }

func (e RuleError) Error() string { return "segment: " + string(e) }

// Unwrap returns [ErrInvalid].
func (RuleError) Unwrap() error { return ErrInvalid }

// Validate returns a [RuleError] if the rules are invalid.
func (r Rules) Validate() error {
	size := r.Period.Size()
	switch {
	case r.Period != "" && size == 0:
		return ruleError("period %q, want %s, %s or %s", r.Period, Daily, Monthly, Yearly)
	case r.Zone != "" && r.Period == "":
		return ruleError("a time zone is for the dates of a daily, monthly or yearly tag")
	case r.Min < 0 || r.Max < 0 || r.MaxHole < 0 || r.MaxBatch < 0 || r.Rate < 0:
		return ruleError("min %d, max %d, max_hole %d, max_batch %d, rate %d, want at least 0", r.Min, r.Max, r.MaxHole,
			r.MaxBatch, r.Rate)
	case size > 0 && max(r.Min, r.Max) >= size:
		return ruleError("min %d, max %d, and a %s tag has numbers up to %d", r.Min, r.Max, r.Period, size-1)
	case r.highest() < r.lowest():
		return ruleError("min %d is above max %d", r.lowest(), r.highest())
	}
	_, err := Zone(r.Zone)
	return err
}

// InOrderOf returns the rules with the order, loose or strict, of the old ones, or a [RuleError].
//
// Law: the order of a tag never changes. Workers and clients may hold IDs of a loose tag, and could issue them after
// higher IDs if the tag became strict.
func (r Rules) InOrderOf(old Rules) (Rules, error) {
	if r.Strict && !old.Strict {
		return r, ruleError("the tag is loose, and its order never changes: make a strict tag of another name, with " +
			"start above all IDs of this one")
	}
	r.Strict = old.Strict
	return r, nil
}

// Bounded reports whether the numbers end: at a last number, or with a period.
func (r Rules) Bounded() bool { return r.highest() < MaxID }

func (r Rules) lowest() int64 { return max(1, r.Min) }

// highest returns the highest number of the tag or, with a period, of each period; [MaxID] at most.
func (r Rules) highest() int64 {
	highest := int64(MaxID)
	for _, bound := range []int64{r.Max, r.Period.Size() - 1} {
		if bound > 0 {
			highest = min(highest, bound)
		}
	}
	return highest
}

// Window returns the bounds of the IDs that the next load of a tag may reserve: lowest, and limit, which is excluded. A
// load never reserves IDs below mark.
//
// Law: a window only bounds a load further. The load begins at the mark or above it and raises the mark in one
// compare-and-set, so no ID repeats and strict order holds, whatever the clock shows. A date never goes back, since the
// mark does not: a load whose clock is behind continues in the period of the mark.
//
// Only a sure clock begins a period. If the clock is not sure and shows a later period than the mark, the error is
// [ErrClock]: another worker may load. The error is [ErrZone] if this worker lacks the tag's zone, and [ErrExhausted]
// if the period, or the tag, is used up.
func (r Rules) Window(mark int64, clock Clock) (lowest, limit int64, err error) {
	base := r.baseOf(mark)
	if r.Period != "" {
		now, isSure := clock()
		if !r.Strict {
			now = now.Add(turnEarly)
		}
		today, err := r.baseAt(now)
		if err != nil {
			return 0, 0, fmt.Errorf("%w: it lacks the time zone %s", ErrZone, r.Zone)
		}
		if today > base {
			if !isSure {
				return 0, 0, ErrClock
			}
			base = today
		}
	}
	if r.highest() < MaxID {
		limit = base + r.highest() + 1
	} else {
		limit = MaxID
	}
	if lowest = base + r.lowest(); max(mark, lowest) >= limit {
		return 0, 0, fmt.Errorf("%w: %s", ErrExhausted, r.full())
	}
	return lowest, limit, nil
}

func (r Rules) full() string {
	if r.Period == "" {
		return fmt.Sprintf("they end at %d", r.highest())
	}
	return fmt.Sprintf("the %s numbers end at %d", r.Period, r.highest())
}

// baseOf returns the ID of number 0 in the period of the last ID below a mark.
func (r Rules) baseOf(mark int64) int64 {
	if size := r.Period.Size(); size > 0 {
		return (mark - 1) / size * size
	}
	return 0
}

// baseAt returns the ID of number 0 in the period of a time.
func (r Rules) baseAt(now time.Time) (int64, error) {
	zone, err := Zone(r.Zone)
	if err != nil {
		return MaxID, err
	}
	return r.Period.Base(now.In(zone)), nil
}

// Begins returns the lowest ID of the period that contains now; 0 if there is no period, and [MaxID] if this worker
// lacks the tag's zone and so must issue no ID.
func (r Rules) Begins(now time.Time) int64 {
	base, err := r.baseAt(now)
	if r.Period == "" || err != nil {
		return base
	}
	return base + r.lowest()
}

// fits returns why a tag with this mark cannot have id, nil if it can. An id below the mark is the highest ID that the
// tag has used; any other id is one that an operator names.
//
// Law: a mark never goes down, so a mark at which no load can begin could not be repaired. So id must not exceed the
// numbers of the tag. An id that an operator names is at most of today's period, or of the mark's if that is later. A
// used id has a date that exists, tomorrow's at most: another worker's clock may be ahead.
func (r Rules) fits(id, mark int64, now time.Time) error {
	size, base := r.Period.Size(), r.baseOf(id+1)
	today, err := r.baseAt(now)
	tomorrow, _ := r.baseAt(now.AddDate(0, 0, 1))
	latest := max(today, r.baseOf(mark))
	switch {
	case err != nil:
		return err
	case size == 0 && id > r.highest():
		return ruleError("ID %d is beyond the numbers of the tag, which end at %d", id, r.highest())
	case size == 0, base < today && (id < mark || id > size):
		return nil
	case id < mark && base > today && base != tomorrow:
		return ruleError("the tag has used IDs up to %d, above those of today, which begin at %d: "+
			"give the %s numbers to a tag of another name", id, today+r.lowest(), r.Period)
	case id >= mark && base < today:
		return ruleError("ID %d has no date: the lowest number of each period is min", id)
	case id >= mark && (base != latest || id-base > r.highest()):
		return ruleError("ID %d is beyond the %s numbers, which end at %d: they begin again by themselves", id,
			r.Period, latest+r.highest())
	}
	return nil
}

// Used returns the share of the numbers, 0 to 1, that are below a mark: of those in the mark's period, or without a
// period of all numbers.
func (r Rules) Used(mark int64) float64 {
	return float64(max(0, mark-r.baseOf(mark)-r.lowest())) / float64(r.highest()-r.lowest()+1)
}

// Step returns step, but at most half of mostHeld: a crash loses at most two ranges in memory, or one and a load whose
// outcome is unknown.
func (r Rules) Step(step int64) int64 { return min(step, max(1, r.mostHeld()/2)) }

// mostHeld returns how many IDs a worker may have in memory, not counting those of unanswered requests: MaxHole or, by
// default, a hundredth of all numbers, so that a few restarts do not use up a tag with few numbers.
func (r Rules) mostHeld() int64 {
	if r.MaxHole > 0 {
		return r.MaxHole
	}
	return max(1, (r.highest()-r.lowest()+1)/100)
}

// zones caches the locations by name, which are slow to read.
var zones sync.Map

// Zone returns the location of a name of the IANA database, such as Asia/Shanghai, or of an offset from UTC, such as
// +08:00, 14 hours at most; UTC for "". Any other name gives a [RuleError]. So does a name that begins with a small
// letter: only some systems have it, such as right/UTC, or its meaning differs between systems, as with posixrules.
func Zone(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	zone, err := readZone(name)
	if err != nil {
		return nil, ruleError("time zone %+.40q, want a name such as Asia/Shanghai, or an offset such as +08:00",
			name)
	}
	zones.Store(name, zone)
	return zone, nil
}

func readZone(name string) (*time.Location, error) {
	switch {
	case name == "":
		return time.UTC, nil
	case name[0] == '+', name[0] == '-':
		t, err := time.Parse("-07:00", name)
		_, seconds := t.Zone()
		if err != nil || max(seconds, -seconds) > 14*60*60 || name[4:] > "59" {
			return nil, ErrInvalid
		}
		return time.FixedZone(name, seconds), nil
	case name[0] < 'A', name[0] > 'Z', name == "Local", name == "Factory":
		return nil, ErrInvalid
	}
	return time.LoadLocation(name)
}
