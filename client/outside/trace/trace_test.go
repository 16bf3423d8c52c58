package trace_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/shop/trace"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
)

func TestEachCallHasASpanBelowThatOfItsCaller(t *testing.T) {
	t.Parallel()
	natsid := e2e.Start(t, e2e.Config{})
	spans := tracetest.NewInMemoryExporter()
	tracer := sdk.NewTracerProvider(sdk.WithSyncer(spans)).Tracer("shop")
	ids := client.Must(client.New(natsid.Conn, client.Config{Timeout: time.Minute, ObserveCall: trace.Spans(tracer)}))
	defer ids.Close()

	var wg sync.WaitGroup
	for range 10 { // their requests may be shared
		wg.Go(func() {
			ctx, sale := tracer.Start(t.Context(), "sale")
			defer sale.End()
			if _, err := client.Must(ids.Snowflake(client.SnowflakeConfig{})).Next(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sales, calls := map[string]bool{}, 0
	for _, s := range spans.GetSpans() {
		if s.Name == "sale" {
			sales[s.SpanContext.SpanID().String()] = true
		}
	}
	for _, s := range spans.GetSpans() {
		if s.Name == "id.snowflake" && sales[s.Parent.SpanID().String()] {
			calls++
		}
	}
	if len(sales) != 10 || calls != 10 {
		t.Errorf("%d spans of callers, and %d of calls below them", len(sales), calls)
	}

	spans.Reset()
	order := client.Must(ids.Segment("order", client.SegmentConfig{}))
	if _, err := order.NextN(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := order.NextN(context.Background(), 0); err == nil {
		t.Fatal("no IDs, and no error")
	}
	got := spans.GetSpans()
	if len(got) != 2 || got[0].Name != "id.segment.order" || got[0].Status.Code != codes.Unset ||
		got[1].Status.Code != codes.Error {
		t.Fatalf("%+v", got)
	}
}

func TestCallsAreCountedByTheirOutcome(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	ids := client.Must(client.New(e2e.Start(t, e2e.Config{}).Conn, client.Config{ObserveCall: trace.Seconds(reg)}))
	defer ids.Close()
	order := client.Must(ids.Segment("order", client.SegmentConfig{}))
	for n := range 3 {
		if _, err := order.NextN(t.Context(), n); (err == nil) != (n > 0) {
			t.Error(err)
		}
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	counts := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		counts[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
	}
	if counts["ok"] != 2 || counts["bad_request"] != 1 {
		t.Errorf("%v", counts)
	}
}
