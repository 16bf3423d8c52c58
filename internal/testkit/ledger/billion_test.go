package ledger_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/ledger"
)

var billion = flag.Int64("ledger.ids", 1_000_000, "how many single IDs TestASnowflakeInAMillionIsRepeated adds")

// snowflakes returns a source of single IDs as five workers would issue
// 100,000 a second: rising, each worker up to 3 ms late, with holes between
// them, so that no two make a run.
func snowflakes() func() int64 {
	const workers, perTick = 5, 20
	r := rand.New(rand.NewPCG(1, 2))
	var tick, seq [workers]int64
	for w := range tick {
		tick[w] = 300_000_000_000
	}
	i := -1
	return func() int64 {
		i++
		w := i % workers
		if i/workers%perTick == 0 {
			tick[w]++
			seq[w] = 0
		}
		seq[w] += 2 + r.Int64N(190)
		late := int64(w) % 4
		return (tick[w]-late)<<22 | int64(100+w*37)<<12 | seq[w]
	}
}

// By hand, for the figures: go test -run Million -v ./internal/testkit/ledger -ledger.ids=1000000000
func TestASnowflakeInAMillionIsRepeated(t *testing.T) {
	l, next := ledger.New(t.TempDir()), snowflakes()
	start := time.Now()
	add := func(id int64) {
		if err := l.Add(id, id); err != nil {
			t.Fatal(err)
		}
	}
	want, late := int64(0), []int64{}
	for i := int64(1); i <= *billion; i++ {
		id := next()
		add(id)
		if i%1_000_000 == 0 { // half of them soon, half at the very end
			if want++; want%2 == 0 {
				add(id)
			} else {
				late = append(late, id)
			}
		}
	}
	for _, id := range late {
		add(id)
	}
	added := time.Since(start)
	got, err := l.Close()
	if err != nil || got.IDs != *billion+want || got.Repeats != want {
		t.Errorf("%+v, %v, want %d repeats", got, err, want)
	}
	t.Logf("%d IDs, %d repeats, %d bytes on disk; added in %v, read back in %v; %s",
		got.IDs, got.Repeats, got.Disk, added, time.Since(start)-added, peak())
}

// peak returns the line of the system that says how much memory was held at
// most, where there is one.
func peak() string {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range bytes.Lines(b) {
		if bytes.HasPrefix(line, []byte("VmHWM:")) {
			return string(bytes.TrimSpace(line))
		}
	}
	return ""
}

func BenchmarkSnowflakes(b *testing.B) {
	l, next := ledger.New(b.TempDir()), snowflakes()
	ids := make([]int64, b.N)
	for i := range ids {
		ids[i] = next()
	}
	b.ResetTimer()
	for _, id := range ids {
		if err := l.Add(id, id); err != nil {
			b.Fatal(err)
		}
	}
	got, err := l.Close()
	if err != nil || got.Repeats != 0 {
		b.Fatalf("%+v, %v", got, err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/ID")
	b.ReportMetric(float64(got.Disk)/float64(b.N), "bytes/ID")
}
