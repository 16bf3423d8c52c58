package metrics_test

import (
	"testing"
	"time"

	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/worker"
)

func BenchmarkAnswered(b *testing.B) {
	m := metrics.New()
	b.ReportAllocs()
	for i := range b.N {
		m.Answered(worker.Answer{Mode: worker.Segment, Code: wire.OK, IDs: 1, Took: time.Duration(i)})
	}
}
