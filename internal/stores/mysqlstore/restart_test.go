package mysqlstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// BenchmarkRestart shows the cost of a start with 100,000 recently used tags: the poll, the preload, the memory, and
// how long a caller waits during it. Run it with -benchtime 1x.
func BenchmarkRestart(b *testing.B) {
	const tags = 100_000
	db := mysqltest.Start(b)
	streams := buckets.OnJetStream(natstest.JetStream(b, natstest.Start(b)))
	table, err := mysqlstore.Login{DSN: db.DSN()}.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer table.Close()
	for from := 0; from < tags; from += 1000 {
		var rows strings.Builder
		for i := from; i < from+1000; i++ {
			fmt.Fprintf(&rows, ",('order.region%d.tag%d',1,1000)", i%10, i)
		}
		_, err := db.DB().Exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES " + rows.String()[1:])
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct { // the first creates the marks that the second uses
		name  string
		store segment.Store
	}{
		{"MySQLGuarded", kvstore.New(streams, kvstore.Config{Bucket: "marks", Table: table, Kind: kvstore.Alone})},
		{"KV", kvstore.New(streams, kvstore.Config{Bucket: "marks"})},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				restart(b, c.store, tags)
			}
		})
	}
}

func restart(b *testing.B, store segment.Store, tags int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	if err := store.Poll(b.Context(), func(l segment.Listing) {
		b.ReportMetric(time.Since(begin).Seconds(), "s/listing")
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(begin).Seconds(), "s/poll")
	var loads atomic.Int64
	a := segment.New(segment.Config{
		Store: store, Deadline: deadline, Preload: 24 * time.Hour,
		OnLoad: func(string, time.Duration, error) { loads.Add(1) },
	})
	ctx, cancel := context.WithCancel(b.Context())
	var follower sync.WaitGroup
	begin = time.Now()
	follower.Go(func() { a.Follow(ctx) })
	var peak uint64
	var worst time.Duration
	for loads.Load() < tags {
		asked := time.Now()
		if _, err := segmenttest.Take(b.Context(), a, "order.region0.tag0", 1); err != nil {
			b.Fatal(err)
		}
		worst = max(worst, time.Since(asked))
		runtime.ReadMemStats(&after)
		peak = max(peak, after.HeapAlloc)
		time.Sleep(20 * time.Millisecond)
	}
	b.ReportMetric(time.Since(begin).Seconds(), "s/preload")
	b.ReportMetric(float64(worst.Milliseconds()), "ms-longest-wait")
	b.ReportMetric(float64(peak-min(peak, before.HeapAlloc))/1e6, "MB-peak")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))/float64(tags), "B/tag")
	cancel()
	follower.Wait()
	a.Close()
}
