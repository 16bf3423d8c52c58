package kvstore

import (
	"errors"
	"testing"

	"github.com/natsid/natsid/segment"
)

// A seen is an entry as a bucket shows it.
type seen struct {
	revision uint64
	token    string
	mark     int64
}

func (e *seen) cas() cas { return newCAS(e.revision, e.token) }

// write lets a compare-and-set land.
func (e *seen) write(c cas) { e.revision, e.token = e.revision+1, c.token }

func (e *seen) load(l reservation) { e.write(l.cas); e.mark = l.End }

// loadElsewhere lets another worker load.
func (e *seen) loadElsewhere(n int64) { e.load(new(kept).next(*e, n)) }

func (e *seen) view() view {
	return view{revision: e.revision, token: e.token, mark: e.mark, limit: 1 << 40}
}

// A kept is a keeper of one tag, and what it said of the last range.
type kept struct {
	keeper
	isReserved bool
}

func (k *kept) next(e seen, n int64) (l reservation) {
	l, k.isReserved, _ = k.keeper.next("a", e.view(), n)
	return l
}

// want checks the next range.
func (k *kept) want(t *testing.T, e seen, n int64, isReserved bool, want segment.Range) reservation {
	t.Helper()
	l := k.next(e, n)
	if k.isReserved != isReserved || l.Range != want {
		t.Errorf("%v, reserved %t, want %v, %t", l.Range, k.isReserved, want, isReserved)
	}
	return l
}

func from(start, n int64) segment.Range { return segment.Range{Start: start, End: start + n} }

func TestALaterReadSaysWhatBecameOfAWrite(t *testing.T) {
	e := seen{revision: 7}
	for range 2 { // without a token, and with one
		mine, other := e.cas(), e.cas()
		if got := mine.outcome(e.revision, e.token); got != open {
			t.Errorf("before it landed: %v, want open", got)
		}
		if got := mine.outcome(e.revision, "x"); got != unknown {
			t.Errorf("where another history has another entry: %v, want unknown", got)
		}
		e.write(mine)
		if got := mine.outcome(e.revision, e.token); got != landed {
			t.Errorf("after it landed: %v", got)
		}
		if got := other.outcome(e.revision, e.token); got != unknown {
			t.Errorf("the write that came too late: %v, want unknown", got)
		}
		e.write(e.cas())
		if got := mine.outcome(e.revision, e.token); got != unknown {
			t.Errorf("after another one: %v, want unknown", got)
		}
	}
	if got := (cas{}).outcome(e.revision, ""); got != none {
		t.Errorf("of no write: %v", got)
	}
	if a, b := newToken(), newToken(); len(a) < 11 || a == b {
		t.Errorf("tokens %q and %q", a, b)
	}
}

func TestARangeWhoseWriteLandedIsUsedOnceHoweverManyAreAskedFor(t *testing.T) {
	e, k := seen{mark: 1}, new(kept)
	l := k.next(e, 100)
	e.load(l)
	k.keep("a", l)
	l = k.want(t, e, 1000, true, l.Range) // the next read shows that it landed
	k.keep("a", l)
	e.loadElsewhere(50)
	k.want(t, e, 1000, true, l.Range)
	k.want(t, e, 1000, false, from(e.mark, 1000))
}

func TestAWriteThatHasNotLandedIsSentAgainAsItWas(t *testing.T) {
	e, k := seen{mark: 1}, new(kept)
	l := k.next(e, 100)
	for range 10 {
		k.keep("a", l)
		again := k.want(t, e, 5000, false, l.Range)
		if again.token != l.token {
			t.Errorf("%+v, want the same as before: %+v", again, l)
		}
		l = again
	}
	e.load(l) // an earlier copy landed, and so the last one is refused
	k.lost("a", l)
	k.want(t, e, 5000, true, l.Range)
}

func TestARefusedWriteCostsNothing(t *testing.T) {
	e, k := seen{mark: 1}, new(kept)
	for range 3 {
		l := k.next(e, 100)
		e.loadElsewhere(10)
		k.lost("a", l)
		k.want(t, e, 100, false, from(e.mark, 100))
	}
}

