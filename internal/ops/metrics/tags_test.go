package metrics

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// A shop is an allocator with tags, and the collector of their series, in virtual time.
type shop struct {
	t *testing.T
	segments
}

func newShop(t *testing.T, most, tags int) *shop {
	t.Helper()
	store := new(segmenttest.Memory)
	for i := range tags {
		tag := segment.Tag{Name: nth(i), Step: 1_000_000, MaxID: 1}
		if _, err := store.Create(t.Context(), tag, false); err != nil {
			t.Fatal(err)
		}
	}
	a := segment.New(segment.Config{Store: store, Deadline: time.Second, Poll: time.Hour})
	return &shop{t, segments{a: a, most: most, now: time.Now}}
}

func nth(i int) string { return fmt.Sprintf("tag-%02d", i) }

// sell takes IDs of tags for a while, so many of each every second.
func (s *shop) sell(seconds int, each map[int]int) {
	s.t.Helper()
	for range seconds {
		for i, n := range each {
			if _, err := segmenttest.Take(s.t.Context(), s.a, nth(i), int64(n)); err != nil {
				s.t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
	}
}

// scrape returns the tags that are shown.
func (s *shop) scrape() []string {
	s.t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(&s.segments)
	families, err := r.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "tag" {
					seen[l.GetValue()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func (s *shop) want(tags ...int) {
	s.t.Helper()
	var names []string
	for _, i := range tags {
		names = append(names, nth(i))
	}
	if got := s.scrape(); !slices.Equal(got, names) {
		s.t.Errorf("series of %q, want %q", got, names)
	}
}

func TestTheBusiestTagsHaveSeriesAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 2, 50)
		defer s.a.Close()
		s.want()
		s.sell(2, map[int]int{7: 10})
		s.want(7) // at once: a place was free
		s.sell(2, map[int]int{7: 10, 8: 20})
		s.want(7, 8)
		s.sell(300, map[int]int{7: 10, 8: 20, 9: 50})
		s.want(8, 9)
	})
}

func TestFewNamesAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, tags = 3, 60
		s := newShop(t, most, tags)
		defer s.a.Close()
		seen := map[string]bool{}
		for i := range tags { // another tag is the busiest every 2 s
			s.sell(2, map[int]int{i: 1000 * (i + 1)})
			for _, tag := range s.scrape() {
				seen[tag] = true
			}
		}
		if len(seen) > most {
			t.Errorf("%d tags had series within two minutes, want %d", len(seen), most)
		}
	})
}

func TestSeriesOfATagSayWhatWasIssuedAndWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 1, 1)
		defer s.a.Close()
		s.sell(3, map[int]int{0: 100})
		r := prometheus.NewRegistry()
		r.MustRegister(&s.segments)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		for name, want := range map[string]float64{
			"natsid_tag_ids_total":         300,
			"natsid_tag_load_errors_total": 0, "natsid_tag_waits_total": 1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	})
}
