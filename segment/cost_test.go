package segment_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// inUse returns an allocator and the names of n tags in use: each has issued a tenth of a range and has two in memory.
func inUse(tb testing.TB, n int, step int64) (*segment.Allocator, []string) {
	a := segment.New(segment.Config{Store: new(segmenttest.Memory), Deadline: deadline, AutoStep: step})
	tb.Cleanup(a.Close)
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprintf("order.region%d.tag%d", i%10, i)
		if _, err := segmenttest.Take(tb.Context(), a, tags[i], 1+step/10); err != nil {
			tb.Fatal(err)
		}
	}
	return a, tags
}

func TestTakingIDsFromMemoryAllocatesNothing(t *testing.T) {
	a, tags := inUse(t, 1000, 1<<30)
	buf := make([]segment.Range, 0, 4)
	for _, n := range []int64{1, 100} {
		i := 0
		got := testing.AllocsPerRun(5000, func() {
			var err error
			if buf, err = a.Next(tags[i%len(tags)], n, buf[:0]); err != nil {
				t.Fatal(err)
			}
			i++
		})
		if got != 0 {
			t.Errorf("%v allocations for %d IDs", got, n)
		}
	}
}

// bytesATag returns how much memory of an allocator a tag in use takes, including its name, but not that of the store.
func bytesATag(tb testing.TB, n int) float64 {
	store := new(segmenttest.Memory)
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprintf("order.region%d.tag%d", i%10, i)
		if _, err := store.Create(tb.Context(), segment.Tag{Name: tags[i], Step: 1000, MaxID: 1}, false); err != nil {
			tb.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	a := segment.New(segment.Config{Store: store, Deadline: deadline})
	for _, tag := range tags {
		if _, err := segmenttest.Take(tb.Context(), a, tag, 100); err != nil {
			tb.Fatal(err)
		}
	}
	for _, tag := range tags {
		for s, _ := a.StatsOf(tag); len(s.Ranges) < 2; s, _ = a.StatsOf(tag) {
			runtime.Gosched()
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	a.Close()
	runtime.KeepAlive(store)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
}

func TestATagInUseTakesLessThanAKilobyte(t *testing.T) {
	got := bytesATag(t, 20_000)
	t.Logf("%.0f bytes a tag", got)
	if got > 1024 {
		t.Errorf("%.0f bytes a tag", got)
	}
}
