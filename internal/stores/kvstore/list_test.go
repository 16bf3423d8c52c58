package kvstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// many returns a store with n tags, named in order.
func many(t *testing.T, n int) (*kvstore.Store, []string) {
	t.Helper()
	s := kvstore.New(buckets.OnJetStream(natstest.JetStream(t, natstest.Start(t))), kvstore.Config{Bucket: "marks"})
	names := make([]string, n)
	places := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range places {
				if _, err := s.Create(t.Context(), segment.Tag{Name: names[i], Step: 10, MaxID: 1}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range names {
		names[i] = fmt.Sprintf("tag%05d", i)
		places <- i
	}
	close(places)
	wg.Wait()
	return s, names
}

func TestListsAndPollsMissNoTagThatIsLoadedMeanwhile(t *testing.T) {
	s, names := many(t, 1500)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := s.Load(t.Context(), names[rand.IntN(len(names))], 0, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		tags, err := s.List(t.Context(), "", len(names))
		if err != nil || len(tags) != len(names) {
			t.Errorf("%d of %d tags were listed, %v", len(tags), len(names), err)
			break
		}
		polled := 0
		err = s.Poll(t.Context(), func(l segment.Listing) { polled = len(l.Tags) })
		if err != nil || polled != len(names) {
			t.Errorf("%d of %d tags were polled, %v", polled, len(names), err)
			break
		}
	}
	close(done)
	wg.Wait()
}

func TestPagesOfManyTagsHaveEachTagOnceAndTheFirstIsFresh(t *testing.T) {
	s, names := many(t, 2500)
	list := func() (got []string) {
		for after := ""; ; after = got[len(got)-1] {
			page, err := s.List(t.Context(), after, 400)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return got
			}
			for _, tag := range page {
				got = append(got, tag.Name)
			}
		}
	}
	if got := list(); !slices.Equal(got, names) {
		t.Errorf("%d tags listed, want all %d in order", len(got), len(names))
	}
	if _, err := s.Create(t.Context(), segment.Tag{Name: "tag", Step: 10, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != len(names)+1 || got[0] != "tag" {
		t.Errorf("a tag created just now is not on the first page: %q", got[0])
	}
}

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