func TestAReservedRangeIsNotUsedWhereOthersMayHaveIt(t *testing.T) {
	for name, change := range map[string]func(v *view){
		"a higher floor":        func(v *view) { v.lowest = 2 },
		"an entry put back":     func(v *view) { v.mark = 100 },
		"another entry":         func(v *view) { v.token, v.revision = "x", 99 },
		"an entry with no name": func(v *view) { v.token, v.revision = "", 99 },
		"a load before a strict request": func(v *view) {
			v.strict, v.token, v.revision, v.mark = true, "x", 99, 201
		},
		"another era":       func(v *view) { v.era, v.mark = "E", v.mark+1000 },
		"another era alone": func(v *view) { v.era = "E" },
	} {
		e, k := seen{mark: 1}, new(kept)
		l := k.next(e, 100)
		e.load(l)
		l.acked = name == "a load before a strict request"
		k.keep("a", l)
		v := e.view()
		change(&v)
		got, isReserved, err := k.keeper.next("a", v, 100)
		if err != nil || isReserved || got.Start != max(v.mark, v.lowest) || got.Len() != 50 {
			t.Errorf("%s: %v, %v, %v, want half as many above %d", name, got.Range, isReserved, err, v.mark)
		}
	}
}

func TestAWriteThatHasNotLandedIsNotSentAgainToAnotherState(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(v *view)
		want   int64
	}{
		"in another era":                        {func(v *view) { v.era = "E" }, 50},
		"to another entry of the same revision": {func(v *view) { v.mark = 51 }, 50},
		"after another worker's equal one": {func(v *view) {
			v.mark, v.revision, v.token = 101, 1, newToken()
		}, 50},
	} {
		e, k := seen{mark: 1}, new(kept)
		l := k.next(e, 100)
		k.keep("a", l)
		v := e.view()
		change := tc.change
		change(&v)
		got, isReserved, err := k.keeper.next("a", v, 100)
		if err != nil || isReserved || got.sentBefore || got.Start != v.mark || got.Len() != tc.want {
			t.Errorf("%s: %v, %v, %v, want %d from %d", name, got.Range, isReserved, err, tc.want, v.mark)
		}
	}
}

// What is left may serve a smaller request; so may a range that is kept.
func TestTheLastRangeIsShortAndNoStrictOneIsReservedWhereFewerAreLeft(t *testing.T) {
	for _, want := range []int64{100, 50} {
		l, _, err := new(keeper).next("a", view{mark: 151 - want, limit: 151}, 100)
		if err != nil || l.Len() != want {
			t.Errorf("%v, %v, want %d IDs", l.Range, err, want)
		}
	}
	if l, _, err := new(keeper).next("a", view{mark: 151, limit: 151}, 1); err == nil {
		t.Errorf("%v above the limit", l.Range)
	}
	for _, n := range []int64{0, 4} {
		e, k := seen{mark: 142}, new(keeper)
		strict := func(n int64) (reservation, bool, error) {
			v := e.view()
			v.limit, v.strict = 151, true
			return k.next("a", v, n)
		}
		if n > 0 {
			l, _, _ := strict(n)
			e.load(l)
			k.keep("a", l)
		}
		_, _, err := strict(10)
		if x, ok := errors.AsType[*segment.ExhaustedError](err); !ok || x.Left != 9 {
			t.Errorf("10 of 9, of which %d are kept: %v", n, err)
		}
		if l, isReserved, err := strict(9); err != nil || isReserved || l.Range != from(142, 9) {
			t.Errorf("9 of 9, of which %d are kept: %v, %v", n, l.Range, err)
		}
	}
}

func TestALostRangeHalvesTheNext(t *testing.T) {
	e, k := seen{mark: 1}, new(kept)
	k.keep("a", k.next(e, 100))
	e = seen{mark: 1000, revision: 99} // the fate of the write is unknown
	for range 3 {
		k.lost("a", k.want(t, e, 100, false, from(1000, 50)))
	}
	e, k = seen{mark: 1}, new(kept)
	l := k.next(e, 100)
	e.load(l)
	k.keep("a", l)
	k.drop("a") // the tag was deleted
	k.drop("a")
	k.want(t, e, 100, false, from(101, 50))
}

// A strict load begins at the range that is kept, if nobody has loaded since. If others load before its write lands,
// that range is lost.
func TestARangeThatIsLostToAStrictLoadHalvesTheNext(t *testing.T) {
	e, k := seen{mark: 1}, new(keeper)
	e.write(e.cas())
	strict := func(want segment.Range) reservation {
		v := e.view()
		v.strict = true
		l, isReserved, err := k.next("a", v, 100)
		if err != nil || isReserved || l.Start != want.Start || want.End > 0 && l.End != want.End {
			t.Fatalf("%v, reserved %t, %v, want %v", l.Range, isReserved, err, want)
		}
		return l
	}
	for _, n := range []int64{100, 50, 25} {
		l := strict(from(e.mark, n))
		e.load(l)
		k.keep("a", l) // what else it needs fails
		again := strict(segment.Range{Start: l.Start})
		e.loadElsewhere(10)
		k.lost("a", again) // refused at once
	}
}
