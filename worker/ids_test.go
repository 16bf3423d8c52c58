package worker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func TestReadingARequestAllocatesNothing(t *testing.T) {
	segments := &segmentHandler{cfg: &Config{Namespace: subjects.DefaultNamespace, MaxBatch: 100}}
	flakes := &snowflakeHandler{ns: subjects.DefaultNamespace, maxBatch: 100, maxBusiness: snowflake.Leaf.MaxBusiness()}
	for _, body := range []string{"", "7\n"} {
		one := &nats.Msg{Subject: "id.segment.order", Data: []byte(body)}
		flake := &nats.Msg{Subject: "id.snowflake.0", Data: []byte(body), Header: nats.Header{
			subjects.HeaderPrefetch: {"2s"},
		}}
		got := testing.AllocsPerRun(1000, func() {
			_, err := segments.parse(wire.Tag(subjects.DefaultNamespace, one.Subject), one)
			_, _, err2 := flakes.parse(flake)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
		})
		if got != 0 {
			t.Errorf("%v allocations for the body %q", got, body)
		}
	}
}

func TestRequestsShareAReadingOfTheWallClockForAMillisecond(t *testing.T) {
	wall := int64(1000)
	h := newSnowflakeHandler(&Config{
		Layout: snowflake.Leaf, MaxBatch: 1,
		Snowflakes: issuer.New(time.Second, 1, func() int64 { return wall }),
	})
	began := h.read
	for _, step := range []struct {
		came       time.Duration
		wall, want int64
	}{
		{0, 1000, 1000},
		{wallEvery - 1, 1001, 1000},
		{wallEvery, 1001, 1001},
		{wallEvery + 1, 5000, 1001}, // a step forward is seen a moment later
		{2 * wallEvery, 5000, 5000},
		{3 * wallEvery, 2000, 2000}, // as is one back
		{time.Hour, 2001, 2001},
	} {
		wall = step.wall
		if got := h.now(began + step.came); got != step.want {
			t.Errorf("after %v: dated %d, want %d", step.came, got, step.want)
		}
	}
}
