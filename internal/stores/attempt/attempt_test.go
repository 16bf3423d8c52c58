package attempt

import (
	"errors"
	"strings"
	"testing"

	"github.com/natsid/natsid/segment"
)

// An entry as a bucket holds it.
type entry struct {
	revision uint64
	tokens   Tokens
	mark     int64
}

// write lets an attempt land.
func (e *entry) write(a Attempt) { e.revision, e.tokens = e.revision+1, a.Tokens() }

func (e *entry) try() Attempt { return New(e.revision, e.tokens) }

func TestALaterReadSaysWhatBecameOfAWrite(t *testing.T) {
	e := entry{revision: 7}
	e.write(e.try())
	base := e
	mine, other := base.try(), base.try()
	if got := mine.Outcome(base.revision, base.tokens); got != Open {
		t.Errorf("before it landed: %v, want Open", got)
	}
	e.write(mine)
	for i := range borne {
		if got := mine.Outcome(e.revision, e.tokens); got != Landed {
			t.Errorf("%d writes after it landed: %v, want Landed", i, got)
		}
		if got := other.Outcome(e.revision, e.tokens); i < borne-1 && got != Refused {
			t.Errorf("the write that came too late, %d writes later: %v, want Refused", i, got)
		}
		e.write(e.try())
	}
	for name, a := range map[string]Attempt{"landed": mine, "came too late": other} {
		if got := a.Outcome(e.revision, e.tokens); got != Unknown {
			t.Errorf("%d writes after the one that %s: %v, want Unknown", borne, name, got)
		}
	}
	if got := (Attempt{}).Outcome(e.revision, ""); got != None {
		t.Errorf("of no attempt: %v", got)
	}
}

func TestAnOperatorsWriteLeavesTheOutcomeUnknown(t *testing.T) {
	e := entry{revision: 7}
	fromNone := e.try()
	if got := fromNone.Outcome(8, ""); got != Unknown {
		t.Errorf("an entry without tokens, replaced by another: %v", got)
	}
	e.write(e.try())
	a := e.try()
	e.write(a)
	if got := a.Outcome(e.revision+1, ""); got != Unknown {
		t.Errorf("an operator wrote after it: %v", got)
	}
}

func TestAnEntryBearsTheTokensOfItsLatestWrites(t *testing.T) {
	var e entry
	seen := map[string]bool{}
	for range 1000 {
		a := e.try()
		if len(a.token) < 11 || seen[a.token] || strings.Contains(a.token, ",") {
			t.Fatalf("token %q", a.token)
		}
		seen[a.token] = true
		e.write(a)
		if n := strings.Count(string(e.tokens), ",") + 1; n > borne || !strings.HasPrefix(string(e.tokens), a.token) {
			t.Fatalf("tokens %q", e.tokens)
		}
	}
}

// next is Next of a tag for one tag, with no floor.
func next(t *testing.T, r *Ranges, e entry, n int64) (Load, bool) {
	t.Helper()
	l, reserved, err := r.Next("a", View{Revision: e.revision, Tokens: e.tokens, Mark: e.mark, Limit: 1 << 40}, n)
	if err != nil {
		t.Fatal(err)
	}
	return l, reserved
}

func (e *entry) load(l Load) {
	e.write(l.Attempt)
	e.mark = l.End
}

func TestARangeWhoseWriteLandedIsUsedOnceHoweverManyAreAskedFor(t *testing.T) {
	e, r := entry{mark: 1}, new(Ranges)
	l, _ := next(t, r, e, 100)
	e.load(l)
	r.Keep("a", l)
	others := entry{mark: e.mark, revision: e.revision, tokens: e.tokens}
	other, _ := next(t, new(Ranges), others, 50)
	e.load(other) // another worker loads meanwhile
	if got, reserved := next(t, r, e, 1000); !reserved || got.Range != l.Range {
		t.Errorf("%v, %v, want %v, which is reserved", got.Range, reserved, l.Range)
	}
	if got, reserved := next(t, r, e, 1000); reserved || got.Start != e.mark || got.Len() != 1000 {
		t.Errorf("then %v, %v, want 1000 from %d", got.Range, reserved, e.mark)
	}
}

func TestAnEqualMarkProvesNothing(t *testing.T) {
	e, r := entry{mark: 1}, new(Ranges)
	mine, _ := next(t, r, e, 100)
	r.Keep("a", mine)
	other, _ := next(t, new(Ranges), e, 100)
	e.load(other)
	if got, reserved := next(t, r, e, 100); reserved || got.Start != 101 {
		t.Errorf("%v, %v after another worker loaded %v", got.Range, reserved, other.Range)
	}
}

