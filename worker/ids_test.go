package worker

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func TestReadingARequestAllocatesNothing(t *testing.T) {
	segments := &segmentHandler{ns: subjects.DefaultNamespace, maxBatch: 100}
	flakes := &snowflakeHandler{ns: subjects.DefaultNamespace, maxBatch: 100, maxBusiness: snowflake.Leaf.MaxBusiness()}
	for _, body := range []string{"", "7\n"} {
		one := &nats.Msg{Subject: "id.segment.order", Data: []byte(body)}
		flake := &nats.Msg{Subject: "id.snowflake.0", Data: []byte(body), Header: nats.Header{
			subjects.HeaderPrefetch: {"2s"},
		}}
		got := testing.AllocsPerRun(1000, func() {
			_, err := segments.parse(segments.ns.Tag(one.Subject), one)
			_, _, err2 := flakes.parse(flake)
			if r := segments.explained(request{explain: explains(one)}, "order", nil); r.header != nil {
				t.Fatal("a reply that nobody asked to be explained")
			}
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
		})
		if got != 0 {
			t.Errorf("%v allocations for the body %q", got, body)
		}
	}
}
