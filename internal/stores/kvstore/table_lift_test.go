package kvstore_test

import (
	"errors"
	"testing"

	"github.com/natsid/natsid/segment"
)

func TestALiftRaisesTheMarkAndThePollTheRow(t *testing.T) {
	g, table, marks := guarded(t, nil)
	load(t, g) // [1,101)
	if raised, err := g.Lift(t.Context(), "a", segment.Floor{End: 5000}); err != nil || !raised {
		t.Fatalf("raised %t, %v", raised, err)
	}
	if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
		t.Fatal(err)
	}
	if got := table.Snapshot()["a"].MaxID; got != 5000 {
		t.Errorf("the row is at %d, want 5000", got)
	}
	other := beside(table, marks)
	if got, err := other.Look(t.Context(), "a"); err != nil || got.MaxID != 5000 || got.Least != 101 {
		t.Errorf("%+v, %v, want mark 5000 and least 101", got, err)
	}
	if raised, err := g.Lift(t.Context(), "a", segment.Floor{End: 300}); err != nil || raised {
		t.Fatalf("raised %t by a lower floor, %v", raised, err)
	}
	if got := load(t, other); got.Start != 5000 {
		t.Errorf("a load begins at %d, want 5000: nothing is lowered", got.Start)
	}
}

func TestALiftKeepsADeletedTagDeletedWhoseMarkIsLost(t *testing.T) {
	g, table, _ := guarded(t, nil)
	load(t, g)
	other := beside(table, new(memory))
	if _, err := other.Lift(t.Context(), "a", segment.Floor{End: 101}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Load(t.Context(), "a", 1, 0); !errors.Is(err, segment.ErrDisabled) {
		t.Errorf("%v, want ErrDisabled", err)
	}
}