func TestAWriteThatHasNotLandedIsSentAgainAsItWas(t *testing.T) {
	e, r := entry{mark: 1}, new(Ranges)
	l, _ := next(t, r, e, 100)
	for range 10 {
		r.Keep("a", l)
		got, reserved := next(t, r, e, 5000)
		if reserved || got.Range != l.Range || got.Tokens() != l.Tokens() {
			t.Errorf("%+v, %v, want the same as before: %+v", got, reserved, l)
		}
		l = got
	}
	e.load(l) // an earlier copy landed, and so the last one is refused
	r.Refused("a", l)
	if got, reserved := next(t, r, e, 5000); !reserved || got.Range != l.Range {
		t.Errorf("%v, %v, want %v", got.Range, reserved, l.Range)
	}
}

func TestARefusedWriteCostsNothing(t *testing.T) {
	e, r := entry{mark: 1}, new(Ranges)
	for range 3 {
		l, _ := next(t, r, e, 100)
		other, _ := next(t, new(Ranges), e, 10)
		e.load(other)
		r.Refused("a", l)
		want := segment.Range{Start: e.mark, End: e.mark + 100}
		if got, reserved := next(t, r, e, 100); reserved || got.Range != want {
			t.Errorf("%v, %v, want 100 from %d", got.Range, reserved, e.mark)
		}
	}
}

func TestAReservedRangeIsNotUsedWhereOthersMayHaveIt(t *testing.T) {
	for name, change := range map[string]func(v *View){
		"a higher floor":        func(v *View) { v.Lowest = 2 },
		"an entry put back":     func(v *View) { v.Mark = 100 },
		"another entry":         func(v *View) { v.Tokens, v.Revision = "x", 99 },
		"an entry with no name": func(v *View) { v.Tokens, v.Revision = "", 99 },
		"another era":           func(v *View) { v.Era, v.Mark = "E", v.Mark+1000 },
		"another era alone":     func(v *View) { v.Era = "E" },
	} {
		e, r := entry{mark: 1}, new(Ranges)
		l, _ := next(t, r, e, 100)
		e.load(l)
		r.Keep("a", l)
		v := View{Revision: e.revision, Tokens: e.tokens, Mark: e.mark, Limit: 1 << 40}
		change(&v)
		got, reserved, err := r.Next("a", v, 100)
		if err != nil || reserved || got.Start != max(v.Mark, v.Lowest) || got.Len() != 50 {
			t.Errorf("%s: %v, %v, %v, want half as many above %d", name, got.Range, reserved, err, v.Mark)
		}
	}
}

func TestAWriteThatHasNotLandedIsNotSentAgainInAnotherEra(t *testing.T) {
	e, r := entry{mark: 1}, new(Ranges)
	l, _ := next(t, r, e, 100)
	r.Keep("a", l)
	v := View{Revision: e.revision, Tokens: e.tokens, Mark: e.mark, Limit: 1 << 40, Era: "E"}
	got, reserved, err := r.Next("a", v, 100)
	if err != nil || reserved || got.sentBefore || got.Len() != 50 {
		t.Errorf("%v, %v, %v, want another 50", got.Range, reserved, err)
	}
	if kept, reserved, err := r.Next("a", v, 100); err != nil || reserved || kept.sentBefore {
		t.Errorf("then %v, %v, %v", kept.Range, reserved, err)
	}
}

// A restored stream may reach a revision that was seen before, with another entry.
func TestAWriteIsNotSentAgainToAnotherEntryOfTheSameRevision(t *testing.T) {
	e, r := entry{mark: 1, revision: 7}, new(Ranges)
	l, _ := next(t, r, e, 100)
	r.Keep("a", l)
	e.mark = 51
	if got, reserved := next(t, r, e, 100); reserved || got.Start != 51 {
		t.Errorf("%v, %v, want it from 51", got.Range, reserved)
	}
}

func TestTheLastRangeIsShort(t *testing.T) {
	r := new(Ranges)
	for _, want := range []int64{100, 50} {
		l, _, err := r.Next("a", View{Mark: 151 - want, Limit: 151}, 100)
		if err != nil || l.Len() != want {
			t.Errorf("%v, %v, want %d IDs", l.Range, err, want)
		}
	}
	if l, _, err := r.Next("a", View{Mark: 151, Limit: 151}, 1); err == nil {
		t.Errorf("%v above the limit", l.Range)
	}
}

