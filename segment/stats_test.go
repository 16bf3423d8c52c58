package segment_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestStatsOfATagShowWhatItHolds(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		if s, ok := a.StatsOf("a"); ok {
			t.Errorf("a tag never requested: %+v", s)
		}
		store.OnLoad(slow(30 * time.Millisecond))
		take(t, a, "a", 15)
		time.Sleep(time.Second)
		s, ok := a.StatsOf("a")
		want := []segment.RangeStats{{First: 1, Next: 16, Last: 100, Current: true}, {First: 101, Next: 101, Last: 200}}
		if !ok || s.Tag != "a" || !slices.Equal(s.Ranges, want) || s.Left != 185 {
			t.Errorf("%+v, want ranges %+v", s, want)
		}
		if s.Configured != 100 || s.Step != 100 || s.Loads != 2 || s.Waits != 1 ||
			s.Errors != 0 {
			t.Errorf("%+v", s)
		}
		take(t, a, "a", 100)
		s, _ = a.StatsOf("a")
		want = []segment.RangeStats{{First: 101, Next: 116, Last: 200, Current: true}}
		if !slices.Equal(s.Ranges, want) {
			t.Errorf("in the second range: %+v, want %+v", s, want)
		}
		time.Sleep(time.Second)
		s, _ = a.StatsOf("a")
		want = s.Ranges
		// While a request waits the current range is shut, and shown as before.
		if err := a.Park("a", 300, func([]segment.Range, error) {}); err != nil {
			t.Fatal(err)
		}
		if s, _ = a.StatsOf("a"); !slices.Equal(s.Ranges, want) || s.Waiting != 1 || s.Waits != 2 {
			t.Errorf("while one waits: %+v", s)
		}
		time.Sleep(time.Second)
		if s, _ = a.StatsOf("a"); s.Waiting != 0 {
			t.Errorf("after a request that used up several ranges: %+v", s)
		}
	})
}

func TestAStepIsRecommendedWhereItHelps(t *testing.T) {
	for rules, want := range map[segment.Rules]int64{{Strict: true}: 0, {MaxHole: 60}: 30} {
		inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, f *faulty) {
			create(t, f, segment.Tag{Name: "r", Step: 100, MaxID: 1, Rules: rules})
			steady(t, a, "r", 10*time.Millisecond, time.Minute)
			if s, _ := a.StatsOf("r"); s.Recommended != want {
				t.Errorf("%+v: recommended %d, want %d", rules, s.Recommended, want)
			}
		})
	}
}

func TestStatsOfATagShowItsSpeedAndPeak(t *testing.T) {
	inBubble(t, segment.Config{MaxStep: 1_000_000}, func(t *testing.T, a *allocator, _ *faulty) {
		steady(t, a, "a", 10*time.Millisecond, time.Minute)
		s, _ := a.StatsOf("a")
		if s.Speed < 95 || s.Speed > 105 || math.Abs(s.SecondsLeft-float64(s.Left)/s.Speed) > 1e-6 {
			t.Errorf("at 100 IDs/s: %+v", s)
		}
		steady(t, a, "a", 100*time.Millisecond, 2*time.Hour) // ranges last long by now
		steady(t, a, "a", time.Millisecond, 5*time.Second)
		steady(t, a, "a", 100*time.Millisecond, time.Hour)
		if s, _ = a.StatsOf("a"); s.Recommended < 570_000 || s.Recommended > 630_000 {
			t.Errorf("after 5 s of 1000 IDs/s: recommended %d, want about 600,000", s.Recommended)
		}
		time.Sleep(time.Hour)
		if s, _ = a.StatsOf("a"); s.Speed > 1 || s.SecondsLeft < 3600 {
			t.Errorf("an hour after the last request: %v IDs/s, %v s left", s.Speed, s.SecondsLeft)
		}
	})
}

func TestStatsOfATagShowItsTrouble(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(failing(segmenttest.ErrInjected))
		if err := a.Park("a", 1, func([]segment.Range, error) {}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2)
		if s, _ := a.StatsOf("a"); s.Errors < 3 || !errors.Is(s.LastError, segmenttest.ErrInjected) ||
			s.Waiting != 1 || s.Loads != 0 || !math.IsInf(s.SecondsLeft, 1) && s.SecondsLeft != 0 {
			t.Errorf("%+v", s)
		}
		store.OnLoad(nil)
		time.Sleep(time.Second)
		if s, _ := a.StatsOf("a"); s.LastError != nil || s.Loads == 0 {
			t.Errorf("once the store is back: %+v", s)
		}
	})
}

