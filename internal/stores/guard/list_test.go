package guard_test

import (
	"fmt"
	"testing"

	"github.com/natsid/natsid/internal/stores/guard"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestAListShowsHowFarTheMarkIsAheadOfTheTable(t *testing.T) {
	table, marks := new(segmenttest.Table), new(segmenttest.Marks)
	g := guard.New(table, marks, nil)
	for _, name := range []string{"a", "b", "c"} {
		create(t, g, segment.Tag{Name: name, Step: 10, MaxID: 1})
	}
	old := table.Snapshot()
	for _, name := range []string{"a", "b"} {
		if _, err := g.Load(t.Context(), name, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	ahead := func() string {
		tags, err := g.List(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, tag := range tags {
			if text += " " + tag.Name; tag.MarkAhead != nil {
				text += fmt.Sprintf("%+d", *tag.MarkAhead)
			}
		}
		return text
	}
	table.LoadAsLeaf("b")
	if got := ahead(); got != " a+0 b-10 c" {
		t.Errorf("after a load, a load of Leaf's, and none: %q", got)
	}
	table.Restore(old)
	if got := ahead(); got != " a+10 b+10 c" {
		t.Errorf("after the table went back: %q", got)
	}
}

func TestPagesOfManyTagsShowMarksAsTheyAreNotAsTheFirstPageSawThem(t *testing.T) {
	g := guard.New(new(segmenttest.Table), new(segmenttest.Marks), nil)
	for i := range 2100 {
		name := fmt.Sprintf("tag%04d", i)
		create(t, g, segment.Tag{Name: name, Step: 10, MaxID: 1})
		if _, err := g.Load(t.Context(), name, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.List(t.Context(), "", 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Load(t.Context(), "tag1500", 0, 0); err != nil {
		t.Fatal(err)
	}
	page, err := g.List(t.Context(), "tag1499", 1)
	if err != nil || page[0].MarkAhead == nil || *page[0].MarkAhead != 0 || page[0].MaxID != 21 {
		t.Errorf("%+v, %v", page, err)
	}
}
