package mysqlstore_test

import (
	"errors"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
)

// BenchmarkLoad shows the cost of the guard: one load after the other on a real database, with it,
// and on the marks alone.
func BenchmarkLoad(b *testing.B) {
	db := mysqltest.Start(b)
	js := natstest.JetStream(b, natstest.Start(b))
	table, err := mysqlstore.Login{DSN: db.DSN()}.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer table.Close()
	for _, c := range []struct {
		name  string
		store segment.Store
	}{
		{"MySQLGuarded", beside(table, buckets.OnJetStream(js))},
		{"KV", kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: "alone"})},
	} {
		b.Run(c.name, func(b *testing.B) {
			// Created once: a benchmark runs several times.
			_, err := c.store.Create(b.Context(), segment.Tag{Name: c.name, Step: 1000, MaxID: 1}, false)
			if err != nil && !errors.Is(err, segment.ErrExists) {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := c.store.Load(b.Context(), c.name, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "loads/s")
		})
	}
}