func TestTheBusiestTagsAreThoseRequestedMostAtPresent(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 10}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "was busy", 1000)
		time.Sleep(time.Minute)
		var want []string
		for i := range 30 { // tag 17 is the busiest, 17 * 7 % 30 = 29
			take(t, a, fmt.Sprint("tag", i), int64(100+i*7%30))
		}
		for i := range 30 { // 13 * 7 is 1 mod 30
			want = append(want, fmt.Sprint("tag", (29-i)*13%30))
		}
		for _, n := range []int{0, 1, 3, 30} {
			s, top := a.Busiest(n)
			var got []string
			for _, tag := range top {
				got = append(got, tag.Tag)
			}
			if !slices.Equal(got, want[:n]) {
				t.Errorf("the %d busiest are %q, want %q", n, got, want[:n])
			}
			if s.Tags != 31 || s.Waits != 31 || s.Loads < 31 || s.Errors != 0 || s.Speed < 30*100 {
				t.Errorf("totals %+v", s)
			}
		}
		if _, top := a.Busiest(100); len(top) != 31 || top[30].Tag != "was busy" {
			t.Errorf("of 31 tags the 100 busiest are %d", len(top))
		}
		store.OnLoad(failing(segmenttest.ErrInjected))
		_, _ = segmenttest.Take(t.Context(), a, "tag0", 1000)
		if s, _ := a.Busiest(0); s.Errors == 0 {
			t.Errorf("after loads that failed: %+v", s)
		}
	})
}

// Readers look up tags while others are added and removed: a tag that remains is always found.
func TestATagIsFoundWhileOthersAreAddedAndRemoved(t *testing.T) {
	store := new(segmenttest.Memory)
	tags := make([]string, 2000)
	for i := range tags {
		tags[i] = fmt.Sprint("tag", i)
		create(t, store, segment.Tag{Name: tags[i], Step: 1 << 40, MaxID: 1}) // never used up
	}
	a := segment.New(segment.Config{Store: store, Deadline: deadline})
	defer a.Close()
	take(t, a, tags[0], 1)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := a.Next(tags[0], 1, nil); err != nil {
				t.Errorf("a tag in use: %v", err)
				return
			}
		}
	})
	for i, tag := range tags {
		take(t, a, tag, 1)
		_, err := segmenttest.Take(t.Context(), a, fmt.Sprint("unknown", i), 1)
		if !errors.Is(err, segment.ErrUnknownTag) {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	for _, tag := range tags {
		if r, err := a.Next(tag, 1, nil); err != nil || r[0].Start < 2 {
			t.Errorf("%s: %v, %v", tag, r, err)
		}
	}
	wait.Until(t, "unknown tags are forgotten", func() bool { return a.Stats().Tags == len(tags) })
}

// A strict tag holds no IDs, and a tag that was used up and is not requested lacks none: neither may look like a tag
// that is about to run out, nor hide one that is.
func TestATagWithoutDemandOrWithoutStockDoesNotRunOut(t *testing.T) {
	inBubble(t, segment.Config{MaxStep: 100}, func(t *testing.T, a *allocator, store *faulty) {
		for _, tag := range []string{"strict", "loose"} {
			create(t, store, segment.Tag{
				Name: tag, Step: 100, MaxID: 1, Rules: segment.Rules{Strict: tag == "strict"},
			})
		}
		take(t, a, "strict", 1)
		time.Sleep(time.Second)
		if s := a.Stats(); !math.IsInf(s.SecondsLeft, 1) {
			t.Errorf("a strict tag lasts %v s, want +Inf", s.SecondsLeft)
		}
		take(t, a, "loose", 1)
		store.OnLoad(failing(errors.New("the store is away")))
		for s, _ := a.StatsOf("loose"); s.Left > 0; s, _ = a.StatsOf("loose") {
			take(t, a, "loose", s.Left)
		}
		if s := a.Stats(); s.SecondsLeft != 0 {
			t.Errorf("a tag that was used up a moment ago, while the store is away, lasts %v s, want 0", s.SecondsLeft)
		}
		time.Sleep(time.Second)
		a.Stats() // a reading after the last request
		time.Sleep(2 * time.Minute)
		if s := a.Stats(); !math.IsInf(s.SecondsLeft, 1) {
			t.Errorf("a tag that was not requested for two minutes lasts %v s, want +Inf", s.SecondsLeft)
		}
		_ = a.Park("loose", 1, func([]segment.Range, error) {})
		if s := a.Stats(); s.SecondsLeft != 0 {
			t.Errorf("a tag for which a request waits lasts %v s, want 0", s.SecondsLeft)
		}
	})
}
