package kvstore_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// One of two concurrent calls creates a tag: that with rules must not take over the row of that without.
func TestACreateWithRulesLosesToOneWithout(t *testing.T) {
	table, marks := new(segmenttest.Table), new(memory)
	plain := beside(table, marks)
	g := beside(table, &view{Streams: marks, before: func() {
		if _, err := plain.Create(t.Context(), segment.Tag{Name: "b", Step: 7, MaxID: 1}, true); err != nil {
			t.Error(err)
		}
	}})
	rules := segment.Rules{Max: 50}
	_, err := g.Create(t.Context(), segment.Tag{Name: "b", Step: 9, MaxID: 1, Rules: rules}, true)
	if !errors.Is(err, segment.ErrExists) {
		t.Errorf("both calls have created the tag: %v", err)
	}
	if got, err := plain.Look(t.Context(), "b"); err != nil || got.Rules != (segment.Rules{}) || got.Step != 7 {
		t.Errorf("the tag is %+v, %v; want that of the first call", got, err)
	}
}

// A call reserves the name, another makes the row, and the first goes on before the other does.
func TestOfTwoCreatesWithRulesOneSucceedsAndItsRulesHold(t *testing.T) {
	table, marks := new(segmenttest.Table), new(memory)
	inserted, firstEnded, secondEnded := make(chan struct{}), make(chan struct{}), make(chan error)
	create := func(g *kvstore.Store, most int64) error {
		tag := segment.Tag{Name: "b", Step: 9, MaxID: 1, Rules: segment.Rules{Max: most}}
		_, err := g.Create(t.Context(), tag, true)
		return err
	}
	second := beside(&stubborn{Table: table, inserted: func() { close(inserted); <-firstEnded }}, marks)
	first := beside(table, &view{Streams: marks, after: func() {
		go func() { secondEnded <- create(second, 60) }()
		<-inserted
	}})
	firstErr := create(first, 50)
	close(firstEnded)
	secondErr := <-secondEnded
	got, err := first.Look(t.Context(), "b")
	if err != nil || got.Disabled {
		t.Fatalf("%+v, %v", got, err)
	}
	want := int64(50)
	if secondErr == nil {
		want = 60
	}
	if (firstErr == nil) == (secondErr == nil) || got.Rules.Max != want {
		t.Errorf("the first call: %v, the second: %v, the rules: %+v", firstErr, secondErr, got.Rules)
	}
}

// The user of natsid may not insert rows; so an operator does, and the tag is created again.
func TestACreateWithRulesGoesOnFromARowThatAnOperatorInserts(t *testing.T) {
	table, marks := new(segmenttest.Table), new(memory)
	tag := segment.Tag{Name: "a", Step: 10, MaxID: 1, Rules: segment.Rules{Max: 5000}}
	if _, err := beside(&narrow{}, marks).Create(t.Context(), tag, false); !errors.Is(err, segment.ErrInvalid) {
		t.Fatal(err)
	}
	if err := table.Insert(t.Context(), segment.Tag{Name: "a", Step: 20, MaxID: 7}); err != nil {
		t.Fatal(err)
	}
	g := beside(table, marks)
	got, err := g.Create(t.Context(), tag, false)
	if err != nil || got.MaxID != 7 || got.Rules != tag.Rules {
		t.Errorf("%+v, %v", got, err)
	}
	if l, err := g.Load(t.Context(), "a", 0, 0); err != nil || l.Range != (segment.Range{Start: 7, End: 17}) {
		t.Errorf("%+v, %v", l, err)
	}
}

// A call reserves the name, and its process dies; another call creates the tag, though it is to revive none.
func TestACreateThatWasCutOffDoesNotKeepTheName(t *testing.T) {
	for _, rules := range []segment.Rules{{}, {Max: 60}} {
		table, marks := new(segmenttest.Table), new(memory)
		tag := segment.Tag{Name: "a", Step: 10, MaxID: 7, Rules: segment.Rules{Max: 50}}
		ctx, cancel := context.WithCancel(t.Context())
		cut := beside(table, &view{Streams: marks, after: cancel})
		_, err := cut.Create(ctx, tag, false)
		if !errors.Is(err, context.Canceled) || errors.Is(err, segment.ErrUncertain) {
			t.Fatalf("%v, want that the call was cut off, and has created no tag", err)
		}
		tag.Rules = rules
		got, err := beside(table, marks).Create(t.Context(), tag, false)
		if err != nil || got.MaxID != 7 || got.Least != 0 || got.Disabled || got.Rules != rules {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// A call without rules sees no mark; another reserves the name before it inserts the row.
func TestACreateWithoutRulesEnablesTheTagThatItHasMade(t *testing.T) {
	table, marks := new(segmenttest.Table), new(memory)
	other := beside(&narrow{}, marks) // it is cut off after it has reserved the name
	plain := beside(&unready{Table: table, before: func() {
		tag := segment.Tag{Name: "a", Step: 10, MaxID: 1, Rules: segment.Rules{Max: 50}}
		if _, err := other.Create(t.Context(), tag, false); err == nil {
			t.Error("created")
		}
	}}, marks)
	got, err := plain.Create(t.Context(), segment.Tag{Name: "a", Step: 20, MaxID: 1}, false)
	if err != nil || got.Disabled || got.Rules != (segment.Rules{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if l, err := plain.Load(t.Context(), "a", 0, 0); err != nil || l.Range != (segment.Range{Start: 1, End: 21}) {
		t.Errorf("%+v, %v", l, err)
	}
}

// unready is a table that calls before, before it inserts a row.
type unready struct {
	*segmenttest.Table
	before func()
}

func (u *unready) Insert(ctx context.Context, tag segment.Tag) error {
	u.before()
	return u.Table.Insert(ctx, tag)
}

func TestATableThatCannotHoldTheDatesOfATagRefusesIt(t *testing.T) {
	g := beside(&small{}, new(memory))
	_, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 1, MaxID: 1,
		Rules: segment.Rules{Period: segment.Daily}}, false)
	if !errors.Is(err, segment.ErrInvalid) {
		t.Errorf("created: %v", err)
	}
}

// small is a table of which max_id is an INT.
type small struct{ segmenttest.Table }

func (*small) Limit() int64 { return math.MaxInt32 }
