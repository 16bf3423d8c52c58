package guard_test

import (
	"errors"
	"testing"

	"github.com/natsid/natsid/internal/stores/guard"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// One of two concurrent calls creates a tag: that with rules must not take over the row of that without.
func TestACreateWithRulesLosesToOneWithout(t *testing.T) {
	table, marks := new(segmenttest.Table), new(segmenttest.Marks)
	plain := guard.New(table, marks, nil)
	g := guard.New(table, &crossed{Marks: marks, before: func() {
		if _, err := plain.Create(t.Context(), segment.Tag{Name: "b", Step: 7, MaxID: 1}, true); err != nil {
			t.Error(err)
		}
	}}, nil)
	rules := segment.Rules{Max: 50}
	_, err := g.Create(t.Context(), segment.Tag{Name: "b", Step: 9, MaxID: 1, Rules: rules}, true)
	if !errors.Is(err, segment.ErrExists) {
		t.Errorf("both calls have created the tag: %v", err)
	}
	if got, err := plain.Look(t.Context(), "b"); err != nil || got.Rules != (segment.Rules{}) || got.Step != 7 {
		t.Errorf("the tag is %+v, %v; want that of the first call", got, err)
	}
}