// What is left may serve a smaller request; so may a range that is kept.
func TestAStrictLoadReservesNothingWhereFewerAreLeft(t *testing.T) {
	for _, kept := range []int64{0, 4} {
		e, r := entry{mark: 142}, new(Ranges)
		v := View{Mark: 142, Limit: 151, Strict: true}
		if kept > 0 {
			l, _, _ := r.Next("a", v, kept)
			e.load(l)
			r.Keep("a", l)
			v.Mark, v.Revision, v.Tokens = e.mark, e.revision, e.tokens
		}
		_, _, err := r.Next("a", v, 10)
		if x, ok := errors.AsType[*segment.ExhaustedError](err); !ok || x.Left != 9 {
			t.Errorf("10 of 9, of which %d are kept: %v", kept, err)
		}
		if l, reserved, err := r.Next("a", v, 9); err != nil || reserved || l.Start != 142 || l.Len() != 9 {
			t.Errorf("9 of 9, of which %d are kept: %v, %v", kept, l.Range, err)
		}
	}
}

func TestAKeptWriteThatProvesRefusedCostsNothing(t *testing.T) {
	e, r := entry{mark: 1, revision: 7}, new(Ranges)
	e.write(e.try())
	l, _ := next(t, r, e, 100)
	r.Keep("a", l) // its outcome is not known
	other, _ := next(t, new(Ranges), e, 10)
	e.load(other)
	if got, reserved := next(t, r, e, 100); reserved || got.Len() != 100 {
		t.Errorf("%v, %v, want 100", got.Range, reserved)
	}
}

func TestARefusedWriteLiftsNoLimit(t *testing.T) {
	e, r := entry{mark: 1}, new(Ranges)
	l, _ := next(t, r, e, 100)
	r.Keep("a", l)
	e = entry{mark: 1000, revision: 99} // the fate of the write is unknown
	for range 3 {
		l, _ = next(t, r, e, 100)
		if l.Len() != 50 {
			t.Errorf("%v, want 50", l.Range)
		}
		r.Refused("a", l)
	}
}

// A restored stream may reach a revision that was seen before.
func TestAnotherEntryOfTheSameRevisionIsNotTheOneThatWasRead(t *testing.T) {
	e := entry{revision: 7}
	e.write(e.try())
	a := e.try()
	if got := a.Outcome(e.revision, "x"); got != Unknown {
		t.Errorf("%v, want Unknown", got)
	}
}

func TestARangeOfADeletedTagIsLostAndHalvesTheNext(t *testing.T) {
	e, r := entry{mark: 1}, new(Ranges)
	l, _ := next(t, r, e, 100)
	e.load(l)
	r.Keep("a", l)
	r.Drop("a")
	r.Drop("a")
	if got, reserved := next(t, r, e, 100); reserved || got.Start != 101 || got.Len() != 50 {
		t.Errorf("%v, %v, want 50 from 101", got.Range, reserved)
	}
}

// A strict load begins at the range that is kept, if nobody has loaded since. If others load before its write lands,
// that range is lost.
func TestARangeThatIsLostToAStrictLoadHalvesTheNext(t *testing.T) {
	for name, refuse := range map[string]func(r *Ranges, l Load){
		"refused at once":     func(r *Ranges, l Load) { r.Refused("a", l) },
		"that is known later": func(r *Ranges, l Load) { r.Keep("a", l) },
	} {
		e, r := entry{mark: 1}, new(Ranges)
		e.write(e.try())
		strict := func(n int64) Load {
			v := View{Revision: e.revision, Tokens: e.tokens, Mark: e.mark, Limit: 1 << 40, Strict: true}
			l, reserved, err := r.Next("a", v, n)
			if err != nil || reserved {
				t.Fatalf("%s: reserved %t, %v", name, reserved, err)
			}
			return l
		}
		for _, want := range []int64{100, 50, 25} {
			l := strict(100)
			if l.Start != e.mark || l.Len() != want {
				t.Errorf("%s: %v, want %d from %d", name, l.Range, want, e.mark)
			}
			e.load(l)
			r.Keep("a", l) // what else it needs fails
			again := strict(100)
			if again.Start != l.Start {
				t.Errorf("%s: %v, want it from %d", name, again.Range, l.Start)
			}
			other, _ := next(t, new(Ranges), e, 10)
			e.load(other)
			refuse(r, again)
		}
	}
}
