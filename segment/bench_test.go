package segment_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
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

// Run BenchmarkNext with -cpu 1,2. All goroutines request IDs of one tag, or each of all tags in turn. It is compared
// with the one atomic operation that it needs at least.
func BenchmarkNext(b *testing.B) {
	b.Run("atomic.Int64.Add", func(b *testing.B) {
		var x atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				x.Add(1)
			}
		})
	})
	for _, n := range []int{1, 100_000} {
		a, tags := inUse(b, n, 1<<34)
		b.Run(fmt.Sprintf("tags=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				buf := make([]segment.Range, 0, 4)
				var err error
				for i := 0; pb.Next() && err == nil; i += 7919 {
					buf, err = a.Next(tags[i%n], 1, buf[:0])
				}
				if err != nil {
					b.Error(err)
				}
			})
		})
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

func BenchmarkStats(b *testing.B) {
	a, _ := inUse(b, 100_000, 1000)
	b.Run("totals", func(b *testing.B) {
		for b.Loop() {
			a.Stats()
		}
	})
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			a.StatsOf("order.region0.tag0")
		}
	})
}
