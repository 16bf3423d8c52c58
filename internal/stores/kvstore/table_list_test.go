package kvstore_test

import (
	"fmt"
	"testing"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestAListShowsHowFarTheMarkIsAheadOfTheTable(t *testing.T) {
	table, marks := new(segmenttest.Table), new(memory)
	g := beside(table, marks)
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
	if got := ahead(); got != " a+0 b-10 c+0" {
		t.Errorf("after a load, a load of Leaf's, and none: %q", got)
	}
	table.Restore(old)
	if got := ahead(); got != " a+10 b+10 c+0" {
		t.Errorf("after the table went back: %q", got)
	}
}
