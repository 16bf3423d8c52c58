package segment

import (
	"fmt"
	"testing"
)

func tag(i int) string { return fmt.Sprint("tag", i) }

func TestFloorsOfDeletedTagsAreBounded(t *testing.T) {
	n := newNames()
	var live []Tag
	for i := range 1000 {
		live = append(live, Tag{Name: tag(i)})
	}
	n.list(live, 0)
	most := maxFloors + len(live)
	for i := range most {
		n.keepFloor(tag(i), Floor{End: 7})
	}
	if len(n.floors) != most {
		t.Fatalf("%d floors, want all %d", len(n.floors), most)
	}
	for i := range most + 1000 {
		n.keepFloor(tag(i), Floor{End: 7})
	}
	if len(n.floors) > most {
		t.Errorf("%d floors, want no more than %d", len(n.floors), most)
	}
	for i := range live {
		if n.floor(tag(i)) != 7 {
			t.Fatalf("the floor of %s is gone, which the store has", tag(i))
		}
	}
}

func TestFloorsOfAnEarlierLifeAreAllThereUntilTheFirstListing(t *testing.T) {
	floors := make(map[string]Floor)
	var live []Tag
	for i := range maxFloors + 20_000 {
		floors[tag(i)] = Floor{End: 7}
		live = append(live, Tag{Name: tag(i)})
	}
	n := newNames()
	n.remember(floors)
	if n.list(live, 0); len(n.floors) != len(floors) {
		t.Errorf("%d floors of tags that the store has, want all %d", len(n.floors), len(floors))
	}
	if n.list(live[:1000], 0); len(n.floors) > maxFloors+1000 {
		t.Errorf("%d floors, want no more than %d", len(n.floors), maxFloors+1000)
	}
}

func TestRaisesOfTagsThatAreNotInMemoryAreBounded(t *testing.T) {
	n := newNames()
	for i := range maxFloors + 1000 {
		n.keepRaise(tag(i), 7)
	}
	if len(n.raises) > maxFloors {
		t.Errorf("%d raises, want no more than %d", len(n.raises), maxFloors)
	}
	n.keepRaise("tag", 9)
	if n.floor("tag") != 9 || n.allFloors()["tag"].End != 9 {
		t.Errorf("floor %d, want that of the raise", n.floor("tag"))
	}
}
